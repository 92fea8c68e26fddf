"""RaggedBatch -> StepSummary: joins core and summary, and owns the device. Tables of some kinds measure themselves by
core too, in functions that are called from here (summary.kind).

blocks brings a batch to the device and settles validity; decide runs the rows on it; counts is what belongs to no gap;
tables makes what kinds of tables declare; summarise turns sums into summaries; evaluate answers what is not stored, in
slices, with detail per sequence and per token; fused is the compiled pass over the tokens, library where it lies,
compilation how it comes about; measurer puts them together and survives the device.

Torch is imported with Measurer and choose_device, when they are asked for: a process with the pass alone needs none.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offpolicy_monitor.measure.measurer import Measurer, choose_device

__all__ = ["Measurer", "choose_device"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from offpolicy_monitor.measure import measurer

    return getattr(measurer, name)
