"""The figures that rules judge a training step by: of its last gradient step, or of the merge of all that count.

Engine and data are the same in every gradient step, so what tells of them is of all, and nothing that was in an early
one alone is missed; what updates move is of the last. Which figure is which is the judge's to say.
"""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, select

from offpolicy_monitor.figures import at_each, with_correction
from offpolicy_monitor.store.rows import derived
from offpolicy_monitor.store.rows.gradient_steps import GradientStep
from offpolicy_monitor.store.rows.held import HeldRun
from offpolicy_monitor.store.rows.merged_steps import Merged, merge_stored
from offpolicy_monitor.store.rows.narrow import covers
from offpolicy_monitor.store.rows.readable import readable
from offpolicy_monitor.store.rows.tables import COMPLETE, steps
from offpolicy_monitor.store.rows.training_step import TrainingStep
from offpolicy_monitor.store.rows.wanted import figures_for, needed
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
    last = _figures(connection, run, counting[-1], merges, paths)
    version = counting[-1].policy_version
    if version is not None and "policy_version" in paths:
        last["policy_version"] = version
    if len(counting) == 1:
        return last
    whole = _merged(connection, run, counting, merges, of_all)
    return {path: value for path, value in last.items() if path not in of_all} | whole


def are_headlines(step: TrainingStep, merges: Merges, paths: Collection[str]) -> bool:
    """Whether they are headline figures of its only gradient step, the first, of a merge that is kept with it now.

    One that is complete: a late shard changes the figures of one that was closed, before the step is judged again.
    """
    first = step.gradient_steps[0]
    return step.known == 1 and first.state == COMPLETE and first.id in merges and covers(tuple(paths))


def _figures(
    connection: Connection, run: HeldRun, step: GradientStep, merges: Merges, paths: Collection[str]
) -> dict[str, float]:
    if step.id in merges:
        return merges[step.id].at_each(paths, run.correction)
    rows = connection.execute(select(*derived.COLUMNS).where(steps.c.id == step.id)).all()
    [figures] = derived.of_rows(connection, rows)
    return at_each(with_correction(figures.shown(step.step), run.correction), paths)


def _merged(
    connection: Connection, run: HeldRun, gradient_steps: Sequence[GradientStep], merges: Merges, paths: Collection[str]
) -> dict[str, float]:
    """The same of the merge of all that can be read, in the order of their minibatches."""
    parts = [found for step in gradient_steps if (found := _summary(connection, run, step, merges)) is not None]
    if not parts:
        return {}
    whole = merge_all(parts)
    return at_each(with_correction(figures_for(needed(whole, paths), paths), run.correction), paths)


def _summary(connection: Connection, run: HeldRun, step: GradientStep, merges: Merges) -> StepSummary | None:
    """None where what is stored of it cannot be read."""
    if step.id in merges:
        return merges[step.id].merge
    blob = connection.execute(select(steps.c.summary).where(steps.c.id == step.id)).scalar_one()
    if blob is None:
        return merge_stored(connection, run.id, step.step, step.minibatch, step.attempt)
    return readable(stored.from_bytes, blob, step.step)
