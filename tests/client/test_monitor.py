"""The monitor against a real service: what it posts means the same in every layout, and what it reads comes back."""

import json
import pickle
import re
import urllib.request
from typing import Any

import numpy as np
import pytest
import torch
from offpolicy_monitor import Monitor
from offpolicy_monitor.client.questions import several
from offpolicy_monitor.errors import ConfigurationError, Refusal

from tests.client.batches import batch
from tests.fixtures.service import running_service


def logged(url: str, run: str, *calls: dict[str, Any], **options: Any) -> dict[str, Any]:
    with Monitor(url, run, strict=True, **options) as monitor:
        for call in calls:
            monitor.log(**call)
        assert monitor.flush(30.0)
    return dict(monitor.stats)


def test_a_run_is_finished_once_its_monitor_is_closed_and_goes_on_with_another_step(url: str) -> None:
    def state() -> object:
        with urllib.request.urlopen(f"{url}/v1/runs/ended") as answer:
            return json.load(answer)["state"]

    logged(url, "ended", {"step": 0, **batch()})
    assert state() == "finished"
    monitor = Monitor(url, "ended", attempt=0)
    monitor.log(step=1, **batch())
    assert monitor.flush(30.0) and state() == "live"
    assert monitor.finish() and state() == "finished"
    monitor.close()


LENGTHS = np.array([8, 3, 0, 5])


def rows(array: Any) -> list[Any]:
    return [row[:length] for row, length in zip(array, LENGTHS, strict=True)]


def per_token(change: Any) -> dict[str, Any]:
    """The batch with `change` applied to each array that has an entry per token."""
    return {name: array if name == "advantages" else change(array) for name, array in batch().items()}


