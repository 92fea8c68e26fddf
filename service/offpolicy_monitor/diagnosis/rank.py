"""Ranks the hypotheses on the evidence, best first, in the shape of the API's answer."""

from typing import Any, Final

from offpolicy_monitor.diagnosis.evidence import Evidence
from offpolicy_monitor.diagnosis.hypotheses import HYPOTHESES, Hypothesis
from offpolicy_monitor.diagnosis.over_steps import JUMP, JUMPED_AT, LEAST_JUMP
from offpolicy_monitor.vocabulary import BELIEVED

#: Below this score a hypothesis is not worth showing.
LEAST_SCORE: Final = 0.01


def diagnose(evidence: Evidence, bitwise: bool = False) -> list[dict[str, Any]]:
    """[{name, title, score, summary, evidence, try, since_step}], best first; empty where there is nothing to explain.

    Without a mismatch, only what one column shows by itself is looked for. Under the bitwise profile a mismatch of
    exactly 0 is what was asked for, and is nothing to explain. `since_step` is there where a hypothesis is believed and
    the mismatch jumped.
    """
    if bitwise and evidence.get("gaps.mismatch.exact_fraction") == 1:
        return []
    mismatch = evidence.get("gaps.mismatch.tokens")
    rows = [_row(hypothesis, evidence) for hypothesis in HYPOTHESES if mismatch or hypothesis.alone]
    shown = [row for row in rows if row["score"] >= LEAST_SCORE]
    return sorted(shown, key=lambda row: -row["score"])


def _row(hypothesis: Hypothesis, evidence: Evidence) -> dict[str, Any]:
    score, known = hypothesis.score(evidence), {**evidence, **evidence.names}
    jumped = score >= BELIEVED and hypothesis.name != "noise" and evidence.get(JUMP, 1.0) >= LEAST_JUMP
    return {
        "name": hypothesis.name,
        "title": hypothesis.title,
        "score": score,
        "summary": hypothesis.summary,
        # Answers name the mismatch alone, since all of a diagnosis is of it.
        "evidence": {path.removeprefix("gaps."): known[path] for path in hypothesis.paths if path in known},
        "try": list(hypothesis.tries),
        **({"since_step": int(evidence[JUMPED_AT])} if jumped else {}),
    }
