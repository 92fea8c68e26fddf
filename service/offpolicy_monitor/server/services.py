"""Services: the long-lived parts behind the routes, opened and closed together.

The one place that knows how store, device, pipeline and registry are wired. Tests pass their own parts in.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import structlog
from fastapi import Request
from prometheus_client import CollectorRegistry

from offpolicy_monitor import verdict
from offpolicy_monitor.addresses import is_loopback
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.formats import OPENMETRICS, TEXT, Format
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.pipeline.admission import ByteBudget
from offpolicy_monitor.pipeline.merger import Merger
from offpolicy_monitor.pipeline.readers import Readers
from offpolicy_monitor.pipeline.stages import Pipeline
from offpolicy_monitor.pipeline.values import Measurer, has_pass
from offpolicy_monitor.pipeline.writer import Writer
from offpolicy_monitor.server.access.keys import NOTE_SECONDS, REFRESH_SECONDS, Keys
from offpolicy_monitor.server.background import (
    COLUMNS,
    FRESH,
    GIVE_BACK,
    HELP,
    LEARN,
    NOTE,
    PUBLISH,
    PURGE,
    REHEARSE,
    SWEEP,
    TIDY,
    WATCH,
    keep,
    once,
    warm_up,
)
from offpolicy_monitor.server.event_sources import TellingStore, TellingUpkeep
from offpolicy_monitor.server.events import Events
from offpolicy_monitor.server.exported import Exported
from offpolicy_monitor.server.fresh import EVERY, Fresh, rested
from offpolicy_monitor.server.http.documents import Document
from offpolicy_monitor.server.http.shared import Shared
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.server.large_pages import LargePages
from offpolicy_monitor.server.memory import Idle
from offpolicy_monitor.server.notifications import notifier
from offpolicy_monitor.server.probe import StoreProbe
from offpolicy_monitor.server.readiness import Readiness, waited_for
from offpolicy_monitor.server.scrapes import scrapes_of
from offpolicy_monitor.server.verdicts import Verdicts
from offpolicy_monitor.server.workers.halves import halves_of_all
from offpolicy_monitor.server.workers.membership import ALONE, Membership
from offpolicy_monitor.server.workers.published import EVERY as PUBLISH_SECONDS
from offpolicy_monitor.server.workers.siblings import LOST, Siblings
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import MOST_RUNS, GradientStep, Leader, NewRuns, Store, Turn, leader_of, room

log = structlog.get_logger("offpolicy_monitor.server")
SWEEPS_PER_TIMEOUT = 10
#: Threads for what runs beside the requests: one each for sweep, watch, purge, tidy, columns, for reading tokens and
#: noting their use, for answers that are made again, and for the start of processes.
BESIDE = 9
#: Threads for the routes that ask the store, and how long such a request waits for one, seconds. They compute with what
#: they read, in Python: with sixteen at it shards waited for up to 18 s for the interpreter, and no more was read.
READERS = 4
READ_WITHIN = 5.0
#: Runs that are read before the service is ready, and how often it is tried: as many as a list is kept of.
LISTED, LIST_READS = MOST_RUNS, 2
#: How often runs are judged by the wall clock.
WATCH_SECONDS = 15.0
#: How often rows of deleted runs are looked for.
PURGE_SECONDS = 2.0
#: How often steps are looked for that have grown old.
TIDY_SECONDS = 60.0
#: How often steps are looked for whose figures are to be in columns, and are not.
COLUMNS_SECONDS = 10.0
#: How often it is looked whether there are as many processes that measure as are wanted.
HELP_SECONDS = 1.0
#: How often memory that a peak has left is given back.
GIVE_BACK_SECONDS = 10.0
CANNOT_MEASURE = "the device cannot measure ({}): the log has the traceback; OFFPOLICY_DEVICE=cpu does without it"
#: How long the end waits for a notification that is under way, and for what is written of access tokens.
LAST_WORDS_SECONDS = 3.0
LAST_NOTE_SECONDS = 2.0


@dataclass
class Services:
    """What a request can reach."""

    settings: Settings
    store: Store
    pipeline: Pipeline
    metrics: ProcessMetrics
    scrapes: Shared[Format, Document]
    probe: StoreProbe
    readiness: Readiness
    answers: ByteBudget
    events: Events
    verdicts: Verdicts
    keys: Keys
    leader: Leader
    siblings: Siblings
    readers: Readers = field(default_factory=lambda: Readers("read", READERS, READ_WITHIN))


def of(request: Request) -> Services:
    """The services of the application that serves this request."""
    services: Services = request.app.state.services
    return services


@asynccontextmanager
async def opened(
    settings: Settings,
    metrics: ProcessMetrics,
    registry: CollectorRegistry,
    make_measurer: Callable[[Settings], Measurer],
    keys: Keys,
    rehearse: Callable[["Services"], int],
    membership: Membership = ALONE,
) -> AsyncIterator[Services]:
    """Everything that runs while the application runs; what was begun is finished before it closes.

    `rehearse` answers once what is asked later, before the service is ready, and how many answers these were.
    """

    def failed(step: GradientStep, error: Exception) -> None:
        metrics.step_failed()
        which = {"run": step.run, "step": step.step, "minibatch": step.minibatch, "attempt": step.attempt}
        log.error("a step cannot be merged and is set aside", **which, exc_info=error)

    new_runs = NewRuns(settings.new_runs_per_hour, settings.variable("new_runs_per_hour"))
    named: Any = {"judge": RulesJudge(), "failed": failed, "watched": verdict.PATHS, "new_runs": new_runs}
    named["recent_bytes"] = settings.recent_bytes
    began = time.monotonic()
    store = await asyncio.to_thread(Store.open, settings.database_url, **named)
    measurer: Measurer | None = None
    try:
        with waited_for("torch, and the device by it"):
            measurer = made = await asyncio.to_thread(make_measurer, settings)
        metrics.describe(version("torch"), measurer.device_name)
        metrics.watch_compilation(lambda: made.compilation_failed)
        counters = RunCounters(settings.max_exported_runs)
        leader = leader_of(settings.database_url)
        verdicts = Verdicts(store)
        teller = notifier(settings, store, verdicts, metrics, leader)
        metrics.watch_leading(leader.leads)

        def committed(seconds: float) -> None:
            metrics.transaction(seconds)
            teller.wake()

        siblings = membership.siblings
        events = Events(settings.max_listeners, siblings)
        writer = Writer(TellingStore(store, events), committed, patience=settings.store_timeout)
        pipeline = Pipeline(
            settings, writer, Merger(TellingUpkeep(store, events), writer), measurer, metrics, counters, store.known
        )
        metrics.watch_inflight(lambda: pipeline.budget.used)
        metrics.watch_stages(pipeline.oldest_jobs)
        metrics.watch_room(room(settings.database_url))
        exported = Exported(store, settings, membership.led_here(leader.leads))
        scrapes = scrapes_of(membership, exported, registry, counters, settings)
        answers = ByteBudget(settings.answer_bytes, settings.admission_timeout, settings.variable("answer_bytes"))
        probe, setting = StoreProbe(store), settings.variable("max_job_age")
        readiness = Readiness(probe.finding, pipeline.oldest_jobs, settings.max_job_age, setting)
        services = Services(
            settings, store, pipeline, metrics, scrapes.documents, probe, readiness, answers, events, verdicts, keys,
            leader, siblings,
        )  # fmt: skip
        _hear(services)
        if membership.place is not None:
            halves_of_all(pipeline.shards, siblings, membership.place.folder)
        threads = ThreadPoolExecutor(BESIDE, thread_name_prefix="beside")
        with suppress(Unavailable):
            keys.learn(await asyncio.to_thread(store.access_tokens))
        public = not is_loopback(urlsplit(settings.public_url).hostname or "")
        if advice := keys.advice(public):
            log.warning(advice, public_url=settings.public_url, auth=settings.auth)
        jobs = (*_beside(services, leader, threads, began, rehearse), *_looking_after(keys, services, threads))
        beside = [asyncio.create_task(job) for job in jobs]
        if scrapes.published is not None:
            beside.append(asyncio.create_task(keep(PUBLISH, scrapes.publish, PUBLISH_SECONDS)))
        await asyncio.to_thread(leader.start, teller.wake)
        teller.start()
        try:
            yield services
        finally:
            events.close()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await once(NOTE, partial(_note_last, keys, store, threads))
            threads.shutdown(wait=False, cancel_futures=True)
            for part in (services.readers, services.probe, exported):
                part.close()
            await asyncio.to_thread(pipeline.close)
            await scrapes.publish()
            await asyncio.to_thread(teller.close, LAST_WORDS_SECONDS)
            await asyncio.to_thread(leader.close)
    finally:
        if measurer is not None:
            await asyncio.to_thread(measurer.close)
        await asyncio.to_thread(store.close)


def _beside(
    services: Services, leader: Leader, threads: Executor, began: float, rehearse: Callable[[Services], int]
) -> Iterator[Coroutine[Any, Any, None]]:
    """What runs beside the requests; what changes the store does so only where this process leads."""
    upkeep, pipeline, settings = services.store.upkeep, services.pipeline, services.settings
    loop, turn = asyncio.get_running_loop(), turn_of(pipeline.writer)

    def is_warm(error: Exception | None) -> None:
        services.readiness.device = None if error is None else CANNOT_MEASURE.format(type(error).__name__)

    def led(work: Callable[[], int], told: bool = False) -> Callable[[], Awaitable[int]]:
        async def one_round() -> int:
            changed = await loop.run_in_executor(threads, work) if leader.leads() else 0
            if told and changed:
                services.events.changed(None)
            return changed

        return one_round

    def tidy() -> int:
        changed = upkeep.tidy(settings.settle_after, settings.block_steps, turn)
        return changed + upkeep.thin(settings.thin_after, turn) + upkeep.give_back(turn)

    sweep = led(lambda: upkeep.sweep(time.time(), settings.step_timeout, turn), told=True)
    yield warm_up(lambda: _first_work(services, rehearse), is_warm)
    yield services.readiness.tell(began, lambda: pipeline.measurer.form)
    yield keep(SWEEP, sweep, settings.step_timeout / SWEEPS_PER_TIMEOUT)
    yield keep(WATCH, led(lambda: upkeep.watch(settings.run_expiry, turn), told=True), WATCH_SECONDS)
    yield keep(PURGE, led(lambda: upkeep.purge(turn)), PURGE_SECONDS)
    yield keep(TIDY, led(tidy), TIDY_SECONDS)
    yield keep(COLUMNS, led(lambda: upkeep.put_into_columns(turn=turn)), COLUMNS_SECONDS)
    helpers = pipeline.shards.helpers

    async def help() -> int:
        return await loop.run_in_executor(threads, helpers.keep_up) if has_pass(pipeline.measurer) else 0

    yield keep(HELP, help, HELP_SECONDS)
    fresh = Fresh(services.store, services.verdicts.read)
    yield keep(FRESH, lambda: rested(lambda: loop.run_in_executor(threads, fresh.make)), EVERY)
    idle, large = Idle(), LargePages()

    def look_after_memory() -> int:
        given = idle.give_back()
        if has_pass(pipeline.measurer):  # much of what a start loads comes with it
            large.keep_up()
        return given

    yield keep(GIVE_BACK, partial(asyncio.to_thread, look_after_memory), GIVE_BACK_SECONDS)


async def _first_work(services: Services, rehearse: Callable[[Services], int]) -> None:
    """What takes longest the first time, so that nobody waits for it: measuring, the list of runs, a scrape, a page.

    Raises what measuring does. One that cannot read all that is stored takes new shards all the same.
    """

    async def scrape() -> int:
        return len([await services.scrapes.get(format) for format in (OPENMETRICS, TEXT)])

    read_list = once(REHEARSE, partial(asyncio.to_thread, _read_list, services.store))
    await asyncio.gather(services.pipeline.warm_up(), read_list)
    for read in (scrape, partial(asyncio.to_thread, rehearse, services)):
        await once(REHEARSE, read)


def _read_list(store: Store) -> int:
    """Read what a list of runs shows: how many these are. Where the database does not answer in time, what was read of
    it is kept."""
    for _ in range(LIST_READS):
        with suppress(Unavailable):
            return len(store.view_runs(LISTED, order="worst")[0])
    return 0


def _looking_after(keys: Keys, services: Services, threads: Executor) -> Iterator[Coroutine[Any, Any, None]]:
    """What keeps the tokens up to date: those that this process knows, and when each was used last."""
    loop, store, turn = asyncio.get_running_loop(), services.store, turn_of(services.pipeline.writer)

    async def learn() -> int:
        with suppress(Unavailable):  # the readiness of the store is told elsewhere
            keys.learn(await loop.run_in_executor(threads, store.access_tokens))
        services.events.dismiss()
        return 0

    def noted(used: Mapping[str, float]) -> int:
        store.note_use(used)
        return len(used)

    async def write(used: Mapping[str, float]) -> int:
        return await loop.run_in_executor(threads, lambda: turn(lambda: noted(used)))

    yield keep(LEARN, learn, REFRESH_SECONDS)
    yield keep(NOTE, lambda: keys.note(write), NOTE_SECONDS)


async def _note_last(keys: Keys, store: Store, threads: Executor) -> int:
    """Which tokens were used since they were noted; a database that stands still is not waited for."""
    loop = asyncio.get_running_loop()

    async def write(used: Mapping[str, float]) -> int:
        await loop.run_in_executor(threads, store.note_use, used)
        return len(used)

    try:
        return await asyncio.wait_for(keys.note(write), LAST_NOTE_SECONDS)
    except TimeoutError as error:
        raise Unavailable(503, "store-unavailable", "the database does not answer") from error


def _hear(services: Services) -> None:
    """What siblings tell that concerns the parts."""
    pipeline, events = services.pipeline, services.events

    async def state(_: object) -> dict[str, Any]:
        return (await services.readiness.look()).plain()

    services.siblings.answer("state", state)
    services.siblings.hear("deleted", pipeline.forget)
    services.siblings.hear("taken", lambda taken: pipeline.rates.take(*taken))
    pipeline.rates.tell = lambda *taken: services.siblings.tell("taken", taken)
    services.siblings.hear("told", events.told_elsewhere)
    services.siblings.hear("changed", lambda change: events.changed_elsewhere(*change))
    services.siblings.hear(LOST, lambda _: events.lost())


def turn_of(writer: Writer) -> Turn:
    """The turns of what runs beside the requests, on a thread of its own: the writer's, after the shards that wait."""
    loop = asyncio.get_running_loop()

    def turn(work: Callable[[], int]) -> int:
        return asyncio.run_coroutine_threadsafe(writer.aside(work), loop).result()

    return turn


def torch_measurer(settings: Settings) -> Measurer:
    """Made here, not imported above: torch takes seconds to import, and only a running service needs it."""
    from offpolicy_monitor.measure import Measurer as TorchMeasurer

    measurer = TorchMeasurer(settings.device, settings.torch_threads, settings.keep_worst, settings.measure_threads)
    if settings.torch_compile:
        measurer.compile_in_background(lambda problem: _compiled(problem, measurer.form), _compiling)
    return measurer


def _compiling(functions: int) -> None:
    if functions:
        log.info("compiling the pass over the tokens", functions=functions)
    else:
        log.info(
            "compiling the pass over the tokens, by a process of the lowest priority; torch serves until it is ready"
        )


def _compiled(problem: Exception | None, form: str) -> None:
    if problem is None:
        log.info("the pass over the tokens is compiled", measured_by=form)
    else:
        reason = str(problem).strip().partition("\n")[0]
        log.warning("serving by torch without compilation, which is slower", reason=reason)
