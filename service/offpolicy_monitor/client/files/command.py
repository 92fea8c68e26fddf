"""The subcommands tail and replay: their arguments, and what they do.

The only place here that knows the environment and the terminal. Exit status: 1 where a dump holds something that was
not stored, 3 where the service or the setup is to blame, 130 for Ctrl-C; SIGTERM ends in order too.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from offpolicy_monitor.addresses import LOCAL
from offpolicy_monitor.client.files.deliver import Choice, Delivery
from offpolicy_monitor.client.files.follow import Follower
from offpolicy_monitor.client.files.formats import FORMATS, Format, guessed
from offpolicy_monitor.client.files.post import Poster, body_of
from offpolicy_monitor.client.files.progress import Progress, size
from offpolicy_monitor.client.files.record import Record, Unfinished
from offpolicy_monitor.client.files.state import State
from offpolicy_monitor.client.files.tail import Tail
from offpolicy_monitor.client.files.units import SETTLE, Readiness, Unit
from offpolicy_monitor.commandline import DONE, INTERRUPTED, NO, natural, run_name, seconds
from offpolicy_monitor.errors import ConfigurationError

PATIENCE = 300.0  # seconds that replay waits for a service that does not answer
POLL = 1.0  # seconds between two looks at a folder


class Terminated(KeyboardInterrupt):
    """SIGTERM: whoever started this wants it to end."""


def add_tail_arguments(child: argparse.ArgumentParser) -> None:
    """The arguments of tail."""
    child.add_argument("folder", type=Path, metavar="DIR", help="folder that the trainer dumps into")
    child.add_argument("--format", choices=FORMATS, required=True, help="kind of dump")
    child.add_argument("--once", action="store_true", help="end at the end of what is there")
    child.add_argument("--poll", type=seconds, default=POLL, metavar="S", help=f"seconds between looks ({POLL:g})")
    child.add_argument(
        "--settle",
        type=seconds,
        default=SETTLE,
        metavar="S",
        help=f"seconds without a change after which a file without a marker is whole ({SETTLE:g})",
    )
    _add_common_arguments(child, None)


def add_replay_arguments(child: argparse.ArgumentParser) -> None:
    """The arguments of replay."""
    child.add_argument("files", type=Path, nargs="+", metavar="FILE", help="dump files, or folders of them")
    child.add_argument("--format", choices=FORMATS, help="kind of dump (default: by the name)")
    _add_common_arguments(child, PATIENCE)


def _add_common_arguments(child: argparse.ArgumentParser, patience: float | None) -> None:
    run = os.environ.get("OFFPOLICY_RUN")
    child.add_argument("--run", default=run, help="run to post to (OFFPOLICY_RUN)")
    url = os.environ.get("OFFPOLICY_URL", LOCAL)
    child.add_argument("--url", default=url, help=f"the service (OFFPOLICY_URL, {LOCAL})")
    child.add_argument("--attempt", type=natural, metavar="N", help="restart epoch, in place of what the dumps name")
    child.add_argument("--from", type=natural, default=0, dest="first", metavar="STEP", help="first step to post")
    child.add_argument("--to", type=natural, dest="last", metavar="STEP", help="last step to post")
    beside = "beside the dumps" if patience is None else "none: post all"
    child.add_argument("--state", type=Path, metavar="FILE", help=f"where to remember what is stored ({beside})")
    child.add_argument("--skip-bad", action="store_true", help="count what is malformed or refused, and go on")
    child.add_argument("--dry-run", action="store_true", help="say what would be posted, and post nothing")
    forever = "for ever" if patience is None else f"{patience:g}"
    child.add_argument(
        "--patience",
        type=seconds,
        default=patience,
        metavar="S",
        help=f"seconds to wait for a service that does not take a post ({forever})",
    )


def tail(options: argparse.Namespace) -> int:
    """Follow a folder; answers the exit status."""
    if not options.folder.is_dir():
        raise ConfigurationError(f"{options.folder} is no folder")
    run, form = _run(options), FORMATS[options.format]
    state = options.state or options.folder / f".offpolicy-monitor.{run}.{form.name}.json"
    progress, ended = Progress(sys.stderr, None), DONE
    with _delivery(options, run, form, state, progress) as delivery:
        progress.note(f"following {options.folder} as {form.name}, posting to run {run} at {options.url}")
        follower = Follower(options.folder, delivery, Readiness(options.settle))
        try:
            follower.follow(options.once, options.poll)
        except KeyboardInterrupt as asked:
            progress.note("stopped; the same command goes on from here")
            ended = DONE if isinstance(asked, Terminated) else INTERRUPTED
    return NO if delivery.bad else ended


def replay(options: argparse.Namespace) -> int:
    """Post finished dumps; answers the exit status."""
    run, chosen = _run(options), _units(options.files, FORMATS.get(options.format))
    progress = Progress(sys.stderr, sum(unit.size() for _, units in chosen for unit in units))
    bad = 0
    try:
        for form, units in chosen:
            with _delivery(options, run, form, options.state, progress) as delivery:
                _deliver_all(delivery, units)
            bad += delivery.bad
    except KeyboardInterrupt as asked:
        progress.note("stopped before the end")
        return NO if isinstance(asked, Terminated) else INTERRUPTED
    return NO if bad else DONE


def _deliver_all(delivery: Delivery, units: list[Unit]) -> None:
    if delivery.format.grows:
        Tail(delivery).deliver(units)
        for reason in delivery.waiting.values():
            delivery.spoilt(reason, "and nothing more will come")
        return
    for unit in units:
        try:
            delivery.whole(unit)
        except Unfinished as error:
            delivery.spoilt(unit.name, str(error))


def _units(paths: list[Path], form: Format | None) -> list[tuple[Format, list[Unit]]]:
    """The units of all paths by format, in the order of the formats. Raises ConfigurationError for what holds none."""
    files: dict[str, list[Path]] = {}
    for path in paths:
        if not path.exists():
            raise ConfigurationError(f"{path} does not exist")
        kind = form or guessed(path)
        found = kind.found(path)
        if not found:
            raise ConfigurationError(f"{path} holds no dump of the format {kind.name}")
        files.setdefault(kind.name, []).extend(part for unit in found for part in unit.paths)
    return [(FORMATS[name], FORMATS[name].units(found)) for name, found in files.items()]


@contextmanager
def _delivery(
    options: argparse.Namespace, run: str, form: Format, state: Path | None, progress: Progress
) -> Iterator[Delivery]:
    """A delivery whose state is written and whose sum is told however it ends."""
    poster = Poster(options.url, run, os.environ.get("OFFPOLICY_TOKEN"), options.patience, progress.note)
    kept = State(None if options.dry_run else state, options.url, run)
    choice = Choice(options.attempt, options.first, options.last, options.skip_bad)
    post = _described if options.dry_run else poster.post
    delivery = Delivery(form, post, kept, choice, progress)
    try:
        with _ending_on_sigterm():
            yield delivery
    finally:
        kept.save()
        poster.close()
        progress.close(_sum(delivery, options.dry_run))


def _sum(delivery: Delivery, dry: bool) -> str:
    batches = "1 batch" if delivery.stored == 1 else f"{delivery.stored} batches"
    parts = [f"{batches} would be posted" if dry else f"{batches} stored"]
    parts += [f"{delivery.known} known before"] if delivery.known else []
    parts += [f"{delivery.bad} bad, skipped"] if delivery.bad else []
    waiting = [f"waiting: {name}: {reason}" for name, reason in delivery.waiting.items()]
    return "\n".join([", ".join(parts), *waiting])


def _described(record: Record, attempt: int | None) -> bool:
    """In place of a post: one line that says what it would hold."""
    media_type, body = body_of(record, attempt)
    step, minibatch, shard = record.order
    nbytes = sum(memoryview(part).nbytes for part in body)
    shown = f"step {step} minibatch {minibatch} shard {shard} of {record.envelope.get('shards', 1)}"
    shown += f" attempt {attempt}" if attempt else ""
    sys.stdout.write(f"{record.where}: {shown}, {size(nbytes)} {media_type}: {' '.join(sorted(record.arrays))}\n")
    return False


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """SIGTERM ends like Ctrl-C, so that the state is written; left as it was where this is no main thread."""

    def end(number: int, frame: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(options: argparse.Namespace) -> str:
    if not options.run:
        raise ConfigurationError("no run is named: pass --run, or set OFFPOLICY_RUN")
    try:
        return run_name(options.run)
    except argparse.ArgumentTypeError as error:
        raise ConfigurationError(str(error)) from error
