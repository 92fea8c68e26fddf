"""What there is to compute with: the version of torch, and which device it computes on."""

import torch

from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.measure.measurer import choose_device


def present(wanted: str) -> tuple[str, str | None]:
    """Version and the device that a setting chooses; None where it is not there."""
    try:
        return torch.__version__, str(choose_device(wanted))
    except ConfigurationError:
        return torch.__version__, None
