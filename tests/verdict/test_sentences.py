"""Each case says its exact sentence, of plain facts."""

from dataclasses import replace
from typing import Any

import pytest
from offpolicy_monitor.verdict import Breach, Cause, Facts, Masks, Window, say

TOP_P = Cause(
    "top_p", "top-p renormalisation", 0.83,
    ("Sample with top_p = 1 and top_k off.", "Or apply the same nucleus mask to the trainer's logits.", "Third."),
)  # fmt: skip
MASKS = Masks("dppo_tv", 0.027, "OPSM", 0.31, 0.01, 0.41)


def window(first: int, count: int, **figures: float | None) -> Window:
    """So many steps with the same figures, by short names."""
    paths = {
        "mismatch": "gaps.mismatch.k3", "staleness": "gaps.staleness.k3", "total": "gaps.total.k3",
        "share": "attribution.mismatch", "rest": "attribution.staleness",
        "tokens": "tokens", "nonfinite": "excluded_tokens.nonfinite", "lag": "policy_lag.max",
        "older": "mismatch_lag.token_fraction", "k3_older": "mismatch_lag.k3", "k3_current": "mismatch_lag.k3_current",
    }  # fmt: skip
    return Window(range(first, first + count), {paths[name]: [value] * count for name, value in figures.items()})


def facts(**changes: Any) -> Facts:
    """A healthy run of 110 steps, 99 % of whose gap is staleness."""
    base = Facts(
        state="live",
        last_step=109,
        steps=110,
        last_batch_at=1_767_391_380.0,
        now=1_767_391_385.0,
        start=window(5, 21, mismatch=5.7e-5),
        newest=window(60, 50, mismatch=9.1e-5, staleness=0.01, total=0.01, share=0.01, rest=0.99, tokens=1000.0),
        threshold=0.002,
    )
    return replace(base, **changes)


def said(**changes: Any) -> dict[str, Any]:
    return say("warn", facts(**changes)).answer()


def breach(alert: str, judged: Any, since: int, severity: Any = "critical", **more: Any) -> Breach:
    return Breach(alert, severity, since, judged, **more)


def test_healthy() -> None:
    found = said(masks=Masks("icepop", 0.0))
    assert found["sentence"] == (
        "Healthy at step 109. Mismatch is 22× below its first threshold. Mismatch k3 is 9.1×10⁻⁵ nats per token, 1.6× "
        "this run's own start. 99% of the gap is staleness, which is the policy learning."
    )
    assert found["action"] == "Nothing. icepop, the correction in use, masks 0% of the tokens."
    assert (found["state"], found["since_step"], found["half"], found["cause"], found["score"]) == (
        *("healthy", None, None, None, None),
    )


def test_too_early() -> None:
    found = said(steps=4, last_step=3, start=Window(), newest=window(0, 4, mismatch=3.5e-5))
    assert found["sentence"] == (
        "Too early to judge: 4 steps so far. Thresholds need 5 steps, drift needs a baseline from steps 5 to 25. "
        "Mismatch k3 so far: 3.5×10⁻⁵ nats per token."
    )
    assert found["action"] == "Wait. Nothing is wrong with what came."
    assert said(steps=1, newest=Window([0]), start=Window())["head"] == "Too early to judge: 1 step so far."


def test_mismatch_with_a_known_cause() -> None:
    found = said(
        breaches=[breach("MismatchDrift", "mismatch", 70, "warning"), breach("MismatchDrift", "mismatch", 97)],
        start=window(5, 21, mismatch=0.0018 / 41),
        newest=window(60, 50, mismatch=0.0018, staleness=0.02, share=0.059, rest=0.88),
        before=window(67, 30, staleness=0.019),
        cause=TOP_P,
        masks=MASKS,
    )
    assert found["sentence"] == (
        "Drifting since step 97: it looks like top-p renormalisation (score 0.83). Mismatch k3 is 0.0018 nats per "
        "token, 41× this run's own start. It is 5.9% of the gap; the larger half, staleness (88%), has not moved."
    )
    assert found["action"] == (
        "Sample with top_p = 1 and top_k off. Or apply the same nucleus mask to the trainer's logits. dppo_tv, the "
        "correction in use, masks 2.7% of the tokens. OPSM at 0.01 would mask 31%; at 0.41 it masks 1%."
    )
    assert (found["since_step"], found["half"], found["cause"], found["score"]) == (97, "mismatch", "top_p", 0.83)


@pytest.mark.parametrize("score, named", [(0.5, True), (0.49, False)])
def test_a_cause_is_named_from_a_score_of_one_half_on(score: float, named: bool) -> None:
    found = said(breaches=[breach("MismatchKL", "mismatch", 9)], cause=replace(TOP_P, score=score))
    looks = "it looks like top-p renormalisation (score 0.5)."
    other = "the engine moved away from the trainer, and no known bug fits."
    assert found["head"] == f"Drifting since step 9: {looks if named else other}"
    assert (found["cause"], found["score"]) == (("top_p", 0.5) if named else (None, None))


