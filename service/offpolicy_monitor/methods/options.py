"""How a row is written down in the frameworks that people train with: the setting to paste, numbers filled in.

Names are those of verl (Hydra overrides), TRL (arguments of GRPOConfig), prime-rl (TOML of the trainer) and slime
(flags), at the versions that tests/option_names.json names. What a framework cannot say has no row; where it says
something a little different, `differs` tells. Which of our rows a peer's option is, with the conformance that holds it:
docs/methods.md.
"""

import math
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from offpolicy_monitor.methods.catalogue import METHODS
from offpolicy_monitor.methods.model import Threshold

#: Frameworks in the order that they are shown.
FRAMEWORKS: Final = ("verl", "TRL", "prime-rl", "slime")
#: Significant digits of a threshold in a setting.
DIGITS: Final = 6
#: What a framework calls a threshold by: `{1/upper}` is the inverse of ours. ZeroDivisionError where there is none.
FORMS: Final[Mapping[str, Callable[[float], float]]] = {
    "1/": lambda value: 1 / value,
    "1+": lambda value: 1 + value,
    "exp ": math.exp,
    "": lambda value: value,
}

_CORRECTION: Final = "algorithm.rollout_correction."
_ACTOR: Final = "actor_rollout_ref.actor."
_LOSS: Final = "[trainer.loss]"
_ICEPOP: Final = "--custom-tis-function-path slime.backends.megatron_utils.loss.icepop_function"


