"""Streams: append-only lines in numbered files, `00000.jsonl`, `00001.jsonl.zst`, with an index of rows beside them.

A full file is sealed with zstd and its plain one removed, at any moment; a line keeps its address, the file's number
and the byte of its unpacked content. The index, `NAME.index.jsonl` beside the folder NAME, has a row for each line with
its address, and is written behind it. Where there is none, the lines themselves are the rows. Knows no framework.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from offpolicy_monitor.client.files.lines import lines
from offpolicy_monitor.client.files.record import Unfinished, Unreadable
from offpolicy_monitor.client.files.sealed import open_sealed

Row = dict[str, Any]


class Address(NamedTuple):
    """Where a line begins: the number of its file, and the byte of its unpacked content."""

    chunk: int
    offset: int


class Stream:
    """Tells the rows of a stream once each, as they come."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.index = folder, folder.with_name(f"{folder.name}.index.jsonl")
        self.has_index: bool | None = None
        self.read, self.next = 0, Address(0, 0)
        self.kept: tuple[int, BinaryIO] | None = None

    def news(self) -> Iterator[tuple[Address, Row]]:
        """The rows since the last call. Raises Unreadable for a whole line that is no row."""
        if self.has_index is None and (self.index.exists() or self.chunks()):
            self.has_index = self.index.exists()
        yield from self._indexed() if self.has_index else self._scanned()

    def _indexed(self) -> Iterator[tuple[Address, Row]]:
        for line in lines(self.index, self.read):
            if line.torn:
                return
            row = line.object(nan=True)
            self.read = line.end
            chunk, offset = row.get("chunk", 0), row.get("offset")
            if type(chunk) is not int or type(offset) is not int:
                raise Unreadable(f"{self.index}: a row has no chunk and offset")
            yield Address(chunk, offset), row

    def _scanned(self) -> Iterator[tuple[Address, Row]]:
        for number in (number for number in self.chunks() if number >= self.next.chunk):
            start = self.next.offset if number == self.next.chunk else 0
            with self.open(number) as file:
                file.seek(start)
                for content in file:
                    if not content.endswith(b"\n"):
                        return
                    address = Address(number, start)
                    start += len(content)
                    self.next = Address(number, start)
                    yield address, _object(content, self.folder, address)

    def chunks(self) -> list[int]:
        """The numbers of the files, in order."""
        names = [path.name.split(".")[0] for path in self.folder.glob("*.jsonl*")]
        return sorted({int(name) for name in names if name.isdigit()})

    def open(self, number: int) -> BinaryIO:
        """A file of the stream, plain or sealed; it may be sealed between two looks."""
        path = self.folder / f"{number:05d}.jsonl"
        try:
            return path.open("rb")
        except FileNotFoundError:
            return open_sealed(path.with_name(f"{path.name}.zst"))

    def line(self, address: Address) -> Row:
        """The line at an address. Raises Unfinished where it is not whole, Unreadable where it is no object.

        Its file is kept open for the next line, until `release`.
        """
        if self.kept is None or self.kept[0] != address.chunk:
            self.release()
            try:
                self.kept = address.chunk, self.open(address.chunk)
            except FileNotFoundError as error:
                raise Unfinished(f"{self.folder} has no chunk {address.chunk} yet") from error
        self.kept[1].seek(address.offset)
        content = self.kept[1].readline()
        if not content.endswith(b"\n"):
            raise Unfinished(f"{self.folder}: chunk {address.chunk} is not whole yet at byte {address.offset}")
        return _object(content, self.folder, address)

    def release(self) -> None:
        """Close the file that was kept open."""
        if self.kept is not None:
            self.kept[1].close()
            self.kept = None

    def began_anew(self) -> bool:
        """Whether the stream is shorter than what was read of it: its folder was emptied."""
        if self.has_index:
            return not self.index.exists() or self.index.stat().st_size < self.read
        return bool(self.has_index is False and not self.chunks())

    def changed(self) -> int:
        """When anything of it was written last, in nanoseconds."""
        return max((path.stat().st_mtime_ns for path in [*self.paths(), self.index] if path.exists()), default=0)

    def paths(self) -> tuple[Path, ...]:
        """Its files, as they are now."""
        return tuple(sorted(self.folder.glob("*.jsonl*")))


def _object(content: bytes, folder: Path, address: Address) -> Row:
    where = f"{folder}, chunk {address.chunk}, byte {address.offset}"
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{where}: is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise Unreadable(f"{where}: is not a JSON object")
    return value
