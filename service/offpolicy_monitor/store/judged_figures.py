"""The figures that rules judge a training step by: of its last gradient step, or of the merge of all that count.

Engine and data are the same in every gradient step, so what tells of them is of all, and nothing that was in an early
one alone is missed; what updates move is of the last. Which figure is which is the judge's to say.
"""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, select

from offpolicy_monitor.store.codec import unpack
from offpolicy_monitor.store.fields import headline
from offpolicy_monitor.store.ledger import GradientStep
from offpolicy_monitor.store.locking import HeldRun
from offpolicy_monitor.store.merging import Merged, merge_stored
from offpolicy_monitor.store.tables import steps
from offpolicy_monitor.store.training import TrainingStep
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary, merge_all

#: Merges that this transaction has made, by the ids of their rows.
Merges = Mapping[int | None, Merged]


def judged_figures(
    connection: Connection,
    run: HeldRun,
    step: TrainingStep,
    merges: Merges,
    paths: Collection[str],
    of_all: Collection[str],
) -> dict[str, float]:
    """The figures at `paths` that the training step has; `of_all` are those of the merge of its gradient steps.

    What `merges` lacks is read. `policy_version` is that of the last gradient step.
    """
    counting = step.counting
    last = _headline(connection, run, counting[-1], merges)
    if counting[-1].policy_version is not None:
        last["policy_version"] = counting[-1].policy_version
    whole = last if len(counting) == 1 else _merged(connection, run, counting, merges, of_all)
    chosen = {path: (whole if path in of_all else last).get(path) for path in paths}
    return {path: value for path, value in chosen.items() if value is not None}


def _headline(connection: Connection, run: HeldRun, step: GradientStep, merges: Merges) -> dict[str, float]:
    if step.id in merges:
        return headline(merges[step.id].figures, run.correction)
    figures = connection.execute(select(steps.c.figures).where(steps.c.id == step.id)).scalar_one()
    return headline(unpack(figures), run.correction)


def _merged(
    connection: Connection, run: HeldRun, gradient_steps: Sequence[GradientStep], merges: Merges, paths: Collection[str]
) -> dict[str, float]:
    """The headline figures at `paths` of the merge of all, in the order of their minibatches."""
    summaries = [needed(_summary(connection, run, step, merges), paths) for step in gradient_steps]
    return headline(merge_all(summaries).step_figures(), run.correction)


def needed(summary: StepSummary, paths: Collection[str]) -> StepSummary:
    """What the figures at `paths` are read off: merging other gaps and methods too takes twice the time."""

    def wanted(*beginnings: str) -> bool:
        return any(path.startswith(beginnings) for path in paths)

    return StepSummary(
        summary.batch,
        {name: gap for name, gap in summary.gaps.items() if wanted(f"gaps.{name}.")},
        summary.methods if wanted("methods.", "correction.") else {},
        summary.cross if wanted("attribution.") else {},
        summary.tables,
    )


def _summary(connection: Connection, run: HeldRun, step: GradientStep, merges: Merges) -> StepSummary:
    if step.id in merges:
        return merges[step.id].merge
    blob = connection.execute(select(steps.c.summary).where(steps.c.id == step.id)).scalar_one()
    if blob is None:
        return merge_stored(connection, run.id, step.step, step.minibatch, step.attempt)
    return stored.from_bytes(blob)
