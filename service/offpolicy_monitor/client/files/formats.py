"""Formats: the kinds of dump files as rows: which names they have, how files form units, and what reads a unit.

The only place that knows all readers.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from offpolicy_monitor.client.files import frames, jsonl, nemo_rl, prime_rl, prime_rl_traces, slime
from offpolicy_monitor.client.files.record import Item
from offpolicy_monitor.client.files.units import Unit
from offpolicy_monitor.errors import ConfigurationError


@dataclass(frozen=True)
class Format:
    """One kind of dump. `patterns`: where its files lie in a folder; `name_of`: what a file's path must match.

    `own`: its records are whole posts, attempt and all. `grows`: lines are appended, and each is a record. `by_step`:
    the files of a step, one per rank, are a unit. `marker`: a folder's files are a unit, whole once the marker is
    there. `streams`: units of files that are no step's own, named from a folder.
    """

    name: str
    patterns: tuple[str, ...]
    name_of: re.Pattern[str]
    read: Callable[[Unit], Iterator[Item]]
    own: bool = False
    grows: bool = False
    by_step: bool = False
    marker: str | None = None
    streams: Callable[[Iterable[Path], Path | None], Iterator[Unit]] | None = None

    def units(self, paths: Iterable[Path], root: Path | None = None) -> list[Unit]:
        """The units that the files form, in step order; files that are none of this format's are left out."""
        groups: dict[Path, list[tuple[int, Path]]] = {}
        paths = sorted(set(paths))
        for path in paths:
            if match := self.name_of.search(path.as_posix()):
                step = int(match.groupdict().get("step") or 0)
                key = self._key(path, match)
                groups.setdefault(key, []).append((step, path))
        units = [self._unit(key, members, root) for key, members in groups.items()]
        units += self.streams(paths, root) if self.streams is not None else ()
        return sorted(units, key=lambda unit: (unit.order, unit.name))

    def found(self, path: Path) -> list[Unit]:
        """The units of a file, or of a folder: those in their usual places there, else those that lie in it."""
        path = path.resolve()
        if not path.is_dir():
            return self.units([path])
        parts = [part for unit in self.in_folder(path) for part in unit.paths]
        return self.units(parts or path.glob("*"))

    def _key(self, path: Path, match: re.Match[str]) -> Path:
        """What the files of one unit have in common."""
        if self.marker is not None:
            return path.parent
        return path.with_name(match["prefix"] + match["step"] + path.suffix) if self.by_step else path

    def in_folder(self, folder: Path) -> list[Unit]:
        """The units of a folder, in step order."""
        return self.units((path for pattern in self.patterns for path in folder.glob(pattern)), folder)

    def _unit(self, key: Path, members: list[tuple[int, Path]], root: Path | None) -> Unit:
        step, paths = members[0][0], tuple(sorted((path for _, path in members), key=_natural))
        name = key.relative_to(root).as_posix() if root is not None else str(key.resolve())
        order = frames.order(paths[0]) if self.name == "safetensors" else (step,)
        return Unit(name, step, paths, order, key / self.marker if self.marker else None)


FORMATS: Mapping[str, Format] = {
    row.name: row
    for row in (
        Format(
            "prime-rl",
            ("step_*/rank_*.jsonl", "token_exports/step_*/rank_*.jsonl", *prime_rl_traces.PATTERNS),
            re.compile(r"(?:^|/)step_(?P<step>\d+)/rank_\d+\.jsonl$"),
            prime_rl.read_unit,
            marker="STABLE",
            streams=prime_rl_traces.steps,
        ),
        Format(
            "nemo-rl",
            ("train_data_step*.jsonl",),
            re.compile(r"(?:^|/)train_data_step(?P<step>\d+)\.jsonl$"),
            lambda unit: nemo_rl.read(unit.step, unit.paths),
        ),
        Format(
            "slime",
            ("*.pt", "train_data/*.pt"),
            re.compile(r"(?:^|/)(?!eval_)(?P<prefix>(?:[^/]*?[^/\d])??)(?P<step>\d+)(?:_\d+)?\.pt$"),
            lambda unit: slime.read(unit.step, unit.paths),
            by_step=True,
        ),
        Format(
            "jsonl",
            ("*.jsonl", "*.jsonl.[0-9]*"),
            re.compile(r"\.jsonl(?:\.\d+)?$"),
            lambda unit: jsonl.read(unit.paths[0]),
            own=True,
            grows=True,
        ),
        Format(
            "safetensors",
            ("*.safetensors",),
            re.compile(r"\.safetensors$"),
            lambda unit: frames.read(unit.paths[0]),
            own=True,
        ),
    )
}


def guessed(path: Path) -> Format:
    """The format that a file's name, or the names in a folder, speak for. Raises ConfigurationError where none does."""
    for row in FORMATS.values():
        if row.found(path):
            return row
    raise ConfigurationError(f"{path}: no known kind of dump by its name; say --format {'|'.join(FORMATS)}")


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort key under which rank_2 comes before rank_10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]
