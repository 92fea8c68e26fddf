"""prime-rl's trace annotations: episodes as they arrived, and what orchestrator and trainer learned of them later.

Under `monitors/file/traces`: `stream` has an episode per line, with the engine's log-probs of what was sampled;
`annotations/orchestrator` says which step a trace was shipped in, and its advantages; `annotations/trainer` has the
trainer's log-probs and entropies of a branch, a record per trained sequence, all of a step at once. A step is what the
trainer wrote of the traces that were shipped in it. Tells of a trace its addresses alone until its step is read. Facts
from PrimeIntellect-ai/prime-rl (monitors/file, trainer/rl/annotations.py, orchestrator/annotations.py; versions of
September 2026) and PrimeIntellect-ai/verifiers (v1/trace.py).
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from offpolicy_monitor.client.files.record import OTHERWISE, Bad, Item, Unfinished, Unreadable
from offpolicy_monitor.client.files.rows import Array, Row, floats, fraction, marks, records, whole
from offpolicy_monitor.client.files.streams import Address, Stream
from offpolicy_monitor.client.files.units import Unit
from offpolicy_monitor.errors import quotable

#: Where the trainer's stream lies in a folder of traces; the paths of its files stand for the folder.
TRAINER = "annotations/trainer"
PATTERNS = tuple(f"{below}{TRAINER}/*.jsonl*" for below in ("", "traces/", "monitors/file/traces/"))


# A folder is looked at every second, and has gigabytes: what was taken in of it is kept.
_followed: dict[Path, "Traces"] = {}


class Trained(NamedTuple):
    """What the trainer wrote of one sequence, and its episode."""

    episode: Address
    annotation: Address
    trace: str


@dataclass(frozen=True)
class TracedStep(Unit):
    """One training step. `written` is when the trainer wrote last, or 0 once it has gone on to another step."""

    rows: tuple[tuple[Address, str], ...] = field(default=(), repr=False)
    written: int = 0
    traces: "Traces | None" = field(default=None, repr=False, compare=False)

    def stat(self) -> list[list[Any]]:
        """How many sequences it has, and when it changed."""
        return [[self.name, len(self.rows), self.written]]

    def size(self) -> int:
        """Bytes from its first record of the trainer to its last one, in the same file."""
        return sum(max(0, after.offset - address.offset) for (address, _), (after, _) in pairwise(self.rows))

    def content(self) -> str:
        """A digest of the records' addresses and names: what has been written is not changed."""
        return hashlib.blake2b(repr(self.rows).encode(), digest_size=16).hexdigest()


@dataclass
class Step:
    """The trainer's records of one step, in the pass that wrote them last."""

    of_pass: int
    rows: list[tuple[Address, str]] = field(default_factory=list)


