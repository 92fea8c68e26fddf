"""Figures of a whole step, whatever the gap."""

from typing import Final

from offpolicy_monitor.summary.figure import Figure, gauge
from offpolicy_monitor.summary.tables.breakdown import SPLIT

_STEP: Final = "`summary/step.py`"
_LONGEST: Final = "`summary/tables/longest.py`"
_ATTRIBUTION: Final = "`summary/attribution.py`"

BATCH: Final = (
    Figure("tokens", "tokens", "positions under the mask", headline=True),
    Figure("sequences", "sequences", "as sent, empty ones too", headline=True),
    Figure("empty_sequences", "sequences", "without a position under the mask", headline=True),
    Figure(
        "excluded_tokens.nonfinite", "tokens", "under the mask with a log-prob that is not finite", headline=True
    ),
    Figure("suspect_tokens.positive", "tokens", "with a log-prob above 0", headline=True),
    Figure("suspect_tokens.exact_zero", "tokens", "with a sampling log-prob of exactly 0"),
    Figure(
        "zero_filled_tokens", "tokens",
        "with a sampling log-prob of exactly 0, to which the trainer gives less than -0.7", headline=True,
    ),
    Figure(
        "sequence_length_mean", "tokens per sequence", "mean number of tokens under the mask, over non-empty sequences",
        _STEP, headline=True, gauge=gauge("sequence_length_tokens_mean"),
    ),
    Figure("sequence_length_max", "tokens", "under the mask of the longest sequence", _LONGEST, headline=True),
    Figure(
        "longest_fraction", "share of sequences",
        "of the non-empty ones, as long as the longest: those that an engine stopped, where it is as long as it may be",
        _LONGEST,
        "verl `response_length/clip_ratio`, TRL `completions/clipped_ratio`", headline=True,
    ),
    Figure(
        "entropy_mean", "nats", "mean of `entropy` as sent, over tokens with a finite one", _STEP,
        headline=True, gauge=gauge("entropy_nats_mean"),
    ),
    Figure("reward_mean", "", "mean of `rewards` as sent, over sequences with a finite one", _STEP, headline=True),
    Figure(
        "policy_lag.mean", "versions", "mean of `policy_version - policy_versions` over tokens of known version",
        _STEP, headline=True, gauge=gauge("policy_lag_versions", stat="mean"),
    ),
    Figure(
        "policy_lag.max", "versions", "the largest `policy_version - policy_versions` of a token of known version",
        _STEP, headline=True, gauge=gauge("policy_lag_versions", stat="max"),
    ),
    *(
        Figure(
            f"attribution.{part}", "share of the total second moment", meaning, _ATTRIBUTION,
            headline=True, gauge=gauge("attribution_ratio", component=part),
        )
        for part, meaning in SPLIT.items()
    ),
)  # fmt: skip
