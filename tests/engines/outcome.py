"""What became of one run: which alerts were told and when, and what the diagnosis named at which step.

Values that JSON holds, and what follows from them. It knows neither engines nor services.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Steps before the onset that a diagnosis looks at too: so many tell a jump from how a run begins.
BEFORE = 6


@dataclass(frozen=True)
class Told:
    """One alert: the training step whose judgement made it active, the one that speaks for it, if any, and whether
    people were told of it."""

    alert: str
    severity: str
    step: int
    inhibited_by: str | None
    told: bool


@dataclass(frozen=True)
class Named:
    """What the diagnosis of the steps up to `step` names first, with its score."""

    step: int
    name: str
    score: float


@dataclass(frozen=True)
class Outcome:
    """One run. `onset` is the first step with the fault, 0 where nothing is planted; k3 (nats) are the medians of the
    steps before it and from it on, None where there are none. `internal` is the share of the mismatch's second moment
    since the onset that the engine makes by itself, None where nothing was rescored."""

    engine: str
    planted: str
    arguments: Sequence[str]
    right: Sequence[str]
    wanted: bool
    onset: int
    steps: int
    seconds: float
    k3_before: float | None
    k3_after: float | None
    alerts: Sequence[Told]
    diagnoses: Sequence[Named]
    internal: float | None = None

    def first(self, severity: str | None = None) -> Told | None:
        """The first alert since the onset, of a severity or of any; of several at one step the one that speaks."""
        found = [told for told in self.alerts if told.step >= self.onset and severity in (None, told.severity)]
        return min(found, key=lambda told: (told.step, told.inhibited_by is not None), default=None)

    @property
    def messages(self) -> Sequence[str]:
        """Alerts since the onset that people were told of, and for which no other one speaks in the end."""
        spoken = [one for one in self.alerts if one.step >= self.onset and one.told and not one.inhibited_by]
        return list(dict.fromkeys(told.alert for told in sorted(spoken, key=lambda told: told.step)))

    @property
    def false(self) -> Sequence[Told]:
        """Alerts before the onset; all of them where nothing is planted."""
        return [told for told in self.alerts if told.step < self.onset or not self.onset]

    @property
    def since(self) -> int | None:
        """The step from which on to the end of the run what is named is right; None where it is not in the end."""
        found = None
        for named in reversed(self.diagnoses):
            if named.name not in self.right:
                break
            found = named.step
        return found

    @property
    def last(self) -> Named:
        """What is named in the end."""
        return self.diagnoses[-1]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Outcome":
        """From JSON."""
        alerts, diagnoses = (Told(**told) for told in row["alerts"]), (Named(**named) for named in row["diagnoses"])
        told: dict[str, Any] = {**row, "alerts": tuple(alerts), "diagnoses": tuple(diagnoses)}
        return cls(**told)


def told_of(answers: Iterable[Mapping[str, Any]]) -> list[Told]:
    """Alerts of /v1/alerts that became active, in order."""
    found = (
        Told(a["alert"], a["severity"], a["active_step"], a["inhibited_by"], a["told"]) for a in answers if _active(a)
    )
    return sorted(found, key=lambda told: (told.step, told.alert, told.severity))


def _active(answer: Mapping[str, Any]) -> bool:
    return answer["state"] != "pending" and answer["active_step"] is not None