class Traces:
    """Follows one folder of traces; some hundred bytes are kept per trace."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.episodes, self.trainer = Stream(root / "stream"), Stream(root / TRAINER)
        self.others: dict[str, Stream] = {}
        self.homes: dict[str, Address] = {}
        self.shipped: dict[str, tuple[int, Stream, Address]] = {}
        self.steps: dict[int, Step] = {}
        self.waiting: list[tuple[Address, str, int | None]] = []
        self.newest, self.passes = -1, 0

    def look(self) -> None:
        """Take in what is new: the trainer's first, so that all that it needs has been written by then.

        Raises Unreadable for a row that is not as prime-rl writes it.
        """
        try:
            self._take_in()
        except OTHERWISE as error:
            raise Unreadable(f"{self.root}: a row is not as prime-rl writes it: {error!r:.200}") from error
        self._assign()

    def _take_in(self) -> None:
        for address, row in self.trainer.news():
            self.waiting.append((address, str(row.get("trace_id")), _trained_at(row)))
        for folder in sorted((self.root / "annotations").glob("*/")):
            if folder.name != self.trainer.folder.name:
                self._take_shipped(self.others.setdefault(folder.name, Stream(folder)))
        for address, row in self.episodes.news():
            for trace in row.get("trace_ids") or [trace.get("id") for trace in row.get("traces") or []]:
                self.homes[trace] = address

    def _take_shipped(self, stream: Stream) -> None:
        for address, row in stream.news():
            step = ((row.get("info") or {}).get("ship") or {}).get("step")
            if type(step) is int:
                self.shipped[str(row.get("trace_id"))] = step, stream, address

    def _assign(self) -> None:
        """Give records their steps, up to the last one that is known to have one.

        One in between that was never told to be shipped is of the step of its neighbour: a step is written at once.
        Where steps go back, training has gone back to a checkpoint, and what it writes of a step replaces the earlier.
        """
        steps = [at if at is not None else self.shipped_at(trace) for _, trace, at in self.waiting]
        known = max((index + 1 for index, step in enumerate(steps) if step is not None), default=0)
        near = self.newest if self.newest >= 0 else next((step for step in steps if step is not None), 0)
        for (address, trace, _), step in zip(self.waiting[:known], steps, strict=False):
            near = near if step is None else step
            self.passes += near < self.newest
            self.newest = near
            if near not in self.steps or self.steps[near].of_pass != self.passes:
                self.steps[near] = Step(self.passes)
            self.steps[near].rows.append((address, trace))
        del self.waiting[:known]

    def shipped_at(self, trace: str) -> int | None:
        """The step that the orchestrator shipped a trace in, once it has said so."""
        return self.shipped[trace][0] if trace in self.shipped else None

    def began_anew(self) -> bool:
        """Whether the folder was emptied since."""
        return self.episodes.began_anew() or self.trainer.began_anew()

    def units(self, below: Path | None) -> Iterator[TracedStep]:
        """The steps as they are now, named from the folder `below`."""
        self.look()
        where = self.root.relative_to(below).as_posix() if below is not None else str(self.root.resolve())
        changed, paths = self.trainer.changed(), self.trainer.paths()
        for number, step in self.steps.items():
            written = changed if number == self.newest else 0
            yield TracedStep(f"{where}/step_{number}", number, paths, (number,), None, tuple(step.rows), written, self)

    def read(self, unit: TracedStep) -> Iterator[Item]:
        """The sequences of a step as the arrays of posts, first what is wrong with any of them."""
        try:
            yield from self._read(unit)
        finally:
            for stream in (self.episodes, self.trainer, *self.others.values()):
                stream.release()

    def _read(self, unit: TracedStep) -> Iterator[Item]:
        end, rows = unit.size(), []
        for address, group in groupby(sorted(self._trained(unit)), key=attrgetter("episode")):
            try:
                episode = self.episodes.line(address)
                traces = {trace.get("id"): trace for trace in episode["traces"]}
                rows += [row for trained in group for row in self._rows(episode, traces[trained.trace], trained)]
            except (Unreadable, *OTHERWISE) as error:
                is_told = isinstance(error, Unreadable)
                reason = str(error) if is_told else f"is not as prime-rl writes it: {error!r:.200}"
                yield Bad(f"{unit.name}, chunk {address.chunk}, byte {address.offset}", reason, 0)
        if rows:
            yield from records(unit.name, {"step": unit.step, "policy_version": max(unit.step - 1, 0)}, rows, end)

    def _trained(self, unit: TracedStep) -> Iterator[Trained]:
        for annotation, trace in unit.rows:
            if trace not in self.homes:
                raise Unfinished(f"{unit.name}: the episode of trace {quotable(trace)} is not there yet")
            yield Trained(self.homes[trace], annotation, trace)

    def _rows(self, episode: Mapping[str, Any], trace: Mapping[str, Any], trained: Trained) -> Iterator[Row]:
        """A row per branch that the trainer annotated. A sampler that is not the live policy gave no mu of it."""
        work = (episode.get("run") or {}).get("work")
        policy = (work or {}).get("policy")
        if work is not None and policy is None:
            return
        scalars: dict[str, float | int] = {"policy_versions": whole("policy.start", policy["start"]) if policy else -1}
        rewards = [value for value in (trace.get("rewards") or {}).values() if value is not None]
        if rewards:
            scores = [
                fraction("score", value["score"]) * fraction("weight", value.get("weight", 1.0)) for value in rewards
            ]
            scalars["rewards"] = sum(scores)
        advantages = self._advantages(trained.trace)
        nodes, leaves = trace["nodes"], leaves_of(trace["nodes"])
        seen: set[int] = set()
        for branch in self.trainer.line(trained.annotation).get("branches") or []:
            if "trainer_logprobs" in branch:
                index = int(branch["index"])
                if index in seen:
                    raise Unreadable(f"branch {index} is there twice")
                seen.add(index)
                path = [nodes[node] for node in path_to(nodes, leaves[index])]
                yield Row(tokens_of(path, branch, advantages.get(index)), scalars, f"{trained.trace}/{index}")

    def _advantages(self, trace: str) -> Mapping[int, Any]:
        """By branch, the advantages that the trace was shipped with."""
        if trace not in self.shipped:
            return {}
        _, stream, address = self.shipped[trace]
        branches = stream.line(address).get("branches") or []
        return {int(branch["index"]): branch["advantages"] for branch in branches if branch.get("advantages")}


def tokens_of(path: Sequence[Mapping[str, Any]], branch: Mapping[str, Any], advantages: Any) -> dict[str, Array]:
    """The arrays [n] of a branch, n positions that the trainer had of it, which may have cut its end off.

    The mask holds what the policy sampled and the trainer had a number for: outside its loss mask it writes null.
    """
    pi = floats("trainer_logprobs", branch["trainer_logprobs"])
    sampled = marks("mask", [mark for node in path for mark in node.get("mask") or []])
    mu = np.zeros(len(sampled), np.float32)
    drawn = floats("logprobs", [value for node in path for value in node.get("logprobs") or []])
    if len(drawn) != sampled.sum() or len(pi) > len(mu):
        raise Unreadable(f"{len(drawn)} log-probs of {sampled.sum()} sampled tokens, {len(pi)} of {len(mu)} trained on")
    mu[sampled] = drawn
    mask = sampled[: len(pi)] & ~np.isnan(pi)
    tokens = {"sampling_logprobs": mu[: len(pi)], "logprobs": pi, "mask": mask}
    if branch.get("entropies"):
        tokens["entropy"] = floats("entropies", branch["entropies"])
    if advantages:
        tokens["advantages"] = floats("advantages", advantages)[: len(pi)]
    if len({len(array) for array in tokens.values()}) > 1:
        raise Unreadable("entropies or advantages are not as long as trainer_logprobs")
    return tokens


def leaves_of(nodes: Sequence[Mapping[str, Any]]) -> list[int]:
    """The indices of the nodes that are nobody's parents, one for each branch."""
    parents = {node.get("parent") for node in nodes}
    return [index for index in range(len(nodes)) if index not in parents]


def path_to(nodes: Sequence[Mapping[str, Any]], leaf: int) -> list[int]:
    """The indices of the nodes from the root to a leaf; where parents go in a circle, from where it closes."""
    path: dict[int, None] = {}
    at: int | None = leaf
    while at is not None and at not in path:
        path[at] = None
        at = nodes[at].get("parent")
    return [*path][::-1]


def steps(paths: Iterable[Path], below: Path | None) -> Iterator[Unit]:
    """The steps of every folder of traces that has its trainer's files among `paths`."""
    for root in sorted({path.parents[2] for path in paths if path.parent.as_posix().endswith(TRAINER)}):
        if root not in _followed or _followed[root].began_anew():
            _followed[root] = Traces(root)
        yield from _followed[root].units(below)


def _trained_at(row: Mapping[str, Any]) -> int | None:
    """The step that a record of the trainer names itself, as the first releases of annotations do."""
    step = ((row.get("info") or {}).get("train") or {}).get("trained_at_step")
    return step if type(step) is int else None