def test_noise_is_no_cause_and_what_was_not_looked_for_is_not_denied() -> None:
    noise = Cause("noise", "plain numeric noise", 0.9, ("Nothing.",))
    assert said(breaches=[breach("MismatchKL", "mismatch", 9)], cause=noise)["cause"] is None
    found = said(breaches=[breach("MismatchKL", "mismatch", 9)], searched=False)
    assert found["head"] == "Drifting since step 9: the engine moved away from the trainer."


def test_mismatch_that_is_the_larger_half_and_staleness_that_rose() -> None:
    newest = window(60, 50, mismatch=0.02, staleness=0.06, share=0.92, rest=0.05)
    found = said(breaches=[breach("MismatchKL", "mismatch", 96)], newest=newest, start=Window())
    assert found["why"] == "Mismatch k3 is 0.02 nats per token. It is 92% of the gap."
    newest = window(60, 50, mismatch=0.02, staleness=0.06, share=0.3, rest=0.7)
    before = window(66, 30, staleness=0.02)
    found = said(breaches=[breach("MismatchKL", "mismatch", 96)], newest=newest, before=before, start=Window())
    assert found["why"].endswith("It is 30% of the gap; the larger half, staleness (70%), rose 3.0×.")


LAGGED = {"mismatch": 0.002, "older": 0.7, "k3_older": 0.003}


@pytest.mark.parametrize(
    ("figures", "has_lag"),
    [
        (LAGGED | {"k3_current": 0.0002}, True),
        (LAGGED | {"k3_current": 0.0016}, False),
        (LAGGED, False),  # all tokens are older: with what would they be compared
        ({"mismatch": 0.002, "older": 0.7, "k3_older": 0.0, "k3_current": 0.0}, False),
        ({"mismatch": 0.002}, False),
    ],
)
def test_a_mismatch_whose_older_tokens_are_further_off_is_told_to_have_lag_in_it(
    figures: dict[str, float], has_lag: bool
) -> None:
    newest = window(60, 50, **figures)
    clause = "70% of its tokens are of older weights: 0.003 on them, 2×10⁻⁴ on the others, so it has version lag in it."
    found = said(breaches=[breach("MismatchKL", "mismatch", 96)], newest=newest, start=Window())
    assert found["why"] == "Mismatch k3 is 0.002 nats per token." + has_lag * f" {clause}"
    assert (
        found["action"]
        == has_lag
        * (
            "Look at mismatch_lag.k3_current, which has no lag in it, or keep old_logprobs of the weights that "
            "sampled. "
        )
        + "Compare engine and trainer on one prompt."
    )
    assert said(newest=newest, start=Window())["why"].endswith(has_lag * clause)
    assert (clause in said(newest=newest)["sentence"]) is has_lag


def test_staleness() -> None:
    found = said(
        breaches=[breach("TotalOffPolicy", "total", 50), breach("MaskRate", None, 20)],
        start=window(5, 21, mismatch=3.9e-5),
        newest=window(60, 50, mismatch=3.1e-5, staleness=0.31, share=0.001, rest=0.999, lag=2.0),
    )
    assert found["sentence"] == (
        "Drifting since step 50: nearly all of the gap is staleness. Staleness k3 is 0.31 nats per token, with data up "
        "to 2 versions old. The engine is not to blame: mismatch k3 is 3.1×10⁻⁵ nats per token, 0.8× its own start."
    )
    assert found["action"] == (
        "Lower the learning rate, or take fewer gradient steps on one rollout, or shorten the queue."
    )
    assert (found["since_step"], found["half"]) == (50, "staleness")


def test_of_the_total_gap_the_larger_half_is_at_fault() -> None:
    newest = window(60, 50, mismatch=0.3, staleness=0.01, share=0.9, rest=0.1)
    found = said(breaches=[breach("SecondMoment", "total", 50)], newest=newest)
    assert (found["half"], found["state"], found["since_step"]) == ("mismatch", "drifting", 50)


def test_without_old_logprobs_the_half_of_a_breach_cannot_be_told() -> None:
    found = said(breaches=[breach("TotalOffPolicy", "total", 50)], newest=window(60, 50, total=0.4), start=Window())
    assert found["sentence"] == (
        "Off-policy since step 50; which half cannot be told. Total k3 is 0.4 nats per token. Without old_logprobs, "
        "mismatch and staleness cannot be separated."
    )
    assert found["action"] == "Send old_logprobs: one forward pass of the trainer before the first gradient step."
    assert (found["state"], found["half"]) == ("off_policy", None)
    stood_in = said(
        breaches=[breach("ProbabilityDiff", "mismatch", 50)], newest=window(60, 50, total=0.4), start=Window()
    )
    assert stood_in["sentence"] == found["sentence"]


