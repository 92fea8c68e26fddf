"""Each answer as text, to the letter."""

from typing import Any

from offpolicy_monitor.answers.diagnosis import diagnosis
from offpolicy_monitor.answers.doctor import findings
from offpolicy_monitor.answers.lists import alerts, runs
from offpolicy_monitor.answers.run import run
from offpolicy_monitor.answers.style import Style
from offpolicy_monitor.answers.trial import Trial
from offpolicy_monitor.answers.whatif import whatif

NOW = 1_800_000_000.0
DRIFTING = {
    "verdict": "skip",
    "state": "drifting",
    "head": "Drifting since step 96: it looks like top-p renormalisation (score 0.97).",
    "why": "Mismatch k3 is 0.058 nats per token, 41× this run's own start.",
    "action": "Renormalise in the trainer.",
}
HEALTHY = {"verdict": "accept", "state": "healthy", "head": "Healthy at step 7.", "why": "", "action": ""}
R1 = {
    "run": "r1", "profile": "moe_bf16", "labels": {"engine": "vllm"}, "state": "live", "last_step": 120, "steps": 121,
    "steps_per_minute": 2.04, "last_batch_at": "2027-01-15T07:59:20.000Z", "correction": None,
    "spark": {"field": "gaps.mismatch.k3", "values": [1e-5, 1e-3, 0.058]}, "summary": DRIFTING,
    "methods": [{"name": "opsm", "method": "opsm"}],
}  # fmt: skip
R2 = {**R1, "run": "r2", "last_step": None, "steps_per_minute": None, "last_batch_at": None, "spark": None,
      "summary": HEALTHY}  # fmt: skip


def alert(name: str, severity: str, state: str, since: int, **more: Any) -> dict[str, Any]:
    row = {"alert": name, "severity": severity, "state": state, "run": "r1", "since_step": since, "last_step": 120}
    return {**row, "value": 0.058, "threshold": 0.01, "summary": "Engine and trainer disagree", **more}


def test_runs_are_counted_and_listed_as_they_came() -> None:
    assert runs({"runs": [R1, R2], "next_cursor": None}, Style(), NOW) == [
        "2 runs: 1 critical, 1 healthy",
        "",
        "            run  step     k3  mismatch k3  steps/min  last batch  why",
        "■ Drifting  r1    120  0.058  ▁▅█                  2    40 s ago  Since step 96: it looks like top-p"
        " renormalisation (score 0.97).",
        "✓ Healthy   r2      –      –                       –           –  At step 7.",
    ]


def test_a_narrow_terminal_keeps_the_spark_before_the_reason() -> None:
    assert runs({"runs": [R1], "next_cursor": None}, Style(48), NOW)[2:] == [
        "            run  step     k3  mismatch k3",
        "■ Drifting  r1    120  0.058  ▁▅█",
    ]


def test_a_page_that_is_not_the_last_says_so_and_none_says_none() -> None:
    assert runs({"runs": [R2], "next_cursor": "x"}, Style(), NOW)[0] == "the first 1 run: 1 healthy"
    assert runs({"runs": [], "next_cursor": None}, Style(), NOW) == ["No run yet."]


def test_alerts_come_open_ones_first_and_the_worst_of_them() -> None:
    found = [
        alert("Old", "critical", "resolved", 10, last_step=12, peak=0.5),
        alert("Soon", "warning", "pending", 119),
        alert("Warns", "warning", "active", 96),
        alert("Burns", "critical", "active", 97, peak=1.234),
    ]
    assert alerts(found, Style()) == [
        "alerts: 2 open, 1 pending, 1 over",
        "",
        "            alert  run  state    from   to   peak  threshold  what it says",
        "■ critical  Burns  r1   open       97  now    1.2       0.01  Engine and trainer disagree",
        "▲ warning   Warns  r1   open       96  now  0.058       0.01  Engine and trainer disagree",
        "▲ warning   Soon   r1   pending   119  now  0.058       0.01  Engine and trainer disagree",
        "■ critical  Old    r1   over       10   12    0.5       0.01  Engine and trainer disagree",
    ]
    assert alerts([], Style()) == ["No rule has fired."]


