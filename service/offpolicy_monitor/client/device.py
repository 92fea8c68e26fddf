"""Copies from a device to this machine's memory, made beside training and not in its way.

A tensor is cloned on the trainer's own stream, which takes microseconds, so that the trainer may overwrite it at once;
the clone crosses to pinned memory on a stream of ours, and an event tells when it has. Touches torch only through the
module that the trainer has imported, and knows nothing of what the tensors mean.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

_streams: dict[Any, Any] = {}


def copies(tensors: Mapping[str, Sequence[Any]], torch: Any = None) -> tuple[dict[str, Any], Callable[[], None]]:
    """Host tensors by name, each the parts of that name one after the other, and a function that waits for them.

    Until that function has returned their values are undefined. `torch` is the module itself unless a test gives one
    that stands for it. A device without streams (anything but CUDA) is copied from synchronously.
    """
    torch = torch or sys.modules["torch"]
    joined = {name: _joined(torch, parts) for name, parts in tensors.items()}
    if any(tensor.device.type != "cuda" for tensor in joined.values()):
        return {name: tensor.cpu() for name, tensor in joined.items()}, lambda: None
    hosts: dict[str, Any] = {}
    events = []
    for device in dict.fromkeys(tensor.device for tensor in joined.values()):
        there = {name: tensor for name, tensor in joined.items() if tensor.device == device}
        arrived, event = _crossing(torch, device, there)
        hosts |= arrived
        events.append(event)
    return hosts, partial(_wait, events)


def _wait(events: Sequence[Any]) -> None:
    for event in events:
        event.synchronize()


def _joined(torch: Any, parts: Sequence[Any]) -> Any:
    """One contiguous tensor of its own, made on the trainer's current stream."""
    rows = [part.detach() for part in parts]
    if len(rows) == 1:
        return rows[0].clone(memory_format=torch.contiguous_format)
    return torch.cat(rows)


def _crossing(torch: Any, device: Any, tensors: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Begin the copies of one device's tensors; the event is reached when the last has arrived."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    stream = _streams[device]
    stream.wait_stream(torch.cuda.current_stream(device))
    hosts = {}
    with torch.cuda.stream(stream):
        for name, tensor in tensors.items():
            hosts[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            hosts[name].copy_(tensor, non_blocking=True)
            # The clone is freed here, on the trainer's stream: its memory must not be used anew before the copy ends.
            tensor.record_stream(stream)
        event = torch.cuda.Event(blocking=True)  # the background thread sleeps on it and burns no processor
        event.record(stream)
    return hosts, event
