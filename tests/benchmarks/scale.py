"""How much a run measures: the full run, and a quick one that only shows that everything works.

A quick run measures by torch, smaller batches and few rounds: its figures are no measure of the goals.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MILLION = 1_000_000
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Scale:
    """Sizes and counts.

    repeats  rounds of the core's candidates; rounds: of HTTP's, each of which posts to every candidate in turn
    compiled whether to wait for the compiled pass, which takes a while where none is cached
    posts    tokens per batch -> requests per round to the service
    linear   sizes of the curves of linear.py, ascending
    path     rounds of one post after another, and posts per round of many connections
    stage    shards of which each stage is timed
    """

    name: str
    compiled: bool
    repeats: int
    rounds: int
    core_tokens: int
    grid_tokens: int
    posts: dict[int, int]
    naive_tokens: int
    naive_rounds: int
    commit_rounds: int
    small_posts: int
    path_rounds: int
    path_posts: int
    stage_shards: int
    body_bytes: int
    linear: Mapping[str, tuple[int, ...]]
    gpu_tokens: tuple[int, ...] = (MILLION, 4 * MILLION, 16 * MILLION, 64 * MILLION)


FULL = Scale(
    name="full",
    compiled=True,
    repeats=7,
    rounds=5,
    core_tokens=MILLION,
    grid_tokens=131_072,
    posts={MILLION: 4, 131_072: 12, 16_384: 32},
    naive_tokens=131_072,
    naive_rounds=3,
    commit_rounds=9,
    small_posts=64,
    path_rounds=25,
    path_posts=320,
    stage_shards=400,
    body_bytes=128 * MEBIBYTE,
    linear={
        "tokens": (10_000, 100_000, MILLION, 10 * MILLION, 64 * MILLION),
        "sequences": (1, 10, 100, 1_000, 10_000, 100_000),
        "presets": (1, 3, 10, 30, 100),
        "history": (100, 1_000, 10_000, 100_000),
    },
)
QUICK = Scale(
    name="quick",
    compiled=False,
    repeats=3,
    rounds=1,
    core_tokens=131_072,
    grid_tokens=16_384,
    posts={MILLION: 2, 131_072: 4, 16_384: 8},
    naive_tokens=16_384,
    naive_rounds=1,
    commit_rounds=2,
    small_posts=16,
    path_rounds=3,
    path_posts=32,
    stage_shards=10,
    body_bytes=32 * MEBIBYTE,
    linear={"tokens": (10_000, 100_000), "sequences": (1, 1_000), "presets": (1, 10), "history": (100, 1_000)},
    gpu_tokens=(MILLION,),
)
