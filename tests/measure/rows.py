"""The rows that the tests of measure/ run: every preset, and rows that reach what no preset does."""

from typing import Any, Final

from offpolicy_monitor.methods import PRESETS, MethodRow, parse_rows

FURTHER_ROWS: Final[list[dict[str, Any]]] = [
    {"method": "truncate", "level": "token", "lower": 0.5},
    {"method": "truncate", "level": "geometric", "lower": 0.9, "upper": 1.1, "gap": "total"},
    {"method": "mask", "level": "token", "lower": 0.9, "gap": "staleness"},
    {"method": "mask", "level": "token", "statistic": "k1", "lower": -0.5, "upper": 0.3},
    {"method": "mask", "level": "token", "statistic": "k2", "upper": 0.02},
    {"method": "mask", "level": "token", "statistic": "k3", "lower": 1e-4, "upper": 0.3},
    {"method": "mask", "level": "sequence", "statistic": "k1", "lower": -0.1, "upper": 0.1},
    {"method": "mask", "level": "sequence", "statistic": "k1", "reduce": "max", "upper": 0.2},
    {"method": "mask", "level": "sequence", "statistic": "k2", "reduce": "sum", "upper": 1.0, "gap": "staleness"},
    {"method": "mask", "level": "sequence", "statistic": "k2", "reduce": "max", "upper": 0.05},
    {"method": "mask", "level": "sequence", "statistic": "k3", "reduce": "max", "upper": 0.05},
    {"method": "mask", "level": "geometric", "statistic": "k1", "lower": -0.01, "upper": 0.01, "gap": "total"},
    {"method": "mask", "level": "sequence", "lower": 0.5, "upper": 2.0, "kl_tau": 0.01},
    {"method": "veto", "lower": 0.2, "upper": 5.0, "gap": "total"},
    {"method": "opsm", "delta": 0.0, "gap": "mismatch"},
    {"method": "ppo_clip", "level": "sequence", "lower": 0.2, "upper": 0.2},
    {"method": "ppo_clip", "level": "token", "lower": 1.5, "upper": 0.2},
    {"method": "cispo", "lower": 0.2, "upper": 0.28, "gap": "total"},
    {"method": "dppo", "divergence": "tv", "lower": 0.05, "upper": 0.1, "zero_advantage": "negative"},
    {"method": "dppo", "divergence": "kl", "lower": 0.01, "upper": 0.5, "zero_advantage": "negative"},
    {"method": "ipo", "threshold": 0.01, "gap": "mismatch"},
    {"method": "m2po", "threshold": 1e-3, "gap": "staleness"},
    {"method": "trm", "max": 0.01, "mean": 0.1, "gap": "mismatch"},
    {"method": "kpop", "phi": 0.05},
    {"method": "seq_error", "threshold": 1.05, "gap": "total"},
    {"method": "m2po_paper", "threshold": 1e-3, "gap": "mismatch"},
    {"method": "m2po_paper", "threshold": 0.04},
    {"method": "vaco", "threshold": 0.05},
    {"method": "cppo", "delta": 0.02},
    {"method": "cppo", "delta": 0.05, "budget": 1e-3, "budget_max": 0.1, "w_min": 0.5, "gap": "staleness"},
    {"method": "seq_mis", "lower": 0.98, "upper": 1.02},
    {"method": "seq_mis", "lower": 0.9, "gap": "mismatch"},
]

ROWS: Final[tuple[MethodRow, ...]] = (
    *PRESETS,
    *parse_rows([{"name": f"further_{index}", **row} for index, row in enumerate(FURTHER_ROWS)]),
)
