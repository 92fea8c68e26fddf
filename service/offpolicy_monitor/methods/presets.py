"""The rows that run on every batch by default, those that run where they are chosen by name, and which of them are
compared. Each is a row here, not code."""

from dataclasses import replace
from typing import Any, Final

from offpolicy_monitor.methods.model import MethodRow
from offpolicy_monitor.methods.parse import parse_row
from offpolicy_monitor.vocabulary import STANDARD_METHOD


def _preset(name: str, source: str, method: str, **parameters: Any) -> MethodRow:
    return replace(parse_row({"name": name, "method": method, **parameters}, name), source=source)


#: Name, where the thresholds come from, method, parameters. Formulas: docs/methods.md.
PRESETS: Final = (
    _preset("tis_token", "Yao et al.; verl and slime default", "truncate", level="token", upper=2.0),
    _preset("tis_sequence", "verl", "truncate", level="sequence", upper=2.0),
    _preset("mis_token", "slime MIS helper", "mask", level="token", lower=0.5, upper=2.0),
    _preset("mis_sequence", "verl seq_sum_k1; Liu et al.", "mask", level="sequence", lower=0.5, upper=2.0),
    _preset("mis_sequence_trl", "TRL default sequence_mask", "mask", level="sequence", upper=3.0),
    _preset(
        "geometric_mask",
        "verl geo preset, which bounds the inverse",
        "mask",
        level="geometric",
        lower=0.999,
        upper=1.001,
    ),
    _preset("geometric_mask_nemo", "NeMo-RL seq-mask-tis", "mask", level="geometric", lower=0.999, upper=1.002),
    _preset("geometric_mask_wide", "SkyRL", "mask", level="geometric", lower=0.99, upper=1.01),
    _preset(
        "geometric_mask_total", "two-sided form of OPSM", "mask", level="geometric", lower=0.99, upper=1.01, gap="total"
    ),
    _preset("k3_sequence", "verl k3 preset", "mask", level="geometric", statistic="k3", upper=0.01),
    _preset("veto", "slime; verl 0.7", "veto", lower=1e-4),
    _preset("opsm", "DeepSeek-V3.2, which publishes no delta", "opsm", delta=0.01),
    _preset("opsm_tight", "slime default", "opsm", delta=1e-4),
    _preset("opsm_loose", "TRL docs", "opsm", delta=0.5),
    _preset("gspo", "GSPO paper", "ppo_clip", level="geometric", lower=3e-4, upper=4e-4),
    _preset("gspo_total", "runs without pi_old", "ppo_clip", level="geometric", lower=3e-4, upper=4e-4, gap="total"),
    _preset("grpo", "GSPO paper's baseline", "ppo_clip", level="token", lower=0.2, upper=0.27),
    _preset("dapo", "DAPO", "ppo_clip", level="token", lower=0.2, upper=0.28),
    _preset("cispo", "slime, SkyRL", "cispo", lower=1.0, upper=4.0),
    _preset("icepop", "IcePop, Ring-1T", "mask", level="token", lower=0.5, upper=5.0),
    _preset("icepop_total", "prime-rl draft PR 2401", "mask", level="token", lower=0.5, upper=5.0, gap="total"),
    _preset("dppo_tv", "prime-rl, SkyRL", "dppo", divergence="tv", lower=0.2, upper=0.2),
    _preset("dppo_kl", "DPPO paper", "dppo", divergence="kl", lower=0.05, upper=0.05),
    _preset("ipo", "prime-rl", "ipo", threshold=0.1),
    _preset("ipo_kl", "prime-rl draft PR 2423", "mask", level="token", lower=0.2, upper=5.0, gap="total", kl_tau=1e-3),
    _preset("m2po", "M2PO", "m2po", threshold=0.04),
    _preset("trm", "TRM", "trm", max=0.05, mean=0.001),
    _preset("kpop", "AReaL", "kpop", phi=2.0),
    _preset("seq_error", "NeMo-RL recipe", "seq_error", threshold=2.0),
)

#: Rows that a run has only if it asks for them: most take another look at every token.
ON_REQUEST: Final = (
    _preset("m2po_paper", "M2PO, Algorithm 1; ms-swift default", "m2po_paper", threshold=0.04),
    _preset("vaco", "open-instruct PR 1793: half of it, the total variation, at most 0.02", "vaco", threshold=0.04),
    _preset("cppo", "CPPO for mixtures of experts; verl and UniRL default", "cppo", delta=0.2),
    _preset("cppo_dense", "CPPO for dense models", "cppo", delta=0.15),
    _preset("cppo_fixed", "CPPO for post-trained models", "cppo", delta=0.15, budget=0.015, budget_max=0.015),
    _preset("seq_mis", "prime-rl draft PR 3384, with the bounds of SkyRL", "seq_mis", lower=0.99, upper=1.01),
)

#: Rows that are shown beside the correction in use where a run has them, the first ones first.
COMPARED: Final = (
    STANDARD_METHOD,
    *("geometric_mask_wide", "icepop", "mis_token", "mis_sequence", "geometric_mask", "gspo", "grpo", "dppo_tv", "ipo"),
)
