"""RaggedBatch -> StepSummary: the only place that knows both core and summary, and the owner of the device.

blocks brings a batch to the device and settles validity; summarise turns sums into summaries; detail answers per
sequence and per token; measurer puts them together and survives the device.
"""

from offpolicy_monitor.measure.measurer import Detail, Measurer, choose_device

__all__ = ["Detail", "Measurer", "choose_device"]