def test_data_wrong() -> None:
    found = said(
        breaches=[breach("DataQuality", "data", 60), breach("MismatchDrift", "mismatch", 70)],
        start=window(5, 21, mismatch=1.2e-4 / 2.9),
        newest=window(60, 50, mismatch=1.2e-4, tokens=1000.0, nonfinite=4.0),
        cause=TOP_P,
    )
    assert found["sentence"] == (
        "Data wrong since step 60: 0.4% of the tokens have log-probs that are not finite. They are left out of every "
        "figure. Among the rest, mismatch k3 is 1.2×10⁻⁴ nats per token, 2.9× its own start."
    )
    assert found["action"] == (
        "Look at what the engine returns for one of these tokens before you trust any mask: NaN, 0 and copied values "
        "all pass through a clamp unseen."
    )
    assert (found["state"], found["half"], found["since_step"]) == ("data_wrong", "data", 60)


def test_data_that_is_finite_and_wrong() -> None:
    found = said(breaches=[breach("DataQuality", "data", 60)])
    assert found["head"] == "Data wrong since step 60: log-probs are missing, impossible or copied."


def test_a_named_cause_explains_what_looks_zero_filled() -> None:
    both = [breach("DataQuality", "data", 60), breach("MismatchDrift", "mismatch", 97)]
    assert said(breaches=both, cause=TOP_P)["half"] == "mismatch"
    assert said(breaches=both, cause=None)["half"] == "data"
    assert said(breaches=both[:1], cause=TOP_P)["half"] == "data"


def test_silent() -> None:
    found = said(state="silent", last_step=59, now=1_767_395_000.0, step_seconds=4.2)
    assert found["sentence"] == (
        "No batch since step 59. The last one came at 22:03 UTC; this run's steps usually take 4.2 s. Until then it "
        "was healthy."
    )
    assert found["action"] == (
        "See whether the trainer lives. If it ended, mark the run finished; if it trains, look at the client's errors "
        "and dropped counters."
    )
    alarmed = said(state="silent", breaches=[breach("MismatchKL", "mismatch", 9), breach("SyncBroken", "mismatch", 9)])
    assert alarmed["why"].endswith("Until then it was in alarm: MismatchKL since step 9 and 1 other.")


def test_finished() -> None:
    found = said(
        state="finished", last_step=29, newest=window(0, 30, mismatch=7e-5), start=window(5, 21, mismatch=4.7e-5)
    )
    assert found["sentence"] == (
        "Finished at step 29, healthy to the end. Mismatch k3 ended at 7×10⁻⁵ nats per token, 1.5× its own start."
    )
    assert found["action"] == "Nothing. A further batch reopens the run."
    alarmed = said(state="finished", breaches=[breach("MismatchKL", "mismatch", 100)])
    assert alarmed["head"] == "Finished at step 109, in alarm: MismatchKL since step 100."


def test_healthy_without_old_logprobs() -> None:
    found = said(last_step=39, start=Window(), newest=window(0, 40, total=8.8e-5))
    assert found["sentence"] == (
        "Healthy at step 39, as far as can be told without old_logprobs. Total k3 is 8.8×10⁻⁵ nats per token. It "
        "cannot be split into mismatch and staleness."
    )
    assert found["action"] == "Send old_logprobs to learn which half it is."


def test_healthy_without_sampling_logprobs() -> None:
    found = said(last_step=39, start=Window(), newest=window(0, 40, staleness=0.01))
    assert found["sentence"] == (
        "Healthy at step 39, as far as can be told without sampling_logprobs. Staleness k3 is 0.01 nats per token. "
        "Whether the engine agrees with the trainer is not known."
    )


def test_steps_without_a_valid_token_are_not_called_healthy() -> None:
    found = said(last_step=39, start=Window(), newest=window(0, 40, tokens=0.0))
    assert (found["state"], found["head"]) == (
        "not_measured", "Nothing measured at step 39: no token has two finite log-probs.",
    )  # fmt: skip


def test_an_alarm_of_neither_half() -> None:
    rule = breach("MaskRate", None, 44, "warning", value=0.4, threshold=0.2, summary="The correction masks much")
    found = said(breaches=[rule], masks=MASKS)
    assert found["sentence"] == "MaskRate since step 44: the correction masks much. Value 0.4, threshold 0.2."
    assert found["action"].startswith("See the runbook. dppo_tv, the correction in use,")


def test_no_sentence_tells_a_figure_that_was_not_sent() -> None:
    """Whatever is in breach, a run without any figure gets no number."""
    for judged in ("mismatch", "staleness", "total", "data", None):
        for state in ("live", "silent", "finished"):
            found = said(
                state=state,
                breaches=[breach("Rule", judged, 7)],
                newest=Window([108, 109]),
                start=Window(),
                threshold=None,
            )
            assert "k3 is" not in found["sentence"] and "None" not in found["sentence"], (judged, state)
