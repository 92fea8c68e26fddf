"""Ranks the hypotheses on the evidence, best first, in the shape of the API's answer."""

from typing import Any, Final

from offpolicy_monitor.diagnosis.evidence import Evidence
from offpolicy_monitor.diagnosis.hypotheses import HYPOTHESES, Hypothesis

#: Below this score a hypothesis is not worth showing.
LEAST_SCORE: Final = 0.01


def diagnose(evidence: Evidence, bitwise: bool = False) -> list[dict[str, Any]]:
    """[{name, title, score, summary, evidence, try}], best first; empty where there is no mismatch to explain.

    Under the bitwise profile a mismatch of exactly 0 is what was asked for, and is nothing to explain.
    """
    if not evidence.get("gaps.mismatch.tokens"):
        return []
    if bitwise and evidence.get("gaps.mismatch.exact_fraction") == 1:
        return []
    rows = [_row(hypothesis, evidence) for hypothesis in HYPOTHESES]
    shown = [row for row in rows if row["score"] >= LEAST_SCORE]
    return sorted(shown, key=lambda row: -row["score"])


def _row(hypothesis: Hypothesis, evidence: Evidence) -> dict[str, Any]:
    return {
        "name": hypothesis.name,
        "title": hypothesis.title,
        "score": hypothesis.score(evidence),
        "summary": hypothesis.summary,
        # Answers name the mismatch alone, since all of a diagnosis is of it.
        "evidence": {path.removeprefix("gaps."): evidence[path] for path in hypothesis.paths if path in evidence},
        "try": list(hypothesis.tries),
    }
