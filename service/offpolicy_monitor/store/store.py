"""Store: the one way to the database. Each method is one transaction; the clock is the only thing it is given.

Writers take turns inside a process, and on SQLite the process must be the only one that writes; readers never wait for
them. Every failure of the database leaves here as Unavailable.
"""

import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, cast

from sqlalchemy import Connection, select

from offpolicy_monitor.access import AccessToken
from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.store import migrate, trial
from offpolicy_monitor.store.lock import WriterLock
from offpolicy_monitor.store.rows import access as access_rows
from offpolicy_monitor.store.rows import alerts as alert_rows
from offpolicy_monitor.store.rows import exported, run_list, views
from offpolicy_monitor.store.rows import runs as run_rows
from offpolicy_monitor.store.rows import steps as step_rows
from offpolicy_monitor.store.rows.arrivals import read_arrivals
from offpolicy_monitor.store.rows.cursors import Page
from offpolicy_monitor.store.rows.exported import ExportedRun
from offpolicy_monitor.store.rows.gradient_steps import GradientStep
from offpolicy_monitor.store.rows.held import hold_run
from offpolicy_monitor.store.rows.lately import Lately, revision
from offpolicy_monitor.store.rows.memory import Memories
from offpolicy_monitor.store.rows.merged_steps import Failed
from offpolicy_monitor.store.rows.overviews import Overviews, Table
from offpolicy_monitor.store.rows.recent import MOST, Recent
from offpolicy_monitor.store.rows.records import Receipt, ShardRecord
from offpolicy_monitor.store.rows.series import Series
from offpolicy_monitor.store.rows.settled import Settled
from offpolicy_monitor.store.rows.summaries import Summaries, own_steps
from offpolicy_monitor.store.rows.views import RunView
from offpolicy_monitor.store.session import TRY_SECONDS, WRITE_SECONDS, Database, parse_url, sqlite_file
from offpolicy_monitor.store.upkeep import Upkeep
from offpolicy_monitor.store.write import delete, ingest, judge
from offpolicy_monitor.store.write.judge import Judge, Judging
from offpolicy_monitor.store.write.known import Known, NewRuns, known
from offpolicy_monitor.store.write.prepare import prepare
from offpolicy_monitor.summary.step import StepSummary

Clock = Callable[[], float]
#: Longest wait of a trial for other writes.
TURN_SECONDS = 0.2
#: Longest wait for the database of a look-up, for which a shard waits.
LOOK_UP_SECONDS = 3.0
#: Longest wait for the database of a scrape, which then goes without runs.
SCRAPE_SECONDS = 2.0
#: Answers made of what is stored of runs that are kept, of some ten to a hundred kilobytes.
ANSWERS = 32
#: Of these and of plots, those of one run that are read again when it has moved: what two pages ask.
ANSWERS_AGAIN, PLOTS_AGAIN = 8, 2
Answer = TypeVar("Answer")
#: An alert that has been over for longer than this is no news any more.
NEWS_SECONDS = 86_400.0


def _ignored(step: GradientStep, error: Exception) -> None:
    """Nobody wants to know."""


