"""What a summary holds of a batch whatever the gap, and of its three gaps together: declared here, read by step."""

from typing import Final

from offpolicy_monitor.summary.rows import POLICY_VERSION, Row, Table, count, magnitude, number
from offpolicy_monitor.vocabulary import LOGPROBS

BATCH: Final = Table(
    "batch",
    (
        count("tokens", "positions under the mask"),
        count("sequences", "sequences as sent"),
        count("empty_sequences", "sequences without a position under the mask", at_most="sequences"),
        count("nonfinite_tokens", "tokens with a log-prob that is not finite", at_most="tokens"),
        count("positive_tokens", "tokens with a log-prob above 0", at_most="tokens"),
        count("exact_zero_tokens", "tokens with a log mu of exactly 0", at_most="tokens"),
        count("zero_filled_tokens", "of those, the ones the trainer did not find certain", at_most="exact_zero_tokens"),
    ),
    "what was sent",
)
LAG: Final = Table(
    "batch",
    (
        count("lag_tokens", "tokens of known policy version", at_most="tokens"),
        number("lag", "the version lag of those tokens"),
        number("lag_max", "the largest lag", merge="max", extreme_of=("lag_tokens", "lag")),
    ),
    "how old it is",
    part="lag",
    needs=("policy_versions", POLICY_VERSION),
    summed_from="policy_versions",
)
ENTROPY: Final = Table(
    "batch",
    (count("entropy_tokens", "tokens with a finite entropy", at_most="tokens"), number("entropy", "their entropy")),
    "entropy",
    part="entropy",
    needs=("entropy",),
    summed_from="entropy",
)
REWARD: Final = Table(
    "batch",
    (
        count("reward_sequences", "sequences with a finite reward", at_most="sequences"),
        number("reward", "their reward"),
    ),
    "reward",
    part="reward",
    needs=("rewards",),
    summed_from="rewards",
)

#: m is mismatch and s is staleness.
CROSS_ROWS: Final[tuple[Row, ...]] = (
    magnitude("mismatch_square", "m^2", product=True),
    magnitude("staleness_square", "s^2", product=True),
    number("mismatch_staleness", "m s", product=True, product_of=("tokens", "mismatch_square", "staleness_square")),
)
CROSS: Final = Table(
    "cross",
    (count("tokens", "tokens valid for all three gaps"), *CROSS_ROWS),
    "second moments over tokens valid for all three gaps",
    needs=LOGPROBS,
)

TABLES: Final = (BATCH, LAG, ENTROPY, REWARD, CROSS)
