"""Copies from CUDA, told by a stand-in for torch that writes down what is asked of it: no test machine has a GPU."""

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from offpolicy_monitor.client import device


@dataclass
class FakeTorch:
    """Device, streams and events that log their calls; tensors hold a list."""

    said: list[str] = field(default_factory=list)
    contiguous_format: str = "contiguous"

    @property
    def cuda(self) -> "FakeTorch":
        return self

    def current_stream(self, device: Any) -> str:
        return f"trainer@{device.index}"

    def Stream(self, device: Any) -> "FakeStream":
        self.said.append(f"new stream@{device.index}")
        return FakeStream(self, device.index)

    def stream(self, stream: "FakeStream") -> "FakeStream":
        return stream

    def Event(self, blocking: bool) -> "FakeEvent":
        assert blocking
        return FakeEvent(self)

    def empty(self, shape: tuple[int, ...], dtype: str, pin_memory: bool) -> "FakeTensor":
        assert pin_memory
        return FakeTensor(self, [0] * shape[0], Device("cpu", 0), dtype, "pinned")

    def cat(self, parts: list["FakeTensor"]) -> "FakeTensor":
        self.said.append("cat")
        return FakeTensor(
            self, list(itertools.chain(*(part.data for part in parts))), parts[0].device, parts[0].dtype, "clone"
        )


@dataclass(frozen=True)
class Device:
    type: str
    index: int


@dataclass
class FakeStream:
    torch: FakeTorch
    index: int

    def wait_stream(self, other: str) -> None:
        self.torch.said.append(f"ours waits for {other}")

    def __enter__(self) -> None:
        self.torch.said.append("on ours")

    def __exit__(self, *_: object) -> None:
        self.torch.said.append("off ours")


@dataclass
class FakeEvent:
    torch: FakeTorch

    def record(self, stream: FakeStream) -> None:
        self.torch.said.append("event")

    def synchronize(self) -> None:
        self.torch.said.append("waited")


@dataclass
class FakeTensor:
    torch: FakeTorch
    data: list[int]
    device: Device
    dtype: str = "float32"
    name: str = "given"

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.data),)

    def detach(self) -> "FakeTensor":
        return self

    def clone(self, memory_format: str) -> "FakeTensor":
        assert memory_format == "contiguous"
        self.torch.said.append("clone")
        return FakeTensor(self.torch, list(self.data), self.device, self.dtype, "clone")

    def copy_(self, other: "FakeTensor", non_blocking: bool) -> None:
        assert non_blocking and other.name == "clone" and self.name == "pinned"
        self.torch.said.append("copy")
        self.data = list(other.data)

    def record_stream(self, stream: FakeStream) -> None:
        self.torch.said.append("recorded")

    def cpu(self) -> "FakeTensor":
        self.torch.said.append("cpu")
        return FakeTensor(self.torch, self.data, Device("cpu", 0))


@pytest.fixture
def torch() -> FakeTorch:
    device._streams.clear()
    return FakeTorch()


def test_a_clone_on_the_trainers_stream_crosses_to_pinned_memory_on_ours(torch: FakeTorch) -> None:
    given = FakeTensor(torch, [1, 2], Device("cuda", 0))
    hosts, wait = device.copies({"logprobs": [given]}, torch)
    assert torch.said == [
        "clone", "new stream@0", "ours waits for trainer@0", "on ours", "copy", "recorded", "event", "off ours",
    ]  # fmt: skip
    assert hosts["logprobs"].data == [1, 2] and hosts["logprobs"].name == "pinned"
    torch.said.clear()
    wait()
    assert torch.said == ["waited"]


def test_rows_are_joined_on_the_device_and_the_stream_is_made_once(torch: FakeTorch) -> None:
    rows = [FakeTensor(torch, [1, 2], Device("cuda", 1)), FakeTensor(torch, [3], Device("cuda", 1))]
    for _ in range(2):
        hosts, _ = device.copies({"logprobs": rows}, torch)
        assert hosts["logprobs"].data == [1, 2, 3]
    assert torch.said.count("new stream@1") == 1 and torch.said.count("cat") == 2 and "clone" not in torch.said


def test_each_device_has_a_stream_and_an_event_of_its_own(torch: FakeTorch) -> None:
    tensors = {f"array{index}": [FakeTensor(torch, [index], Device("cuda", index))] for index in range(2)}
    hosts, wait = device.copies(tensors, torch)
    assert {name: host.data for name, host in hosts.items()} == {"array0": [0], "array1": [1]}
    wait()
    assert torch.said.count("event") == torch.said.count("waited") == 2


def test_a_device_without_streams_is_copied_from_at_once(torch: FakeTorch) -> None:
    hosts, wait = device.copies({"logprobs": [FakeTensor(torch, [5], Device("mps", 0))]}, torch)
    wait()
    assert torch.said == ["clone", "cpu"] and hosts["logprobs"].data == [5]