class Store:
    """Shards, steps and runs. Safe to share between threads.

    `upkeep` works on what is stored; it tells `failed` of every step that cannot be merged or kept.
    """

    def __init__(
        self,
        database: Database,
        lock: WriterLock | None,
        clock: Clock,
        judge: Judge | None = None,
        failed: Failed = _ignored,
        watched: Sequence[str] = (),
        new_runs: NewRuns | None = None,
        recent_bytes: int = MOST,
    ) -> None:
        self._new_runs = new_runs
        self._database = database
        self._lock = lock
        self._clock = clock
        self._judging = Judging.by(judge or Judge())
        self._failed = failed
        self._turn = threading.Lock()
        self._outcomes = trial.Outcomes()
        self._recent, self._memories, self._overviews = Recent(recent_bytes), Memories(), Overviews(watched)
        self._answers, settled = Lately[object](ANSWERS), Settled()
        self._summaries, self._series = Summaries(settled), Series(settled)
        self.upkeep = Upkeep(database.reading, self._writing, self._judging, self._recent, clock, failed)

    @classmethod
    def open(
        cls,
        database_url: str,
        clock: Clock = time.time,
        judge: Judge | None = None,
        failed: Failed = _ignored,
        watched: Sequence[str] = (),
        new_runs: NewRuns | None = None,
        recent_bytes: int = MOST,
    ) -> "Store":
        """The store at a URL, for writing; connects to nothing yet and does not touch the schema.

        `judge` are the rules that runs are judged by, none if it is not given; `watched` are the headline figures that
        views of runs have; `new_runs` bounds how many begin, and `recent_bytes` what is kept of incomplete steps.

        Raises ConfigurationError for a URL that cannot be used and for a SQLite file that another process writes.
        """
        url = parse_url(database_url)
        path = sqlite_file(url)
        lock = WriterLock(path) if path is not None else None
        return cls(Database(url), lock, clock, judge, failed, watched, new_runs, recent_bytes)

    def close(self) -> None:
        """Close every connection, and let another process write."""
        self._database.close()
        if self._lock is not None:
            self._lock.release()

    def ingest(self, records: Sequence[ShardRecord]) -> list[Receipt | Refusal]:
        """Store a group of shards in one durable transaction; a refused one comes back as its Refusal, in place.

        A step that is too large to be merged in that transaction is named by its receipt: see `upkeep.merge`.
        """
        prepared = [prepare(record) if record.blob is None else record.blob for record in records]
        with self._writing() as connection:
            answers = ingest.ingest(
                connection, records, prepared, self._judging, self._recent, self._memories, self._clock(), self._failed
            )
        if any(isinstance(answer, Receipt) and not answer.duplicate for answer in answers):
            self._outcomes.succeeded()
        return answers

    def runs(
        self, limit: int = 100, cursor: str | None = None, order: run_list.Order = "newest", pattern: str | None = None
    ) -> Page:
        """Runs, newest or worst first; with a pattern those in whose name or labels the expression is found."""
        found, following = self.view_runs(limit, cursor, order, pattern)
        return Page([view.shown for view in found], following)

    def run(self, name: str) -> dict[str, Any]:
        """One run."""
        return self.view_run(name).shown

    def view_runs(
        self,
        limit: int = 100,
        cursor: str | None = None,
        order: run_list.Order = "newest",
        pattern: str | None = None,
        seen: str | None = None,
    ) -> tuple[list[RunView], str | None]:
        """The same with what a sentence about each is said of, and the next cursor; `seen`: of these runs alone."""
        now = self._clock()
        with self._database.reading() as connection:
            ids, following = run_list.page_of_ids(connection, limit, cursor, order, pattern, now, seen)
            return views.view_runs(connection, self._overviews, ids, now), following

    def views_of(self, names: Collection[str]) -> dict[str, RunView]:
        """By name, those of these runs that there are, as in a list."""
        if not names:
            return {}
        with self._database.reading() as connection:
            found = run_list.ids_of(connection, names)
            seen = views.view_runs(connection, self._overviews, found, self._clock())
            return {view.shown["run"]: view for view in seen}

    def view_run(self, name: str) -> RunView:
        """One run, with what a sentence about it is said of."""
        with self._database.reading() as connection:
            return views.view_run(connection, self._overviews, name, self._clock())

    def window(self, run: int, first: int, last: int) -> Table:
        """The watched figures of the steps from `first` to `last` of the run that has this id."""
        with self._database.reading() as connection:
            return self._overviews.window(connection, run, first, last)

    def methods(self, run: str) -> list[dict[str, Any]] | None:
        """The method rows chosen for a run; None where the default ones run, as on a run that is not there yet."""
        with self._database.reading() as connection:
            return run_rows.read_methods(connection, run)

    def known(self, run: str, claim: ShardRecord | None = None) -> Known:
        """In one read: the method rows chosen for a run, and what is stored already of the shard that `claim` is of.

        Only the claim's key, digest and number of shards are looked at. What comes back may be out of date at once:
        `ingest` decides. Unavailable (429) for a run that is not there, where too many have begun.
        """
        with self._database.reading(LOOK_UP_SECONDS) as connection:
            return known(connection, run, claim, self._new_runs, self._clock())

    def update_run(
        self,
        name: str,
        *,
        profile: str | None = None,
        labels: dict[str, str] | None = None,
        methods: Sequence[Mapping[str, Any]] | Literal["unchanged"] | None = "unchanged",
        finished: bool | None = None,
        correction: str | Literal["unchanged"] | None = "unchanged",
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        length_cap: int | Literal["unchanged"] | None = "unchanged",
    ) -> dict[str, Any]:
        """Change what is given, judge the run anew, and answer it; a finished run is live again with its next batch.

        `methods` None lets the default rows run again, `correction` and `length_cap` None say that they are not
        known.
        """
        values: dict[str, Any] = {"profile": profile, "labels": labels}
        values = {name: value for name, value in values.items() if value is not None}
        if methods != "unchanged":
            values["methods"] = None if methods is None else list(methods)
        if correction != "unchanged":
            values["correction"] = correction
        if length_cap != "unchanged":
            values["length_cap"] = length_cap
        if overrides is not None:
            values["overrides"] = {rule: dict(override) for rule, override in overrides.items()}
        if finished is not None:
            values["finished_at"] = self._clock() if finished else None
        with self._writing() as connection:
            run_rows.update_run(connection, name, values)
            self._judging.changed(connection, hold_run(connection, name), self._clock())
            return views.view_run(connection, self._overviews, name, self._clock()).shown

    def delete_run(self, name: str) -> None:
        """Remove a run with all of its history: it is gone at once, and its rows with the next `upkeep.purge`."""
        with self._writing() as connection:
            delete.mark_deleted(connection, name)

    def steps(
        self,
        run: str,
        first: int | None = None,
        last: int | None = None,
        limit: int = 100,
        cursor: str | None = None,
        by: str = "step",
        detail: str = "full",
    ) -> Page:
        """Merged rows, ascending: one per step (its last gradient step), or per gradient step with by="minibatch".

        With detail="headline" those that count, and of their figures those that are kept narrow.
        """
        with self._database.reading() as connection:
            return step_rows.list_steps(connection, run, first, last, limit, cursor, by, detail)

    def step(self, run: str, step: int, minibatch: int | None = None) -> dict[str, Any]:
        """One merged gradient step, also while it is incomplete."""
        with self._database.reading() as connection:
            return step_rows.read_step(connection, run, step, minibatch)

    def arrivals(self, run: str, most: int) -> Sequence[Any]:
        """(step, minibatch, shards, received, policy_version) of the newest `most` gradient steps, ascending."""
        with self._database.reading() as connection:
            return read_arrivals(connection, run, most)

    def summaries(
        self, run: str, first: int | None = None, last: int | None = None, most: int = 50
    ) -> list[tuple[int, int, StepSummary]]:
        """(step, minibatch, summary) of the newest `most` steps in the range that count, ascending."""
        with self._database.reading() as connection:
            return self._summaries.newest(connection, run, first, last, most)

    def whole_summaries(
        self, run: str, first: int | None = None, last: int | None = None, most: int = 50
    ) -> list[tuple[int, StepSummary]]:
        """(step, summary) of the newest `most` steps in the range that count, ascending, all gradient steps merged."""
        with self._database.reading() as connection:
            return self._summaries.whole(connection, run, first, last, most)

    def spread_summaries(
        self, run: str, first: int | None = None, last: int | None = None, most: int = 200
    ) -> tuple[list[tuple[int, int, StepSummary]], int]:
        """As `summaries`, but `most` steps spread evenly over the range; and how many count in it."""
        with self._database.reading() as connection:
            return self._summaries.spread(connection, run, first, last, most)

    def count_steps(self, run: str, first: int | None = None, last: int | None = None) -> int:
        """How many steps count in the range."""
        with self._database.reading() as connection:
            return self._summaries.count(connection, run, first, last)

    def answered(self, run: str, asked: Hashable, work: Callable[[], Answer]) -> Answer:
        """What `work` makes of what is stored of a run, of nothing else and not of the time; made once while the run
        stands still, and nobody may change it. Refusal 404 where there is none."""
        with self._database.reading() as connection:
            of_run = run_rows.run_id(connection, run)
            under = revision(connection, of_run)
        return cast(Answer, self._answers.of(of_run, under, asked, work, lambda _: work()))

    def moved(self, since: float) -> list[str]:
        """The runs about which something was asked since then, by the monotonic clock, and which have moved since."""
        known = [*self._answers.asked_since(since).items(), *self._series.asked_since(since).items()]
        if not known:
            return []
        with self._database.reading(TRY_SECONDS) as connection:
            now = run_rows.revisions(connection, {run for run, _ in known})
        return list({now[run][0]: None for run, under in known if run in now and under != {now[run][1]}})

    def unasked(self) -> None:
        """Nobody looks at what was asked until now."""
        self._series.unasked()
        self._answers.unasked()

    def read_again(self, run: str, since: float) -> None:
        """Read what was asked about a run since then, where it has moved, so that it is at hand: plots first."""
        with self._database.reading() as connection:
            of_run = run_rows.run_id(connection, run)
            self._series.again(connection, of_run, since, PLOTS_AGAIN)
            self._answers.again(connection, of_run, since, ANSWERS_AGAIN)

    def own_summaries(self, run: str, first: int | None, last: int | None, most: int) -> list[tuple[int, int]]:
        """(step, minibatch) of `most` steps in the range that share their summary with no others, spread evenly."""
        with self._database.reading() as connection:
            return own_steps(connection, run, first, last, most)

    def summary(self, run: str, step: int | None = None, minibatch: int | None = None) -> tuple[int, int, StepSummary]:
        """(step, minibatch, summary) of one gradient step, the latest one, or the last of `step`, if not named."""
        with self._database.reading() as connection:
            return self._summaries.one(connection, run, step, minibatch)

    def states(self, run: str) -> tuple[int | None, list[dict[str, Any]]]:
        """The newest step that a run was judged at, and what each rule said; (None, []) before the first."""
        with self._database.reading() as connection:
            return judge.read_states(connection, run)

    def alerts(
        self,
        run: str | None = None,
        states: Sequence[str] = ("pending", "active", "resolved"),
        limit: int = 100,
        cursor: str | None = None,
        seen: str | None = None,
    ) -> Page:
        """Alerts of one run or of all, in these states, the newest first; `seen`: of these runs alone."""
        with self._database.reading() as connection:
            return alert_rows.list_alerts(connection, run, states, limit, cursor, seen)

    def untold(self, limit: int) -> list[dict[str, Any]]:
        """Alerts whose state has not been told, the oldest first."""
        with self._database.reading() as connection:
            return alert_rows.untold(connection, limit, self._clock() - NEWS_SECONDS)

    def mark_told(self, alert_id: int, state: str) -> None:
        """Remember that this state of an alert has been told."""
        with self._writing() as connection:
            alert_rows.mark_told(connection, alert_id, state)

    def firing(self, resolved_since: float) -> list[dict[str, Any]]:
        """Alerts that are active, and those resolved since then (unix seconds)."""
        with self._database.reading() as connection:
            return alert_rows.firing(connection, resolved_since)

    def series(self, run: str, field: str, *asked: Any, **named: Any) -> dict[str, Any]:
        """One figure, as `all_series` has several."""
        return self.all_series(run, [field], *asked, **named)[0]

    def all_series(
        self,
        run: str,
        fields: Sequence[str],
        first: int | None = None,
        last: int | None = None,
        points: int = 1000,
        by: str = "minibatch",
    ) -> list[dict[str, Any]]:
        """Figures over gradient steps, or over the last one of each step, as columns, down-sampled to `points`.

        In the order asked, from one snapshot, and on one x where they are kept narrow.
        """
        with self._database.reading() as connection:
            found = self._series.read(connection, run, fields, first, last, points, by)
        columns = {name: of for names, of in found for name in names}
        x = {name: {"step": of.step.tolist(), "minibatch": of.minibatch.tolist()} for name, of in columns.items()}
        return [{"field": name, **x[name], "value": columns[name].values(name)} for name in fields]

    def tables(
        self, run: str, fields: Sequence[str], first: int | None, last: int | None, points: int, by: str
    ) -> list[dict[str, Any]]:
        """The same as tables of fields that share their x, as arrays or lists."""
        with self._database.reading() as connection:
            return [of.table() for _, of in self._series.read(connection, run, fields, first, last, points, by)]

    def exported(self, limit: int, active_since: float) -> list[ExportedRun]:
        """What /metrics shows: the most recently active runs, each with its latest step that counts."""
        with self._database.reading(SCRAPE_SECONDS) as connection:
            return exported.read_exported(connection, limit, active_since, self._clock())

    def access_tokens(self) -> list[AccessToken]:
        """Every access token, also those that are over, the oldest first."""
        with self._database.reading(TRY_SECONDS) as connection:
            return access_rows.read_all(connection)

    def note_use(self, used: Mapping[str, float]) -> None:
        """Remember when access tokens were used last, unix seconds by id."""
        with self._writing() as connection:
            access_rows.note_use(connection, used)

    def ping(self) -> None:
        """Raises Unavailable where the database does not answer soon."""
        with self._database.reading(TRY_SECONDS) as connection:
            connection.execute(select(1))

    def try_writing(self) -> None:
        """Raises Unavailable where no shard could be stored now: a trial says so, or the last real write.

        On SQLite the trial takes its turn. While another thread writes for long, only whether the database answers is
        tried: what comes of that write is soon known.
        """
        if self._outcomes.prove():
            return
        if self._lock is None:
            self._try()
        elif self._turn.acquire(timeout=TURN_SECONDS):
            try:
                self._try()
            finally:
                self._turn.release()
        else:
            self.ping()
        self._outcomes.check()

    def _try(self) -> None:
        with self._database.trying() as connection:
            trial.write(connection)

    def schema_is_current(self) -> bool:
        """Whether the database is at the newest revision; raises Unavailable where it does not answer soon."""
        with self._database.reading(TRY_SECONDS) as connection:
            return migrate.revision_of(connection) == migrate.head()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if not self._turn.acquire(timeout=WRITE_SECONDS):
            raise Unavailable(503, "store-busy", f"another write has gone on for more than {WRITE_SECONDS:g} s")
        committed = False
        try:
            with self._database.writing() as connection:
                yield connection
            committed = True
        except Unavailable as error:
            self._outcomes.failed(error)
            raise
        finally:
            self._memories.end(committed)
            self._turn.release()
