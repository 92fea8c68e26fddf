"""Fallbacks: how often the device failed, told to the metrics once each, whatever it was measuring."""

import threading

from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.pipeline.values import Measurer


class Fallbacks:
    """Compares what the measurer counts with what was told of it. Any thread may ask."""

    def __init__(self, measurer: Measurer, metrics: ProcessMetrics) -> None:
        self._measurer, self._metrics = measurer, metrics
        self._told, self._lock = 0, threading.Lock()

    def tell(self) -> None:
        """Count those that came since, with the device that is in use now."""
        with self._lock:
            times, self._told = self._measurer.fallbacks - self._told, self._measurer.fallbacks
        if times:
            self._metrics.fell_back(times, self._measurer.device_name)