FORMS: dict[str, Any] = {
    "padded with lengths": lambda: {**batch(), "lengths": LENGTHS},
    "torch": lambda: {**per_token(torch.tensor), "lengths": torch.tensor(LENGTHS)},
    "with grad, not contiguous": lambda: {
        **per_token(torch.tensor),
        "logprobs": torch.tensor(batch()["logprobs"].T.copy(), requires_grad=True).T,
        "lengths": torch.tensor(LENGTHS, dtype=torch.int32),
    },
    "packed": lambda: {**per_token(lambda array: np.concatenate(rows(array))), "lengths": LENGTHS},
    "rows of torch": lambda: per_token(lambda array: rows(torch.tensor(array))),
    "rows of numpy": lambda: per_token(rows),
    "lists": lambda: per_token(lambda array: [row.tolist() for row in rows(array)]),
    "mask of ints": lambda: {**batch(), "mask": batch()["mask"].astype(np.int64), "lengths": LENGTHS},
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_batch_in_another_form_is_a_duplicate(url: str, form: str) -> None:
    first = {**batch(), "lengths": LENGTHS}
    run = f"form-{list(FORMS).index(form)}"
    stats = logged(url, run, {"step": 0, **first}, {"step": 0, **FORMS[form]()}, attempt=0)
    assert (stats["sent"], stats["duplicates"], stats["errors"], stats["retries"]) == (2, 1, 0, 0)


def test_bfloat16_arrives_with_its_own_values(url: str) -> None:
    arrays = per_token(torch.tensor)
    narrow = {name: arrays[name].bfloat16() for name in ("sampling_logprobs", "old_logprobs", "logprobs")}
    logged(url, "bf16", {"step": 0, **arrays, **narrow})
    with Monitor(url, "bf16") as monitor:
        stored = monitor.series("gaps.mismatch.abs_log_ratio_mean")["value"][0]
    expected = (narrow["old_logprobs"].double() - narrow["sampling_logprobs"].double()).abs().mean().item()
    assert stored == pytest.approx(expected, rel=1e-6)


def test_profile_and_labels_are_the_runs(url: str) -> None:
    logged(url, "named", {"step": 0, **batch()}, profile="moe_bf16", labels={"gpu": "h100"})
    with Monitor(url, "any") as monitor:
        run = next(run for run in monitor.runs() if run["run"] == "named")
    assert (run["profile"], run["labels"]) == ("moe_bf16", {"gpu": "h100"})


def test_a_trainer_that_begins_anew_supersedes_its_steps(url: str) -> None:
    logged(url, "again", *({"step": step, **batch(seed=step)} for step in range(4)))
    stats = logged(url, "again", *({"step": step, **batch(seed=step + 50)} for step in range(2, 4)))
    assert (stats["sent"], stats["errors"]) == (2, 0)
    with Monitor(url, "again") as monitor:
        run = next(run for run in monitor.runs() if run["run"] == "again")
    assert (run["attempt"], run["last_step"]) == (1, 3)


def seen(url: str, run: str) -> dict[str, Any]:
    with Monitor(url, run) as monitor:
        return next(row for row in monitor.runs() if row["run"] == run)


def minibatches(step: int, of: range, seed: int = 0) -> list[dict[str, Any]]:
    return [{"step": step, "minibatch": each, "minibatches": 4, **batch(seed=seed + each)} for each in of]


def test_a_second_monitor_in_the_middle_of_a_step_goes_on_with_it(url: str) -> None:
    logged(url, "second", *minibatches(0, range(4)), *minibatches(1, range(2)))
    stats = logged(url, "second", *minibatches(1, range(2, 4)), *minibatches(2, range(4)))
    assert (stats["sent"], stats["retries"]) == (6, 0)
    run = seen(url, "second")
    assert (run["attempt"], run["last_step"], run["last_minibatch"]) == (0, 2, 3)
    with Monitor(url, "second") as monitor:
        assert monitor.series("gaps.total.k1", first=1, last=1)["minibatch"].tolist() == [0, 1, 2, 3]


def test_two_monitors_that_take_turns_in_one_step_post_one_attempt(url: str) -> None:
    with Monitor(url, "turns", strict=True) as one, Monitor(url, "turns", strict=True) as other:
        for step in range(3):
            for call in minibatches(step, range(4)):
                monitor = (one, other)[call["minibatch"] % 2]
                monitor.log(**call)
                assert monitor.flush(30.0)
    assert (seen(url, "turns")["attempt"], one.stats["retries"], other.stats["retries"]) == (0, 0, 0)


@pytest.mark.parametrize("before", [1, 2, 4])
def test_a_trainer_that_resumes_at_its_last_step_begins_a_new_attempt(url: str, before: int) -> None:
    run = f"resumed-{before}"
    logged(url, run, *minibatches(0, range(4)), *minibatches(1, range(before)))
    stats = logged(url, run, *minibatches(1, range(4), seed=50), *minibatches(2, range(4), seed=50))
    assert (stats["sent"], stats["duplicates"], stats["errors"]) == (8, 0, 0)
    assert (seen(url, run)["attempt"], seen(url, run)["last_step"]) == (1, 2)
    with Monitor(url, run) as monitor:
        series = monitor.series("gaps.mismatch.k1", first=1, last=1)
    expected = [
        -(each["old_logprobs"].astype(np.float64) - each["sampling_logprobs"]).mean()
        for each in minibatches(1, range(4), seed=50)
    ]
    assert series["value"] == pytest.approx(expected, rel=1e-6)


def test_a_trainer_that_resumes_with_the_same_content_repeats_what_is_there(url: str) -> None:
    logged(url, "same", *minibatches(0, range(3)))
    stats = logged(url, "same", *minibatches(0, range(4)))
    assert (stats["sent"], stats["duplicates"], stats["errors"]) == (4, 3, 0)
    assert (seen(url, "same")["attempt"], seen(url, "same")["last_minibatch"]) == (0, 3)


def test_a_trainer_of_one_shard_that_resumes_a_step_of_several_begins_a_new_attempt(url: str) -> None:
    logged(url, "fewer", {"step": 0, "shard": 0, "shards": 2, **batch()})
    stats = logged(url, "fewer", {"step": 0, **batch(seed=1)})
    assert (stats["sent"], stats["errors"], seen(url, "fewer")["attempt"]) == (1, 0, 1)


def test_halves_of_a_rollout_that_is_resumed_are_of_the_new_attempt(url: str) -> None:
    def halves(seed: int) -> list[dict[str, Any]]:
        whole = batch(seed=seed)
        return [
            {"step": 7, "rollout": "7", **{name: whole[name] for name in whole if name != "logprobs"}},
            *({"step": 7, "minibatch": i, "rollout": "7", "logprobs": whole["logprobs"] - 0.01 * i} for i in range(2)),
        ]

    logged(url, "half", *halves(0))
    stats = logged(url, "half", *halves(1))
    assert (stats["sent"], stats["errors"], seen(url, "half")["attempt"]) == (3, 0, 1)


def test_a_monitor_pickled_in_the_middle_of_a_step_goes_on_with_its_attempt(url: str) -> None:
    logged(url, "pickled", *minibatches(5, range(4)))
    with Monitor(url, "pickled", strict=True) as monitor:
        for call in minibatches(3, range(2), seed=9):
            monitor.log(**call)
        assert monitor.flush(30.0)
        with pickle.loads(pickle.dumps(monitor)) as copy:
            for call in minibatches(3, range(2, 4), seed=9):
                copy.log(**call)
            assert copy.flush(30.0)
        monitor.log(**minibatches(4, range(1), seed=9)[0])
        assert monitor.flush(30.0)
    run = seen(url, "pickled")
    assert (run["attempt"], run["last_step"], monitor.stats["errors"], copy.stats["retries"]) == (1, 4, 0, 0)


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_monitor_that_comes_back_with_a_checkpoint_begins_a_new_attempt(url: str, restarts: int) -> None:
    run = f"checkpoint-{restarts}"
    with Monitor(url, run, strict=True) as monitor:
        monitor.log(**minibatches(0, range(1))[0])
        assert monitor.flush(30.0)
        checkpoint = pickle.dumps(monitor)
        for call in minibatches(1, range(4)):
            monitor.log(**call)
        assert monitor.flush(30.0)
    for restart in range(restarts):
        with pickle.loads(checkpoint) as copy:
            for call in minibatches(1, range(4), seed=20 + 10 * restart) + minibatches(2, range(4)):
                copy.log(**call)
            assert copy.flush(30.0)
        assert (copy.stats["sent"], copy.stats["errors"]) == (8, 0)
    assert (seen(url, run)["attempt"], seen(url, run)["last_step"]) == (restarts, 2)


def test_a_series_comes_as_columns_with_nan_where_a_step_lacks_it(url: str) -> None:
    arrays = batch()
    del arrays["sampling_logprobs"]
    logged(url, "columns", {"step": 0, **batch()}, {"step": 1, **arrays}, {"step": 2, **batch()})
    with Monitor(url, "columns") as monitor:
        series = monitor.series("gaps.mismatch.k1")
        assert monitor.series("gaps.mismatch.k1", first=1, last=1)["step"].tolist() == [1]
        assert monitor.series("gaps.mismatch.k1", run="again")["step"].tolist() == [0, 1, 2, 3]
    d = batch()["old_logprobs"].astype(np.float64) - batch()["sampling_logprobs"]
    assert series["step"].tolist() == [0, 1, 2] and series["minibatch"].tolist() == [0, 0, 0]
    assert series["value"].dtype == np.float64
    assert series["value"] == pytest.approx([-d.mean(), np.nan, -d.mean()], nan_ok=True, rel=1e-6)


def test_several_series_come_by_their_fields_with_words_as_they_are(url: str) -> None:
    logged(url, "several", *({"step": 0, "minibatch": index, **batch(seed=index)} for index in range(2)))
    fields = ["gaps.mismatch.k1", "verdict", "received_at"]
    with Monitor(url, "several") as monitor:
        found = monitor.series(fields)
        assert list(found) == fields
        alone = monitor.series("gaps.mismatch.k1")
        assert all((found["gaps.mismatch.k1"][name] == alone[name]).all() for name in ("step", "minibatch", "value"))
        assert set(found["verdict"]["value"]) <= {"accept", "warn", "skip", None}
        assert all(isinstance(time, str) for time in found["received_at"]["value"])
        assert list(monitor.series(["tokens"])) == ["tokens"]
        assert monitor.series(fields, by="step")["verdict"]["minibatch"].tolist() == [1]


def test_a_frame_of_several_has_a_row_per_gradient_step_that_any_has() -> None:
    answer = {
        "series": [
            {"field": "a", "step": [0, 1], "minibatch": [0, 3], "value": [1.0, None]},
            {"field": "b", "step": [1, 2], "minibatch": [3, 0], "value": ["warn", "skip"]},
        ]
    }
    frame = several(answer, pandas=True)
    assert list(frame.columns) == ["step", "minibatch", "a", "b"]
    assert (frame["step"].tolist(), frame["minibatch"].tolist()) == ([0, 1, 2], [0, 3, 0])
    assert frame["a"].tolist() == pytest.approx([1.0, np.nan, np.nan], nan_ok=True)
    assert frame["b"][1:].tolist() == ["warn", "skip"]


def test_a_frame_needs_pandas_and_says_so_where_it_is_missing(url: str) -> None:
    logged(url, "frame", {"step": 0, **batch()})
    with Monitor(url, "frame") as monitor:
        try:
            import pandas  # noqa: F401
        except ImportError:
            with pytest.raises(ConfigurationError, match="pip install pandas"):
                monitor.series("gaps.total.k1", pandas=True)
        else:
            assert list(monitor.series("gaps.total.k1", pandas=True).columns) == ["step", "minibatch", "value"]


def test_a_question_that_is_wrong_raises_what_the_service_says(url: str) -> None:
    with Monitor(url, "nobody") as monitor, pytest.raises(Refusal) as refused:
        monitor.series("gaps.mismatch.k1")
    assert refused.value.status == 404
    with Monitor(url, "r") as monitor, pytest.raises(Refusal, match="no_such_method") as refused:
        monitor.evaluate(methods=[{"name": "a", "method": "no_such_method"}], **batch())
    assert refused.value.status == 422 and refused.value.errors


GEOMETRIC = {"name": "geo", "method": "mask", "level": "token", "gap": "mismatch", "lower": 0.99, "upper": 1.01}
WEIGHTS = {"name": "tis", "method": "tis", "gap": "mismatch"}


def test_an_evaluation_gives_masks_in_the_shape_of_what_was_asked(url: str) -> None:
    arrays = batch()
    ratio = np.exp(arrays["old_logprobs"].astype(np.float64) - arrays["sampling_logprobs"])
    kept = (ratio >= 0.99) & (ratio <= 1.01)
    with Monitor(url, "r") as monitor:
        padded = monitor.evaluate(methods=[GEOMETRIC], detail="token", **arrays)
        jagged = monitor.evaluate(methods=[GEOMETRIC], detail="token", **per_token(rows))
        plain = monitor.evaluate(**arrays)
        assert "evaluate" not in {run["run"] for run in monitor.runs()}
    mask = padded["methods"][0]["keep_tokens"]
    assert mask.dtype == np.bool_ and (mask == kept).all()
    assert (padded["methods"][0]["keep_sequences"] == kept.any(1)).all()
    assert [row.tolist() for row in jagged["methods"][0]["keep_tokens"]] == [row.tolist() for row in rows(kept)]
    assert len(plain["methods"]) > 20 and plain["gaps"]["mismatch"]["tokens"] == 32


# Two log-probs and a mask per token, then one log-prob: the bytes of each body, header included.
SEQUENCES, LENGTH = 32, 256
TOKENS = SEQUENCES * LENGTH


@pytest.mark.parametrize("epochs", [1, 4])
def test_a_rollout_sent_once_saves_what_the_epochs_would_repeat(
    url: str, epochs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = batch(SEQUENCES, LENGTH)
    changing = [arrays["logprobs"] - np.float32(0.001) * epoch for epoch in range(epochs)]
    first = {name: array for name, array in arrays.items() if name != "logprobs"}
    where = [{"step": 0, "minibatch": epoch, "minibatches": epochs} for epoch in range(epochs)]
    whole = logged(
        url, f"whole-{epochs}", *({**at, **first, "logprobs": pi} for at, pi in zip(where, changing, strict=True))
    )
    halves = logged(
        url, f"halves-{epochs}", {"step": 0, "rollout": "r0", **first},
        *({**at, "rollout": "r0", "logprobs": pi} for at, pi in zip(where, changing, strict=True)),
    )  # fmt: skip
    headers = 1024  # at most, of a body
    assert 0 < whole["sent_bytes"] - epochs * (13 * TOKENS + 4 * SEQUENCES) < epochs * headers
    assert 0 < halves["sent_bytes"] - (9 + 4 * epochs) * TOKENS - 4 * SEQUENCES < (epochs + 1) * headers
    with Monitor(url, "r") as monitor:
        figures = [monitor.series("gaps.total.k3", run=f"{kind}-{epochs}")["value"] for kind in ("whole", "halves")]
    assert (figures[0] == figures[1]).all()
    with capsys.disabled():
        share = halves["sent_bytes"] / whole["sent_bytes"]
        print(f"\n{epochs} epochs of {TOKENS} tokens: {whole['sent_bytes']:,} bytes, as halves "
              f"{halves['sent_bytes']:,} ({share:.0%})")  # fmt: skip


def test_a_service_that_lost_the_first_half_is_sent_the_whole_shard(tmp_path: Any) -> None:
    arrays = batch(4, 16)
    pi = arrays.pop("logprobs")
    with running_service(tmp_path, OFFPOLICY_ROLLOUT_BYTES="0") as url:
        with Monitor(url, "lost", strict=True) as monitor:
            monitor.log(step=0, rollout="r0", labels={"a": "b"}, sequence_ids=list("wxyz"), **arrays)
            for minibatch in range(2):
                monitor.log(step=0, minibatch=minibatch, rollout="r0", logprobs=pi - np.float32(minibatch))
            assert monitor.flush()
            stats = dict(monitor.stats)
            assert (stats["sent"], stats["retries"], stats["errors"]) == (3, 2, 0)
            assert monitor.series("gaps.staleness.k1")["minibatch"].tolist() == [0, 1]
            figures = monitor.series("gaps.mismatch.tokens")["value"]
        assert figures.tolist() == [64.0, 64.0]
        with Monitor(url, "lost") as monitor:
            monitor.log(step=1, rollout="r1", logprobs=pi)
            monitor.flush()
            assert monitor.stats["errors_by"] == {"410": 1}
            assert re.match("410 .*send the whole shard", str(monitor.stats["last_error"]))