def test_alerts_for_which_another_one_speaks_stand_under_it() -> None:
    found = [
        alert("Worse", "critical", "active", 98, inhibited_by="Speaks"),
        alert("Alone", "critical", "active", 97, inhibited_by=None),
        alert("Speaks", "critical", "active", 96, inhibited_by=None),
        alert("Milder", "warning", "active", 96, inhibited_by="Speaks"),
        alert("Elsewhere", "warning", "active", 99, inhibited_by="Speaks", run="r2"),
        alert("Over", "warning", "resolved", 90, inhibited_by="Speaks"),
    ]
    names = [line.split("  ")[1].strip() for line in alerts(found, Style(48))[3:]]
    assert names == ["Alone", "Speaks", "└ Worse", "└ Milder", "Elsewhere", "Over"]


def test_a_run_begins_with_its_sentence_and_names_a_rule_once() -> None:
    series: list[dict[str, Any]] = [
        {"field": "gaps.mismatch.k3", "value": [1e-5, None, 0.058]},
        {"field": "attribution.mismatch", "value": [0.1, 0.5, 0.984]},
        {"field": "reward_mean", "value": [None, None, None]},
        {"field": "methods.opsm.masked_token_fraction", "value": [0.0, 0.01, 0.38]},
    ]
    found = [alert("Burns", "critical", "active", 97), alert("Burns", "warning", "active", 96)]
    assert run(R1, DRIFTING, series, [*found, alert("Old", "warning", "resolved", 3)], Style(72)) == [
        "■ Drifting since step 96: it looks like top-p renormalisation (score",
        "0.97).",
        "  Mismatch k3 is 0.058 nats per token, 41× this run's own start.",
        "  Do: Renormalise in the trainer.",
        "",
        "r1 · moe_bf16 · engine vllm · 121 steps · live",
        "",
        "figure                  now              over the steps",
        "mismatch k3           0.058  nats/token  ▁ █",
        "mismatch, of the gap    98%              ▁▅█",
        "masked by opsm          38%              ▁▁█",
        "",
        "alerts: 1 open",
        "",
        "            alert  state  from   to   peak  what it says",
        "■ critical  Burns  open     97  now  0.058  Engine and trainer disagree",
    ]


def test_a_run_without_steps_says_so() -> None:
    assert run(R2, HEALTHY, [], [], Style()) == [
        "✓ Healthy at step 7.",
        "",
        "r2 · moe_bf16 · engine vllm · 121 steps · live",
        "No step is complete yet.",
    ]


def test_hypotheses_come_with_evidence_and_those_that_are_believed_with_advice() -> None:
    believed = {"name": "top_p", "title": "top-p renormalisation", "score": 0.97, "summary": "It is cut.",
                "evidence": {"mismatch.k1": -0.0123, "share": "high"}, "try": ["Cut too."],
                "since_step": 96}  # fmt: skip
    other = {"name": "noise", "score": 0.03, "summary": "Rounding.", "evidence": {}, "try": ["Nothing."]}
    assert diagnosis({"hypotheses": [believed, other], "steps": [0, 120]}, Style()) == [
        "Causes of the mismatch, steps 0 to 120, best first:",
        "",
        "██████████ 0.97  top-p renormalisation, since step 96",
        "  It is cut.",
        "    mismatch.k1 −0.0123",
        "    share high",
        "  - Cut too.",
        "",
        "░░░░░░░░░░ 0.03  noise, below 0.5: not believed",
        "  Rounding.",
    ]


def test_findings_come_with_the_line_to_change_and_a_sign_of_how_bad_they_are() -> None:
    wrong = {"name": "same_tokens", "severity": "warning", "title": "Same tokens", "summary": "0 and 1.", "change": "n"}
    missing = wrong | {"severity": "info", "title": "No advantages"}
    assert findings({"findings": [wrong, missing], "steps": [0, 120]}, Style()) == [
        "How steps 0 to 120 are posted:",
        "",
        "▲ Same tokens",
        "  0 and 1.",
        "  Change: n",
        "",
        "○ No advantages",
        "  0 and 1.",
        "  Change: n",
    ]
    assert findings({"findings": [], "steps": [0, 3]}, Style()) == ["✓ Steps 0 to 3 are posted as they should be."]
    assert findings({"findings": [], "steps": []}, Style()) == ["No step has come yet."]


