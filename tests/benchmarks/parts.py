"""The parts of `make bench`: what each measures, and a run of some of them."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.beside import beside_rows
from tests.benchmarks.catalogue import catalogue_rows
from tests.benchmarks.client import client_rows
from tests.benchmarks.compute import compute_rows, grid_rows
from tests.benchmarks.gpu import gpu_rows
from tests.benchmarks.ingest import ingest_rows
from tests.benchmarks.judgement import judging_rows
from tests.benchmarks.linear import linear_rows
from tests.benchmarks.older import older_rows
from tests.benchmarks.path import path_rows
from tests.benchmarks.primitives import primitive_rows
from tests.benchmarks.reduce import reduce_rows
from tests.benchmarks.rows import Row
from tests.benchmarks.scale import Scale
from tests.benchmarks.scrape import scrape_rows
from tests.benchmarks.small import small_rows
from tests.benchmarks.stages import stage_rows
from tests.benchmarks.start import start_rows
from tests.benchmarks.storage import commit_rows, memory_rows
from tests.benchmarks.summaries import summary_rows
from tests.benchmarks.timing import Progress

DATA = Path(__file__).resolve().parents[2] / ".data"
Part = Callable[[Scale, Progress, Path], list[Row]]

PARTS: dict[str, Part] = {
    "core": lambda scale, progress, folder: compute_rows(scale, progress),
    "older": lambda scale, progress, folder: older_rows(scale, progress),
    "small": small_rows,
    "catalogue": lambda scale, progress, folder: catalogue_rows(scale, progress),
    "primitives": lambda scale, progress, folder: primitive_rows(scale, progress),
    "grid": lambda scale, progress, folder: grid_rows(scale, progress),
    "ingest": ingest_rows,
    "path": path_rows,
    "beside": beside_rows,
    "stages": stage_rows,
    "start": start_rows,
    "summaries": lambda scale, progress, folder: summary_rows(scale, progress),
    "commits": commit_rows,
    "scrape": scrape_rows,
    "memory": memory_rows,
    "client": client_rows,
    "reduce": lambda scale, progress, folder: reduce_rows(scale, progress),
    "judging": lambda scale, progress, folder: judging_rows(scale, progress),
    "linear": linear_rows,
    "gpu": lambda scale, progress, folder: gpu_rows(scale, progress),
}


def measured(parts: Sequence[str], scale: Scale) -> tuple[dict[str, list[Row]], dict[str, int]]:
    """The rows of each part, in a folder of its own, and how many seconds it took."""
    progress, rows, seconds = Progress(), dict[str, list[Row]](), {}
    DATA.mkdir(exist_ok=True)
    for name in parts:
        progress.part(name)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=DATA, prefix="bench-") as folder:
            rows[name] = PARTS[name](scale, progress, Path(folder))
        seconds[name] = round(time.monotonic() - began)
    progress.close()
    return rows, seconds


def as_json(rows: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
    """Rows with the part that measured them."""
    return [{**row.as_json(), "part": part} for part, own in rows.items() for row in own]
