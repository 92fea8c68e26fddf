"""Noise floor: how much of the mismatch the engine makes by itself, and how much the trainer does.

The engine's prefill of the same tokens (`engine_logprobs`) parts the mismatch exactly: `engine_internal` is what decode
and prefill of one engine differ by (batch shape, KV cache, kernels), `cross_engine` what prefill and trainer do. A
second pass of the trainer (`old_logprobs_repeat`) says what `trainer` differs from itself by: less than that nothing
explains. Each part is over the tokens whose two log-probs are finite, so that some of the tokens may be rescored alone.
"""

from typing import Any, Final

from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.attribution import split
from offpolicy_monitor.summary.figure import Figure, gauge, under
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.sums import Sums
from offpolicy_monitor.vocabulary import ENGINE, OLD, REPEAT, SAMPLING

NAME: Final = "noise_floor"
#: part -> the two log-probs of its d = a - b.
PARTS: Final = {
    "engine_internal": (ENGINE, SAMPLING),
    "cross_engine": (OLD, ENGINE),
    "trainer": (REPEAT, OLD),
}
#: The parts of which the mismatch is the sum, token by token.
OF_MISMATCH: Final = ("engine_internal", "cross_engine")
#: The table of both, and that of the trainer's part beside the mismatch.
SPLIT, BESIDE = f"{NAME}/split", f"{NAME}/beside"

TABLES: Final = (
    *(
        schema.Table(
            f"{NAME}/{part}",
            (
                schema.count("tokens", "tokens with both log-probs", at_most="batch/tokens"),
                schema.number("log_ratio", "d", at_most="log_ratio_abs"),
                schema.magnitude("log_ratio_abs", "|d|"),
                schema.magnitude("log_ratio_square", "d^2", square_of=("tokens", "log_ratio_abs"), product=True),
                schema.magnitude("k3", "exp(d) - 1 - d"),
                schema.count("exact_tokens", "d = 0", at_most="tokens"),
                schema.count("positive_tokens", "a rescored log-prob above 0", at_most="tokens"),
            ),
            f"{above} less {below}",
            needs=(above, below),
            summed_from=REPEAT if REPEAT in (above, below) else ENGINE,
            since=7,
            filled=True,
        )
        for part, (above, below) in PARTS.items()
    ),
    schema.Table(
        SPLIT,
        (
            schema.count("tokens", "tokens with all three log-probs", at_most=f"{NAME}/cross_engine/tokens"),
            schema.magnitude("engine_internal_square", "i^2, i the d of engine_internal", product=True),
            schema.magnitude("cross_engine_square", "c^2, c that of cross_engine", product=True),
            schema.number(
                "engine_internal_cross_engine",
                "i c",
                product_of=("tokens", "engine_internal_square", "cross_engine_square"),
                product=True,
            ),
        ),
        "what the mismatch is made of",
        needs=(SAMPLING, ENGINE, OLD),
        summed_from=ENGINE,
        since=7,
        filled=True,
    ),
    schema.Table(
        BESIDE,
        (
            schema.count("tokens", "tokens with all three log-probs", at_most=f"{NAME}/trainer/tokens"),
            schema.magnitude("trainer_square", "f^2, f the d of trainer", product=True),
            schema.magnitude("mismatch_square", "m^2, m the mismatch", product=True),
        ),
        "the trainer's own noise beside the mismatch",
        needs=(SAMPLING, OLD, REPEAT),
        summed_from=REPEAT,
        since=7,
        filled=True,
    ),
)


def noise_floor(arrays: Arrays) -> dict[str, Any]:
    """{part: figures} of those with a token, and `attribution`, the shares of the mismatch's second moment.

    Of `trainer` also `of_mismatch`: its second moment over that of the mismatch of the same tokens.
    """
    records = {part: arrays.record(f"{NAME}/{part}") for part in PARTS}
    found: dict[str, Any] = {part: _part(sums) for part, sums in records.items() if sums.get("tokens")}
    shares, beside = split(arrays.record(SPLIT), *OF_MISMATCH), arrays.record(BESIDE)
    if beside.get("mismatch_square") and "trainer" in found:
        found["trainer"]["of_mismatch"] = beside["trainer_square"] / beside["mismatch_square"]
    return {**found, "attribution": shares} if shares else found


def _part(sums: Sums) -> dict[str, Any]:
    """Means over the tokens of a part."""
    tokens = sums["tokens"]
    return {
        "tokens": int(tokens),
        "k1": -sums["log_ratio"] / tokens,
        "k3": sums["k3"] / tokens,
        "abs_log_ratio_mean": sums["log_ratio_abs"] / tokens,
        "second_moment": sums["log_ratio_square"] / tokens,
        "exact_fraction": sums["exact_tokens"] / tokens,
        "positive_tokens": int(sums["positive_tokens"]),
    }


def _figures(part: str, between: str) -> tuple[Figure, ...]:
    own = (
        Figure("tokens", "tokens", "with both log-probs"),
        Figure("k1", "nats", "mean of `-d`"),
        Figure("k3", "nats", f"mean of `exp(d) - 1 - d`, {between}", headline=True),
        Figure("abs_log_ratio_mean", "nats", "mean of `abs d`"),
        Figure("second_moment", "nats^2", "mean of `d^2`"),
        Figure("exact_fraction", "share of tokens", "`d = 0`, to the bit"),
        Figure("positive_tokens", "tokens", "whose rescored log-prob is above 0"),
    )  # fmt: skip
    return under(part, own)


_SHARE: Final = "share of the mismatch's second moment"

FIGURES: Final = (
    *_figures("engine_internal", "d the engine's prefill less its decode"),
    *_figures("cross_engine", "d the trainer less the engine's prefill"),
    *_figures("trainer", "d the trainer's second pass less its first"),
    Figure(
        "trainer.of_mismatch", "ratio", "its second moment over the mismatch's: from 1 on there is nothing to explain",
        headline=True, gauge=gauge("noise_floor_ratio", component="trainer"),
    ),
    Figure(
        "attribution.engine_internal", _SHARE, "`E[i^2]`, i engine-internal",
        headline=True, gauge=gauge("noise_floor_ratio", component="engine_internal"),
    ),
    Figure("attribution.cross_engine", _SHARE, "`E[c^2]`, c cross-engine", headline=True),
    Figure("attribution.interaction", _SHARE, "`2 E[i c]`"),
)  # fmt: skip


KIND: Final = Kind(
    NAME,
    TABLES,
    noise_floor,
    FIGURES,
    "Only where log-probs that were computed once more were sent.",
    of_shards=True,
    measured="offpolicy_monitor.measure.noise_floor",
)
