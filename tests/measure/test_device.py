"""The measurer survives its device: smaller blocks when memory runs out, then the CPU, with the same figures."""

from collections.abc import Callable

import pytest
import torch
from offpolicy_monitor.batch import Origin
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.measure import Measurer, choose_device, measurer
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.decide import applicable
from offpolicy_monitor.measure.summarise import Views, block_sums
from offpolicy_monitor.measure.tables import MAKERS, Maker
from offpolicy_monitor.measure.totals import Totals
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.methods import PRESETS

from tests.fixtures.fused import fused_measurer, loaded_pass
from tests.measure.rows import ROWS
from tests.measure.test_laws import assert_nearly_equal
from tests.strategies import packed, random_sequences

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device to compare with the CPU")

#: A device that exists, takes tensors, and fails on every computation: what a broken GPU does.
BROKEN = "meta"


def maker(sums: Callable[[BlockView], dict[str, torch.Tensor]]) -> Maker:
    """A maker of no table."""
    return Maker("trial", sums, lambda arrays, view: iter(()))


def test_a_failing_device_is_left_for_the_cpu_with_the_same_figures_and_is_counted() -> None:
    batch = packed(random_sequences(4, [50, 20, 3], 0.1))
    broken, healthy = Measurer(BROKEN), Measurer("cpu")
    assert broken.evaluate(batch, ROWS, "token") == healthy.evaluate(batch, ROWS, "token")
    assert (broken.fallbacks, broken.device.type) == (1, "cpu")
    assert broken.measure(batch, PRESETS) == healthy.measure(batch, PRESETS)
    assert broken.fallbacks == 1
    assert healthy.fallbacks == 0


def test_a_gpu_is_left_alone_by_batches_that_the_pass_has_measured_before_it_would_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch, on_a_gpu = packed(random_sequences(4, [50, 20, 3], 0.1)), Measurer(BROKEN)
    assert on_a_gpu.form == "torch"
    on_a_gpu.use(loaded_pass())
    assert on_a_gpu.form == "torch, fused"
    assert on_a_gpu.measure(batch, PRESETS) == fused_measurer().measure(batch, PRESETS)
    assert on_a_gpu.evaluate(batch, ROWS, "token") == fused_measurer().evaluate(batch, ROWS, "token")
    assert on_a_gpu.fallbacks == 0
    monkeypatch.setattr(measurer, "LEAST_GPU_TOKENS", batch.tokens)
    on_a_gpu.measure(batch, PRESETS)
    assert (on_a_gpu.fallbacks, on_a_gpu.form) == (1, "fused")


def test_memory_that_runs_out_means_smaller_blocks_and_the_same_figures() -> None:
    batch = packed(random_sequences(4, [30_000] * 4, 0.1))
    sizes: list[int] = []

    def needs_small_blocks(view: BlockView) -> dict[str, torch.Tensor]:
        sizes.append(view.gaps.segments.tokens)
        if sizes[-1] > 40_000:
            raise torch.OutOfMemoryError("block too large")
        return {}

    starved, healthy = Measurer("cpu"), Measurer("cpu")
    starved.block_tokens = 120_000
    got = starved.measure(batch, PRESETS, makers=[maker(needs_small_blocks)]).figures()
    assert_nearly_equal(got, healthy.measure(batch, PRESETS, makers=()).figures())
    assert sizes == [120_000, 30_000, 30_000, 30_000, 30_000]
    assert (starved.fallbacks, healthy.fallbacks) == (1, 0)
    assert starved.device.type == "cpu"


def test_memory_that_runs_out_on_the_cpu_in_the_smallest_blocks_is_an_error() -> None:
    def never_fits(view: BlockView) -> dict[str, torch.Tensor]:
        raise torch.OutOfMemoryError("no memory at all")

    with pytest.raises(MemoryError):
        Measurer("cpu").measure(packed(random_sequences(1, [5], 0.1)), (), makers=[maker(never_fits)])


