"""miles: functions that miles loads by their path, as slime does, so that options alone add the monitor to a run.

`loss`, `tis` and `before_step` are those of `slime_hooks`. Knows where miles differs from slime: one parallel state for
Megatron and FSDP, another module of losses, rows of other layouts. Imports miles only when miles calls. The monitor is
made from OFFPOLICY_URL and OFFPOLICY_RUN, or given by `use`.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from offpolicy_monitor.client.adapters.shared.slime_hooks import Gather, Hooks

PARALLEL = "miles.backends.training_utils.parallel"
GATHER = "miles.backends.training_utils.cp_utils"
# Of the newest miles, and of release 0.0.2.
LOSSES = ("miles.backends.training_utils.loss_hub.losses", "miles.backends.training_utils.loss")


def place() -> tuple[int, int] | None:
    """The data-parallel rank and size (of independent replicas: theirs), on one rank of each replica of the model.

    Release 0.0.2 has no independent replicas.
    """
    state = _parallel()
    if not state.is_pp_last_stage or state.tp.rank != 0 or state.cp.rank != 0:
        return None
    ranks = getattr(state, "effective_dp", None) or state.intra_dp
    return ranks.rank, ranks.size


def _parallel() -> Any:
    return importlib.import_module(PARALLEL).get_parallel_state()


def _gather(args: Any, batch: Mapping[str, Any]) -> Gather | None:
    if _parallel().cp.size == 1:
        return None
    whole, layout = importlib.import_module(GATHER).all_gather_with_cp, getattr(args, "qkv_format", "thd")
    totals, responses, widths = batch["total_lengths"], batch["response_lengths"], batch.get("max_seq_lens")
    return lambda part, index: whole(part, totals[index], responses[index], layout, widths[index] if widths else None)


_hooks = Hooks("miles", LOSSES, place, _gather)
use, before_step, loss, tis = _hooks.use, _hooks.before_step, _hooks.loss, _hooks.tis
