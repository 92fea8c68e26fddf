"""How a row is written down in the frameworks that people train with: the setting to paste, numbers filled in.

Names are those of verl (Hydra overrides), TRL (arguments of GRPOConfig), prime-rl (TOML of the trainer) and slime
(flags). What a framework cannot say has no row; where it says something a little different, `differs` tells. Which of
our rows a peer's option is, with the conformance that holds it: docs/methods.md.
"""

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from offpolicy_monitor.methods.catalogue import METHODS

#: Frameworks in the order that they are shown.
FRAMEWORKS: Final = ("verl", "TRL", "prime-rl", "slime")
#: Significant digits of a threshold in a setting.
DIGITS: Final = 6

_CORRECTION: Final = "algorithm.rollout_correction."
_ACTOR: Final = "actor_rollout_ref.actor."
_LOSS: Final = "[trainer.loss]"
_ICEPOP: Final = "--custom-tis-function-path slime.backends.megatron_utils.loss.icepop_function"


@dataclass(frozen=True)
class Option:
    """A framework's setting for rows of a method at a level.

    lines     to be pasted; `{upper}` stands for a threshold, `{1/upper}` for its inverse
    options   what the row says of the method's choices (statistic, divergence), where that matters
    gap       the gap that it is on in the framework, where that is not the row's own to choose
    """

    framework: str
    method: str
    level: str
    lines: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    gap: str = ""
    differs: str = ""

    @property
    def thresholds(self) -> set[str]:
        """The thresholds that it needs."""
        names = (name for line in self.lines for _, name, _, _ in string.Formatter().parse(line) if name)
        return {name.removeprefix("1/") for name in names}

    def of(self, row: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The lines for a row; None where this is no setting for it, or a threshold is missing."""
        same = row["method"] == self.method and row["level"] == self.level
        if not same or any(_chosen(row, name) != option for name, option in self.options.items()):
            return None
        values = {name: row.get(name) for name in self.thresholds}
        if any(value is None for value in values.values()):
            return None
        texts = {name: _digits(float(value)) for name, value in values.items() if value is not None}
        inverse = {f"1/{name}": _digits(1 / float(value)) for name, value in values.items() if value}
        try:
            return tuple(_filled(line, texts | inverse) for line in self.lines)
        except KeyError:  # the inverse of 0
            return None


def _rollout(kind: str, value: str, threshold: str) -> tuple[str, ...]:
    return (f"{_CORRECTION}{kind}={value}", f"{_CORRECTION}{kind}_threshold={threshold}")


def _clip(mode: str) -> tuple[str, ...]:
    return (
        f"{_ACTOR}policy_loss.loss_mode={mode}",
        f"{_ACTOR}clip_ratio_low={{lower}}",
        f"{_ACTOR}clip_ratio_high={{upper}}",
    )


def _vllm(mode: str) -> tuple[str, ...]:
    return (f'vllm_importance_sampling_mode="{mode}"', "vllm_importance_sampling_clip_max={upper}")


_RATIO: Final = {"statistic": "ratio"}
_K3: Final = {"statistic": "k3", "reduce": "mean"}
_TV: Final = {"divergence": "tv"}
_UPPER_ALONE: Final = "bounds the ratio above alone"
_INVERSE: Final = "names the inverse ratio: the same bounds, read the other way round"

OPTIONS: Final = (
    Option("verl", "truncate", "token", _rollout("rollout_is", "token", "{upper}")),
    Option("verl", "truncate", "sequence", _rollout("rollout_is", "sequence", "{upper}")),
    Option("verl", "mask", "token", _rollout("rollout_is", "token", "{lower}_{upper}"), _RATIO),
    Option(
        "verl", "mask", "sequence", _rollout("rollout_rs", "seq_sum_k1", "{1/upper}_{1/lower}"), _RATIO,
        differs=_INVERSE,
    ),
    Option(
        "verl", "mask", "geometric", _rollout("rollout_rs", "seq_mean_k1", "{1/upper}_{1/lower}"), _RATIO,
        differs=_INVERSE,
    ),
    Option("verl", "mask", "geometric", _rollout("rollout_rs", "seq_mean_k3", "{upper}"), _K3),
    Option("verl", "ppo_clip", "token", _clip("vanilla"), gap="staleness"),
    Option("verl", "ppo_clip", "geometric", _clip("gspo"), gap="staleness"),
    Option("verl", "cispo", "token", _clip("cispo"), gap="staleness"),
    Option(
        "verl", "dppo", "token", (f"{_ACTOR}policy_loss.loss_mode=dppo_tv", f"{_ACTOR}clip_ratio={{upper}}"), _TV,
        "staleness", "one bound for both signs, on staleness",
    ),
    Option("TRL", "opsm", "geometric", ("off_policy_mask_threshold={delta}",)),
    Option("TRL", "mask", "token", _vllm("token_mask"), _RATIO, differs=_UPPER_ALONE),
    Option("TRL", "mask", "sequence", _vllm("sequence_mask"), _RATIO, differs=_UPPER_ALONE),
    Option("TRL", "truncate", "token", _vllm("token_truncate")),
    Option("TRL", "truncate", "sequence", _vllm("sequence_truncate")),
    Option("TRL", "ppo_clip", "token", ("epsilon={lower}", "epsilon_high={upper}"), gap="staleness"),
    Option(
        "TRL", "ppo_clip", "geometric",
        ('importance_sampling_level="sequence"', "epsilon={lower}", "epsilon_high={upper}"), gap="staleness",
    ),
    Option("prime-rl", "dppo", "token", (_LOSS, "dppo_mask_low = {lower}", "dppo_mask_high = {upper}"), _TV, "total"),
    Option("prime-rl", "ipo", "token", (_LOSS, "ipo_threshold = {threshold}"), gap="total"),
    Option("slime", "truncate", "token", ("--use-tis", "--tis-clip {upper}"), gap="mismatch"),
    Option(
        "slime", "mask", "token", ("--use-tis", _ICEPOP, "--tis-clip-low {lower}", "--tis-clip {upper}"), _RATIO,
        "mismatch",
    ),
    Option(
        "slime", "opsm", "geometric", ("--use-opsm", "--opsm-delta {delta}", "--use-rollout-logprobs"), gap="total",
        differs="without --use-rollout-logprobs it looks at staleness alone",
    ),
    Option(
        "slime", "ppo_clip", "token", ("--eps-clip {lower}", "--eps-clip-high {upper}"), gap="staleness",
    ),
    Option(
        "slime", "ppo_clip", "geometric",
        ("--advantage-estimator gspo", "--eps-clip {lower}", "--eps-clip-high {upper}"), gap="staleness",
    ),
    Option(
        "slime", "cispo", "token",
        ("--advantage-estimator cispo", "--eps-clip {lower}", "--eps-clip-high {upper}"), gap="staleness",
    ),
)  # fmt: skip


def settings(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """[{framework, lines, differs}] of a row, in the order of FRAMEWORKS, without those that cannot say it."""
    return list(_settings(row))


def _settings(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for framework in FRAMEWORKS:
        for option in OPTIONS:
            lines = option.of(row) if option.framework == framework else None
            if lines is not None:
                elsewhere = option.gap and option.gap != row["gap"]
                gap = f"there it is on {option.gap}, here on {row['gap']}" if elsewhere else ""
                yield {"framework": framework, "lines": list(lines), "differs": option.differs or gap}
                break


def _filled(line: str, values: Mapping[str, str]) -> str:
    return "".join(text + (values[name] if name else "") for text, name, _, _ in string.Formatter().parse(line))


def _chosen(row: Mapping[str, Any], name: str) -> str:
    """What a row says of a choice; the first option where it says nothing."""
    return str(row.get(name) or METHODS[row["method"]].choices[name].options[0])


def _digits(value: float) -> str:
    return f"{value:.{DIGITS}g}"