def test_a_diagnosis_of_nothing_says_why() -> None:
    assert diagnosis({"hypotheses": [], "steps": []}, Style()) == ["No step is complete yet."]
    assert diagnosis({"hypotheses": [], "steps": [0, 1]}, Style())[0].startswith("Nothing to explain")


def curve(thresholds: list[float], tokens: list[float | None]) -> dict[str, Any]:
    shares = {"masked_sequence_fraction": [None] * len(tokens), "masked_advantage_mass": tokens}
    return {
        "threshold": thresholds,
        "masked_token_fraction": tokens,
        **shares,
        "error": [0.002] * len(tokens),
        "config": [{"framework": "TRL", "lines": ["a=1", "b=2"], "differs": "above alone"}],
        "no_option": ["verl", "prime-rl", "slime"],
    }


def asked(**more: Any) -> dict[str, Any]:
    head = {"method": "mask", "gap": "mismatch", "level": "token", "parameter": None, "steps": [0, 9]}
    presets = [{"name": "icepop", "parameter": "upper", "threshold": 5.0}]
    return {**head, "steps_read": 10, "steps_in_range": 10, "presets": presets, **more}


def test_whatif_says_the_share_then_few_rows_then_the_settings() -> None:
    answer = asked(upper=curve([1.5, 2.0, 5.0], [0.5, 0.2, 0.001]))
    at = asked(upper=curve([3.0], [0.1]))
    assert whatif([Trial("upper", answer, at)], Style()) == [
        "mask at mismatch, token, upper 3 would act on 10% of the tokens (± 0.2%) of steps 0 to 9 (10 steps).",
        "",
        "   upper  tokens  sequences  advantage mass     ±  rows that run there",
        "     1.5     50%          –             50%  0.2%",
        "       2     20%          –             20%  0.2%",
        "›      3     10%          –             10%  0.2%",
        "       5    0.1%          –            0.1%  0.2%  icepop",
        "",
        "the setting",
        "  TRL       a=1",
        "            b=2",
        "            (above alone)",
        "  verl      has no option for it",
        "  prime-rl  has no option for it",
        "  slime     has no option for it",
    ]


def test_a_curve_of_many_edges_is_a_few_rows_and_those_of_presets() -> None:
    edges = [1.0 + index / 100 for index in range(200)] + [5.0, 6.0]
    tried = Trial("upper", asked(upper=curve(edges, [0.1] * 202)), asked(upper=curve([2.0], [0.1])))
    lines = whatif([tried], Style())
    shown = [line.split()[0] for line in lines[3 : lines.index("the setting") - 1]]
    assert shown == ["1", "1.28", "1.57", "1.86", "›", "2.14", "2.43", "2.72", "5", "6"]


def test_methods_side_by_side_are_a_row_each_and_one_without_figures_is_said() -> None:
    two = Trial("upper", asked(upper=curve([2.0], [0.2])), asked(upper=curve([2.0], [0.2])))
    one = {**asked(**curve([0.01], [0.5])), "method": "opsm", "parameter": "delta"}
    none = {**asked(**curve([], [])), "method": "ipo", "parameter": "threshold"}
    trials = [two, Trial("delta", one, one), Trial("threshold", none, None)]
    lines = whatif(trials, Style())
    assert lines[:3] == [
        "method  gap       level  threshold   tokens  sequences  advantage mass     ±",
        "mask    mismatch  token  upper 2        20%          –             20%  0.2%",
        "opsm    mismatch  token  delta 0.01     50%          –             50%  0.2%",
    ]
    assert lines[-1] == "No step of this run has what ipo looks at."


def test_what_is_said_of_a_setting_is_wrapped_and_the_setting_is_not() -> None:
    at = asked(upper=curve([3.0], [0.1]))
    at["upper"]["config"] = [{"framework": "TRL", "lines": ["x" * 70], "differs": "word " * 20}]
    lines = whatif([Trial("upper", at, at)], Style(width=60))
    assert [line for line in lines if len(line) > 60] == [f"  TRL       {'x' * 70}"]
