"""Hypothesis strategies for the numeric tests: small ragged batches with everything that a trainer may send.

Values are drawn one by one, so that a failing example shrinks to the token that matters; `random_sequences` gives
larger batches from a seed. `packed` turns the oracle's sequences into the package's RaggedBatch.
"""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from offpolicy_monitor.batch import RaggedBatch

from tests.reference import COLUMNS, Sequence

#: Moves of one policy against another, nats: none, tiny, ordinary, thresholds' neighbourhood, far.
MOVES = st.one_of(
    st.just(0.0),
    st.floats(-(2.0**-10), 2.0**-10, width=32, allow_subnormal=False),
    st.floats(-0.5, 0.5, width=32, allow_subnormal=False),
    st.floats(-12.0, 12.0, width=32, allow_subnormal=False),
)
LOGPROBS = st.one_of(
    st.just(0.0),
    st.floats(-(2.0**-10), 0.0, width=32, allow_subnormal=False),
    st.floats(-12.0, 0.0, width=32, allow_subnormal=False),
)
ODD_VALUES = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, -30.0, -100.0, -130.0])
ADVANTAGES = st.sampled_from([-2.0, -1.0, -1e-8, -0.0, 0.0, 1e-8, 0.5, 3.0])
FORMS = st.sampled_from(["none", "sequence", "token"])
SHAPES = st.lists(st.integers(0, 7), max_size=6)
ODDLY = st.integers(0, 19)
INSIDE = st.sampled_from([1, 1, 1, 0])
SENT = st.sampled_from([COLUMNS, COLUMNS, COLUMNS, COLUMNS[:2], COLUMNS[1:], (COLUMNS[0], COLUMNS[2])])


@cache
def _exactly(length: int, one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Lists of that length. Made once, as each strategy here: to make and check one takes as long as to draw by it."""
    return st.lists(one, min_size=length, max_size=length)


@st.composite
def sequences(draw: st.DrawFn, odd: bool = True) -> list[Sequence]:
    """0 to 6 sequences of 0 to 7 positions: two or three arrays, holes, odd values, advantages in any form."""
    names = draw(SENT)
    form = draw(FORMS)
    shape = draw(SHAPES)
    return [draw(_one_sequence(length, names, form, odd)) for length in shape]


@cache
@st.composite
def _one_sequence(draw: st.DrawFn, length: int, names: tuple[str, ...], form: str, odd: bool) -> Sequence:
    columns: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(length):
        base = draw(LOGPROBS)
        for name in names:
            strange = odd and draw(ODDLY) == 0
            value = draw(ODD_VALUES) if strange else min(0.0, base + draw(MOVES))
            columns[name].append(float(np.float32(value)))
    mask = draw(_exactly(length, INSIDE))
    if form == "token":
        return Sequence(columns, mask, draw(_exactly(length, ADVANTAGES)))
    return Sequence(columns, mask, draw(ADVANTAGES) if form == "sequence" else None)


def random_sequences(
    seed: int, lengths: list[int], noise: float, drift: float = 0.0, names: tuple[str, ...] = COLUMNS
) -> list[Sequence]:
    """Sequences of the given lengths: log-probs of a language model's shape, policies `noise` nats apart."""
    random, made = np.random.default_rng(seed), []
    for length in lengths:
        base = -random.exponential(0.7, length)
        moves = {name: noise * random.standard_normal(length) + drift * index for index, name in enumerate(names)}
        columns = {name: np.minimum(0, base + move).astype(np.float32).tolist() for name, move in moves.items()}
        made.append(Sequence(columns, [1] * length, float(np.float32(random.standard_normal()))))
    return made


def packed(sent: list[Sequence], dtype: type[np.floating] = np.float32) -> RaggedBatch:
    """The oracle's sequences as the batch that a request becomes."""
    names = tuple(sent[0].logprobs) if sent else COLUMNS
    token_columns = {name: np.array([x for s in sent for x in s.logprobs[name]], dtype) for name in names}
    sequence_columns = {}
    if sent and isinstance(sent[0].advantage, list):
        per_token = [x for s in sent if isinstance(s.advantage, list) for x in s.advantage]
        token_columns["advantages"] = np.array(per_token, dtype)
    elif sent and sent[0].advantage is not None:
        sequence_columns["advantages"] = np.array([s.advantage for s in sent], dtype)
    lengths = np.array([len(s.mask) for s in sent], np.int64)
    mask = np.array([bool(x) for s in sent for x in s.mask], bool)
    return RaggedBatch.from_positions(lengths, token_columns, sequence_columns, mask)


def without_holes(sent: list[Sequence]) -> list[Sequence]:
    """The same sequences with the positions outside the mask cut out."""
    packed_sequences = []
    for s in sent:
        kept = [position for position, inside in enumerate(s.mask) if inside]
        columns = {name: [values[position] for position in kept] for name, values in s.logprobs.items()}
        own = [s.advantage[position] for position in kept] if isinstance(s.advantage, list) else s.advantage
        packed_sequences.append(replace(s, logprobs=columns, mask=[1] * len(kept), advantage=own))
    return packed_sequences
