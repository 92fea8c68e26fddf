"""The rows that run on every batch by default. A new preset is a row here, not code."""

from typing import Any, Final

from offpolicy_monitor.methods.model import MethodRow
from offpolicy_monitor.methods.parse import parse_row


def _preset(name: str, method: str, **parameters: Any) -> MethodRow:
    return parse_row({"name": name, "method": method, **parameters}, name)


#: What runs on every batch unless a run chooses otherwise. Sources and formulas: docs/methods.md.
PRESETS: Final = (
    _preset("tis_token", "truncate", level="token", upper=2.0),
    _preset("tis_sequence", "truncate", level="sequence", upper=2.0),
    _preset("mis_token", "mask", level="token", lower=0.5, upper=2.0),
    _preset("mis_sequence", "mask", level="sequence", lower=0.5, upper=2.0),
    _preset("mis_sequence_trl", "mask", level="sequence", upper=3.0),
    _preset("geometric_mask", "mask", level="geometric", lower=0.999, upper=1.001),
    _preset("geometric_mask_nemo", "mask", level="geometric", lower=0.999, upper=1.002),
    _preset("geometric_mask_wide", "mask", level="geometric", lower=0.99, upper=1.01),
    _preset("geometric_mask_total", "mask", level="geometric", lower=0.99, upper=1.01, gap="total"),
    _preset("k3_sequence", "mask", level="geometric", statistic="k3", upper=0.01),
    _preset("veto", "veto", lower=1e-4),
    _preset("opsm", "opsm", delta=0.01),
    _preset("opsm_tight", "opsm", delta=1e-4),
    _preset("opsm_loose", "opsm", delta=0.5),
    _preset("gspo", "ppo_clip", level="geometric", lower=3e-4, upper=4e-4),
    _preset("gspo_total", "ppo_clip", level="geometric", lower=3e-4, upper=4e-4, gap="total"),
    _preset("grpo", "ppo_clip", level="token", lower=0.2, upper=0.27),
    _preset("dapo", "ppo_clip", level="token", lower=0.2, upper=0.28),
    _preset("cispo", "cispo", lower=1.0, upper=4.0),
    _preset("icepop", "mask", level="token", lower=0.5, upper=5.0),
    _preset("icepop_total", "mask", level="token", lower=0.5, upper=5.0, gap="total"),
    _preset("dppo_tv", "dppo", divergence="tv", lower=0.2, upper=0.2),
    _preset("dppo_kl", "dppo", divergence="kl", lower=0.05, upper=0.05),
    _preset("ipo", "ipo", threshold=0.1),
    _preset("ipo_kl", "mask", level="token", lower=0.2, upper=5.0, gap="total", kl_tau=1e-3),
    _preset("m2po", "m2po", threshold=0.04),
    _preset("trm", "trm", max=0.05, mean=0.001),
    _preset("kpop", "kpop", phi=2.0),
    _preset("seq_error", "seq_error", threshold=2.0),
)
