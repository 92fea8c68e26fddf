"""Halves: the first half of a two-phase post is found at whichever worker it came to, when the second comes to another.

It goes by a file in the service's folder, which who asked for it reads and removes. Of halves of one name the newest
counts: who keeps one tells the others to drop theirs.
"""

import asyncio
import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

from offpolicy_monitor.pipeline.rollouts import Key
from offpolicy_monitor.pipeline.shards import Shards
from offpolicy_monitor.server.workers.siblings import Siblings
from offpolicy_monitor.wire.message import Message
from offpolicy_monitor.wire.owned import buffers_of, message_of

#: How long siblings have to answer, seconds; after that the client is told to send the whole shard.
WITHIN: Final = 1.0


def halves_of_all(shards: Shards, siblings: Siblings, folder: Path) -> None:
    """Let these shards find the halves of siblings, and siblings theirs."""
    numbers = count()

    async def answer(key: Sequence[object]) -> str | None:
        half = shards.halves.kept(_key(key))
        if half is None:
            return None
        name = f"half.{os.getpid()}.{next(numbers)}"
        await asyncio.to_thread(_write, folder / name, half)
        return name

    async def found(key: Key) -> Message | None:
        names = [name for name in (await siblings.ask("half", WITHIN, key)).values() if name is not None]
        halves = [await asyncio.to_thread(_take, folder / name) for name in names]
        return halves[0] if halves else None

    siblings.answer("half", answer)
    siblings.hear("kept half", lambda key: shards.halves.drop(_key(key)))
    shards.half_elsewhere = found
    shards.kept_here = lambda key: siblings.tell("kept half", key)


def _key(sent: Sequence[object]) -> Key:
    run, rollout, shard = sent
    return str(run), str(rollout), int(str(shard))


def _write(path: Path, half: Message) -> None:
    with path.open("wb") as file:
        file.writelines(buffers_of(half))


def _take(path: Path) -> Message:
    stored = path.read_bytes()
    path.unlink()
    return message_of(stored)