@dataclass(frozen=True)
class Option:
    """A framework's setting for rows of a method at a level.

    gap       the one that it is on in the framework
    lines     to be pasted; `{upper}` stands for a threshold, `{1/upper}` for another form of it, `{upper:pair}` for a
              positive number that is always written with a point
    options   what the row says of the method's choices (statistic, divergence), where that matters
    """

    framework: str
    method: str
    level: str
    gap: str
    lines: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    differs: str = ""

    @property
    def thresholds(self) -> set[str]:
        """The thresholds that it needs."""
        return {_form(name)[1] for line in self.lines for _, name, _, _ in string.Formatter().parse(line) if name}

    def of(self, row: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The lines for a row; None where this is no setting for it, or a threshold is missing."""
        same = row["method"] == self.method and row["level"] == self.level
        if not same or any(_chosen(row, name) != option for name, option in self.options.items()):
            return None
        try:
            return tuple(_filled(line, row) for line in self.lines)
        except (LookupError, ArithmeticError):
            return None

    def unsaid(self, row: Mapping[str, Any]) -> list[str]:
        """The thresholds of the row that it has no word for."""
        known = METHODS[self.method].parameters
        given = [name for name in known if isinstance(known[name], Threshold) and row.get(name) is not None]
        return [name for name in given if name not in self.thresholds]


def _rollout(kind: str, value: str, threshold: str) -> tuple[str, ...]:
    return (f"{_CORRECTION}{kind}={value}", f"{_CORRECTION}{kind}_threshold={threshold}")


def _clip(mode: str) -> tuple[str, ...]:
    return (
        f"{_ACTOR}policy_loss.loss_mode={mode}",
        f"{_ACTOR}clip_ratio_low={{lower}}",
        f"{_ACTOR}clip_ratio_high={{upper}}",
    )


def _vllm(mode: str, low: str, high: str) -> tuple[str, ...]:
    bounds = (("min", low), ("max", high))
    lines = [f"vllm_importance_sampling_clip_{side}={bound}" for side, bound in bounds if bound]
    return (f'vllm_importance_sampling_mode="{mode}"', *lines)


_RATIO: Final = {"statistic": "ratio"}
_INVERSE: Final = "names the inverse ratio: the same bounds, read the other way round"
#: verl's names of k-statistics, by level and how they are reduced.
_REDUCED: Final = (
    ("token", "mean", "token"), ("geometric", "mean", "seq_mean"), ("sequence", "mean", "seq_mean"),
    ("sequence", "sum", "seq_sum"), ("sequence", "max", "seq_max"),
)  # fmt: skip
#: TRL's bounds, lower and upper, for rows that have both, the upper or the lower alone.
_BOUNDS: Final = (("{lower}", "{upper}"), ("", "{upper}"), ("{lower}", "None"))

OPTIONS: Final = (
    Option("verl", "truncate", "token", "mismatch", _rollout("rollout_is", "token", "{upper}")),
    Option("verl", "truncate", "sequence", "mismatch", _rollout("rollout_is", "sequence", "{upper}")),
    Option("verl", "mask", "token", "mismatch", _rollout("rollout_is", "token", "{lower:pair}_{upper:pair}"), _RATIO),
    *(
        Option(
            "verl", "mask", level, "mismatch", _rollout("rollout_rs", name, "{1/upper:pair}_{1/lower:pair}"), _RATIO,
            _INVERSE,
        )
        for level, name in (("sequence", "seq_sum_k1"), ("geometric", "seq_mean_k1"))
    ),
    *(
        Option(
            "verl", "mask", level, "mismatch",
            _rollout("rollout_rs", f"{name}_k1", "{exp lower:pair}_{exp upper:pair}"),
            {"statistic": "k1", "reduce": reduce}, "names the inverse ratio, whose logarithm is k1",
        )
        for level, reduce, name in _REDUCED if reduce != "max"
    ),
    *(
        Option(
            "verl", "mask", level, "mismatch", _rollout("rollout_rs", f"{name}_{k}", "{upper}"),
            {"statistic": k, "reduce": reduce},
        )
        for k in ("k2", "k3") for level, reduce, name in _REDUCED
    ),
    Option("verl", "ppo_clip", "token", "staleness", _clip("vanilla")),
    Option("verl", "ppo_clip", "geometric", "staleness", _clip("gspo")),
    Option("verl", "cispo", "token", "staleness", _clip("cispo")),
    Option("verl", "dppo", "token", "staleness", _clip("dppo_tv"), {"divergence": "tv"}),
    Option("verl", "dppo", "token", "staleness", _clip("dppo_kl"), {"divergence": "kl"}),
    Option(
        "verl", "cppo", "token", "total",
        (
            f"{_ACTOR}policy_loss.loss_mode=cppo", f"{_ACTOR}clip_ratio={{delta}}",
            f"{_ACTOR}policy_loss.cppo.cppo_delta_b={{budget}}", f"{_ACTOR}policy_loss.cppo.cppo_w_min={{w_min}}",
            f"{_CORRECTION}bypass_mode=True",
        ),
        differs="of the draft pull request 6731, in no release yet",
    ),
    Option("TRL", "opsm", "geometric", "total", ("off_policy_mask_threshold={delta}",)),
    *(
        Option("TRL", method, level, "mismatch", _vllm(f"{level}_{does}", *bounds), options)
        for method, does, options in (("truncate", "truncate", {}), ("mask", "mask", _RATIO))
        for level in ("token", "sequence") for bounds in _BOUNDS
    ),
    Option("TRL", "ppo_clip", "token", "staleness", ("epsilon={lower}", "epsilon_high={upper}")),
    Option(
        "TRL", "ppo_clip", "geometric", "staleness",
        ('importance_sampling_level="sequence"', "epsilon={lower}", "epsilon_high={upper}"),
    ),
    Option("TRL", "cispo", "token", "staleness", ('loss_type="cispo"', "epsilon_high={1+upper}")),
    Option(
        "prime-rl", "dppo", "token", "total",
        (_LOSS, 'type = "default"', "dppo_mask_low = {lower}", "dppo_mask_high = {upper}"), {"divergence": "tv"},
    ),
    Option("prime-rl", "ipo", "token", "total", (_LOSS, 'type = "ipo"', "ipo_threshold = {threshold}")),
    Option("slime", "truncate", "token", "mismatch", ("--use-tis", "--tis-clip-low {lower}", "--tis-clip {upper}")),
    Option("slime", "truncate", "token", "mismatch", ("--use-tis", "--tis-clip {upper}")),
    Option(
        "slime", "mask", "token", "mismatch",
        ("--use-tis", _ICEPOP, "--tis-clip-low {lower}", "--tis-clip {upper}"), _RATIO,
    ),
    Option("slime", "mask", "token", "mismatch", ("--use-tis", _ICEPOP, "--tis-clip {upper}"), _RATIO),
    Option(
        "slime", "opsm", "geometric", "total", ("--use-opsm", "--opsm-delta {delta}", "--use-rollout-logprobs"),
        differs="without --use-rollout-logprobs it looks at staleness alone",
    ),
    Option("slime", "ppo_clip", "token", "staleness", ("--eps-clip {lower}", "--eps-clip-high {upper}")),
    *(
        Option(
            "slime", method, level, "staleness",
            (f"--advantage-estimator {name}", "--eps-clip {lower}", "--eps-clip-high {upper}"),
        )
        for method, level, name in (("ppo_clip", "geometric", "gspo"), ("cispo", "token", "cispo"))
    ),
)  # fmt: skip


def settings(row: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """[{framework, lines, differs}] of a row, and the frameworks that cannot say it; both in the order of FRAMEWORKS.

    Of each it is the option that leaves the fewest thresholds unsaid, the first of them.
    """
    found, lacking = [], []
    for framework in FRAMEWORKS:
        fitting = [(option, option.of(row)) for option in OPTIONS if option.framework == framework]
        said = [(option, lines) for option, lines in fitting if lines is not None]
        if not said:
            lacking.append(framework)
            continue
        option, lines = min(said, key=lambda found: len(found[0].unsaid(row)))
        found.append({"framework": framework, "lines": list(lines), "differs": "; ".join(_differing(option, row))})
    return found, lacking


def _differing(option: Option, row: Mapping[str, Any]) -> Iterator[str]:
    if option.differs:
        yield option.differs
    if option.unsaid(row):
        yield f"{option.framework} has no {' and no '.join(option.unsaid(row))}"
    if option.gap != row["gap"]:
        yield f"there it is on {option.gap}, here on {row['gap']}"


def _filled(line: str, row: Mapping[str, Any]) -> str:
    """The line with the row's numbers; LookupError for one that it lacks, ArithmeticError where it has no such form."""
    parts = string.Formatter().parse(line)
    return "".join(text + (_value(name, spec or "", row) if name else "") for text, name, spec, _ in parts)


def _value(name: str, spec: str, row: Mapping[str, Any]) -> str:
    form, threshold = _form(name)
    if row.get(threshold) is None:
        raise LookupError(threshold)
    value = FORMS[form](float(row[threshold]))
    return _of_a_pair(value) if spec == "pair" else _digits(value)


def _form(name: str) -> tuple[str, str]:
    """What is done to a threshold, and its name."""
    form = next(form for form in FORMS if name.startswith(form))
    return form, name.removeprefix(form)


def _chosen(row: Mapping[str, Any], name: str) -> str:
    """What a row says of a choice; the first option where it says nothing."""
    return str(row.get(name) or METHODS[row["method"]].choices[name].options[0])


def _digits(value: float) -> str:
    return f"{value:.{DIGITS}g}"


def _of_a_pair(value: float) -> str:
    """As a half of `lower_upper`: Hydra reads 0.5_5 as the number 0.55, and 0.5_5.0 as the text that it is.

    ArithmeticError for a bound of 0, which verl refuses.
    """
    if value <= 0:
        raise ArithmeticError(value)
    text = f"{Decimal(_digits(value)):f}"
    return text if "." in text else f"{text}.0"