def test_a_defect_on_the_cpu_is_not_hidden() -> None:
    def defective(view: BlockView) -> dict[str, torch.Tensor]:
        raise RuntimeError("shape mismatch")

    measurer = Measurer("cpu")
    with pytest.raises(RuntimeError, match="shape mismatch"):
        measurer.measure(packed(random_sequences(1, [5], 0.1)), (), makers=[maker(defective)])
    assert measurer.fallbacks == 0


def test_warming_up_leaves_the_measurer_as_it_was() -> None:
    measurer = Measurer("cpu")
    measurer.warm_up()
    assert (measurer.device.type, measurer.device_name, measurer.fallbacks) == ("cpu", "cpu", 0)


def test_warming_up_asks_the_gpu_too_where_the_pass_measures_small_batches() -> None:
    broken = Measurer(BROKEN)
    broken.use(loaded_pass())
    broken.warm_up()
    assert (broken.fallbacks, broken.form) == (1, "fused")


def test_auto_is_cuda_where_there_is_one() -> None:
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["cuda:99", "abacus", "cpu:x"])
def test_a_device_that_is_not_there_is_a_configuration_error(name: str) -> None:
    with pytest.raises(ConfigurationError, match="OFFPOLICY_DEVICE"):
        choose_device(name)


@cuda
@pytest.mark.parametrize("noise", [1e-4, 0.05, 1.0])
def test_cuda_and_the_cpu_agree(noise: float) -> None:
    batch = packed(random_sequences(9, [1, 700, 33, 2000], noise, drift=noise / 20))
    left, right = (Measurer(device).evaluate(batch, ROWS, "token") for device in ("cpu", "cuda"))
    for one, other in zip(left["methods"], right["methods"], strict=True):
        assert one["keep_tokens"] == other["keep_tokens"], one["name"]
        for name in ("masked_tokens", "masked_sequences", "touched_sequences"):
            assert one[name] == other[name]
    for gap, figures in left["gaps"].items():
        for name, value in figures.items():
            if isinstance(value, float):
                size = figures["abs_log_ratio_mean"]
                assert right["gaps"][gap][name] == pytest.approx(value, rel=1e-5, abs=1e-6 * size), f"{gap}.{name}"


@cuda
def test_cuda_is_waited_for_once_at_the_end() -> None:
    """Not with the first batch, which brings what is kept on a device."""
    loaded = DeviceBatch.load(packed(random_sequences(9, [1, 700, 33, 2000], 0.1)), torch.device("cuda"))
    views, totals = Views(loaded, applicable(PRESETS, loaded), Origin(), MAKERS), Totals()
    for view in views.of_blocks(1000):
        block_sums(view, MAKERS, {})
    torch.cuda.set_sync_debug_mode("error")
    try:
        for view in views.of_blocks(1000):
            totals.add(block_sums(view, MAKERS, {}))
        totals.buffer()
        with pytest.raises(RuntimeError, match="synchronizing"):
            totals.buffer().cpu()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@cuda
def test_cuda_blocks_do_not_change_figures() -> None:
    batch = packed(random_sequences(9, [1, 700, 33, 2000], 0.1))
    whole, cut = Measurer("cuda"), Measurer("cuda")
    cut.block_tokens = 500
    assert_nearly_equal(whole.measure(batch, PRESETS).figures(), cut.measure(batch, PRESETS).figures())


def test_a_batch_that_fails_on_the_cpu_too_costs_no_device() -> None:
    def fails(view: BlockView) -> dict[str, torch.Tensor]:
        raise RuntimeError("whatever the device")

    measurer = Measurer(BROKEN)
    with pytest.raises(RuntimeError, match="whatever the device"):
        measurer.measure(packed(random_sequences(4, [50], 0.1)), (), makers=[maker(fails)])
    assert (measurer.fallbacks, measurer.device.type) == (0, BROKEN)
