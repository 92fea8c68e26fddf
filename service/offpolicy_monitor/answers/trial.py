"""One method tried on a run's recorded steps: which row is meant, its curve, and its curve at the threshold."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from offpolicy_monitor.client.read import Reader, path
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.vocabulary import STANDARD_METHOD

Answer = Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """`curve`: what-if at the histograms' own edges; `at`: the same at one threshold, None where no step has any."""

    bound: str
    curve: Answer
    at: Answer | None

    @property
    def answers(self) -> dict[str, Answer]:
        """As the API gave them."""
        return {"curve": self.curve} | ({} if self.at is None else {"at": self.at})

    @cached_property
    def shares(self) -> Answer:
        """The curve of the bound."""
        return _of_bound(self.curve, self.bound)

    @cached_property
    def tried(self) -> Answer:
        """The same at the one threshold. TypeError where there is none."""
        return _of_bound(self.at or {}, self.bound)

    @cached_property
    def presets(self) -> dict[float, list[str]]:
        """Names of the rows that run at each threshold of the bound."""
        found: dict[float, list[str]] = {}
        for one in self.curve["presets"]:
            if one["parameter"] == self.bound:
                found.setdefault(one["threshold"], []).append(one["name"])
        return found


def trial(service: Reader, about: Answer, name: str | None, options: argparse.Namespace) -> Trial:
    """Of the method or row `name` on the run that `about` tells of; None: its correction in use."""
    run: str = about["run"]
    row, query = _meant(about, name, {"gap": options.gap, "level": options.level})
    curve = _curve(service, run, query)
    bound = _bound(curve["parameters"], options.bound)
    threshold = _own_threshold(curve, bound, row) if options.threshold is None else options.threshold
    if threshold is None:
        return Trial(bound, curve, None)
    return Trial(bound, curve, _curve(service, run, {**query, "threshold": threshold, "row": row}))


def _bound(parameters: Sequence[str], asked: str | None) -> str:
    """The threshold that is tried: the last one where nobody asks; Refusal for one that a rule with several lacks."""
    if asked in parameters:
        return str(asked)
    if asked is not None and len(parameters) > 1:
        raise Refusal.of_field(
            422, "invalid-parameter", "bound", f"must be one of {', '.join(parameters)}; got {asked}"
        )
    return parameters[-1]


def _of_bound(answer: Answer, bound: str) -> Answer:
    """A curve; that of the only threshold stands in the answer itself."""
    found: Answer = answer if answer["parameter"] else answer[bound]
    return found


def _own_threshold(curve: Answer, bound: str, row: str | None) -> float | None:
    """That of the row, else of any row of the kind, else the middle of the curve; None where it is empty."""
    found = {one["name"]: one["threshold"] for one in curve["presets"] if one["parameter"] == bound}
    edges = _of_bound(curve, bound)["threshold"]
    middle = edges[len(edges) // 2] if edges else None
    own: float | None = found.get(row, next(iter(found.values()), middle))
    return own


def _meant(about: Answer, name: str | None, asked: Mapping[str, str | None]) -> tuple[str | None, dict[str, Any]]:
    """The row of that name, or of that method, and the query for its curve; a method without a row stands alone."""
    wanted = name or about["correction"] or STANDARD_METHOD
    given = {key: value for key, value in asked.items() if value is not None}
    queries = {row: kept["query"] for row, kept in about["whatif"].items()}
    like = [row for row, query in queries.items() if query["method"] == wanted and given.items() <= query.items()]
    row = wanted if wanted in queries else next(iter(like), None)
    if row is None and any(one["name"] == wanted for one in about["methods"]):
        message = f"what-if keeps no curve of {wanted}; it does of {', '.join(queries)}"
        raise Refusal.of_field(422, "not-kept", "method", message)
    return row, {**queries.get(row, {"method": wanted}), **given}


def _curve(service: Reader, run: str, query: dict[str, Any]) -> Answer:
    return service.get(path(run, "whatif"), query)
