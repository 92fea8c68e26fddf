"""A measurer uses the fused pass once it has it; what lies in the cache is trusted with care."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
import torch
from offpolicy_monitor.batch import Array, Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer, library
from offpolicy_monitor.measure.tables import MAKERS, Maker, Named
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.stored import to_bytes
from offpolicy_monitor.vocabulary import RESCORED, SUPPORTS

from tests.fixtures.fused import cached_pass
from tests.fused.agreement import assert_record
from tests.strategies import packed, random_sequences
from tests.summary.records import records_of

BESIDE = (*RESCORED, *SUPPORTS.values())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of this test that has the pass."""
    whole = tmp_path / "offpolicy-monitor"
    shutil.copytree(cached_pass() / whole.name, whole)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return library.folder()


@pytest.fixture
def ready(cache: Path) -> Measurer:
    measurer, outcomes = Measurer("cpu", keep_worst=1), SimpleQueue[Exception | None]()
    measurer.compile_in_background(outcomes.put, lambda _: outcomes.put(AssertionError("it is there already")))
    assert outcomes.get(timeout=120) is None
    return measurer


def without(batch: RaggedBatch, name: str) -> RaggedBatch:
    return replace(batch, columns={key: column for key, column in batch.columns.items() if key != name})


def with_experts(batch: RaggedBatch) -> RaggedBatch:
    random = np.random.default_rng(4)
    sent = {name: random.integers(0, 9, (batch.tokens, 3, 2)).astype(np.uint8) for name in ("experts", "old_experts")}
    return RaggedBatch(
        batch.offsets, {**batch.columns, **sent}, batch.lengths, batch.positions, batch.per_token | sent.keys()
    )


def test_it_measures_by_the_pass_once_that_is_loaded(ready: Measurer) -> None:
    batch = packed(random_sequences(2, [30, 700, 0, 3], 0.2))
    assert (Measurer("cpu").form, ready.form) == ("torch", "fused")
    assert not ready.compilation_failed
    before, after = Measurer("cpu", keep_worst=1).measure(batch, PRESETS), ready.measure(batch, PRESETS)
    assert after.arrays.scheme.spans.keys() == before.arrays.scheme.spans.keys() and after.batch == before.batch
    for name, method in before.methods.items():
        assert after.methods[name].sums["masked_tokens"] == method.sums["masked_tokens"], name


def test_several_threads_measure_at_a_time_to_the_same_bits(ready: Measurer) -> None:
    batches = [packed(random_sequences(seed, [seed + 1, 300, 5], 0.2)) for seed in range(12)]
    batches += [without(batch, "advantages") for batch in batches[:4]] + [with_experts(batch) for batch in batches[:2]]
    for batch in batches[4:8]:
        batch.columns["logprobs"][::7] = np.nan
    wanted = [to_bytes(ready.measure(batch, PRESETS, Origin(1, 0))) for batch in batches]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            found = threads.map(lambda batch: to_bytes(ready.measure(batch, PRESETS, Origin(1, 0))), batches)
            assert list(found) == wanted


def test_log_probs_that_are_in_no_gap_are_summed_beside_the_pass(ready: Measurer) -> None:
    batch, random = packed(random_sequences(2, [30, 700, 0, 3], 0.2)), np.random.default_rng(5)
    sent = {name: -random.random(batch.tokens, np.float32) for name in BESIDE}
    sent[BESIDE[0]][:9] = np.nan
    batch = replace(batch, columns={**batch.columns, **sent}, per_token=batch.per_token | sent.keys())
    before, after = (measurer.measure(batch, PRESETS).figures() for measurer in (Measurer("cpu"), ready))
    for name in ("noise_floor", "support"):
        assert after[name] == before[name] == ready.evaluate(batch)[name]
    assert after["noise_floor"]["engine_internal"]["tokens"] == batch.tokens - 9
    assert after["support"].keys() == {"mismatch", "staleness", "total"}


def test_how_experts_differ_is_counted_by_the_pass(ready: Measurer) -> None:
    batch = with_experts(packed(random_sequences(2, [30, 5], 0.2)))
    before, after = (measurer.measure(batch, PRESETS, Origin(1, 0)) for measurer in (Measurer("cpu"), ready))
    tables, theirs = records_of(after.arrays), records_of(before.arrays)
    routing = {name: table for name, table in theirs.items() if name.startswith("routing/")}
    assert routing and tables.keys() == theirs.keys()
    for name, table in routing.items():
        assert_record(name, tables[name], table)


def test_a_table_that_the_pass_does_not_know_is_made_by_torch_beside_it(ready: Measurer) -> None:
    """Its maker sums what only it needs, and is told what the pass has summed."""
    seen: list[int] = []

    def sums(view: BlockView) -> dict[str, torch.Tensor]:
        seen.append(view.gaps.segments.tokens)
        return {"changed": (view.own(view.gaps.columns.log_ratio) != 0).sum(-1)}

    def tables(arrays: Mapping[str, Array], view: BlockView) -> Named:
        total = view.block.batch.gaps.index("total")
        counts = {"layers": arrays["changed"][total], "layers_square": arrays["gaps/tokens"][total]}
        moments = {"layers_moment": arrays["cross/mismatch_square"], "layers_root": arrays["gaps/k3"][total]}
        yield "routing/total/trend", counts | moments

    batch = packed(random_sequences(2, [30, 5], 0.2))
    by_pass = ready.measure(batch, PRESETS)
    with_trial = ready.measure(batch, PRESETS, makers=(*MAKERS, Maker("trial", sums, tables)))
    trial = with_trial.arrays.record("routing/total/trend")
    assert with_trial.arrays.without(["routing/total/trend"]) == by_pass.arrays
    assert seen == [35] and trial == {
        "layers": 35 - by_pass.gaps["total"].sums["exact_tokens"],
        "layers_square": 35,
        "layers_moment": by_pass.cross["mismatch_square"],
        "layers_root": by_pass.gaps["total"].sums["k3"],
    }


def test_float64_log_probs_are_measured_by_torch(ready: Measurer) -> None:
    batch = packed(random_sequences(2, [30, 5], 0.2), np.float64)
    assert ready.measure(batch, PRESETS) == Measurer("cpu", keep_worst=1).measure(batch, PRESETS)


def test_nothing_at_all_has_a_summary_of_zeros(ready: Measurer) -> None:
    empty = ready.measure(packed([]), PRESETS)
    assert isinstance(empty, StepSummary) and empty.batch["tokens"] == 0


def files(cache: Path) -> list[Path]:
    """Those of the pass: there may be others beside it."""
    found = library.find_pass(cache)
    assert found is not None
    return [path for path in found.rglob("*") if path.is_file()]


def test_a_pass_that_is_not_whole_is_not_loaded(cache: Path) -> None:
    first, second, *_ = files(cache)
    content = first.read_bytes()
    first.write_bytes(content[:-1])
    assert library.find_pass(cache) is None
    first.write_bytes(content)
    second.unlink()
    assert library.find_pass(cache) is None


def test_a_pass_that_others_can_write_is_refused(cache: Path) -> None:
    file = files(cache)[0]
    for path in (file, file.parent):
        mode = path.stat().st_mode
        path.chmod(mode | 0o020)
        with pytest.raises(PermissionError, match="others can write to"):
            library.find_pass(cache)
        path.chmod(mode)
    assert library.find_pass(cache) is not None


def test_a_pass_of_other_sources_is_not_loaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "SOURCES", ("fused", "summary"))
    assert library.find_pass(cache) is None


def test_one_pass_serves_every_installation_of_the_same_sources(cache: Path, tmp_path: Path) -> None:
    """It is loaded where the package lies elsewhere, and nothing is compiled: that takes a minute."""
    shutil.copytree(library.ROOT, tmp_path / "offpolicy_monitor", ignore=shutil.ignore_patterns("__pycache__"))
    text = (
        "import json, offpolicy_monitor; from offpolicy_monitor.fused import compiled; "
        "from offpolicy_monitor.measure import library; from offpolicy_monitor.measure.fused import fused_pass; "
        "assert fused_pass(1)(library.folder()) is not None; found = [entry.stats for entry in compiled.ENTRIES]; "
        "print(json.dumps([offpolicy_monitor.__file__, sum(sum(own.cache_hits.values()) for own in found), "
        "sum(sum(own.cache_misses.values()) for own in found)]))"
    )
    own = {"PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(cache.parent)}
    done = subprocess.run(
        [sys.executable, "-c", text], env=os.environ | own, capture_output=True, text=True, check=True
    )
    lies, hits, misses = json.loads(done.stdout)
    assert Path(lies).is_relative_to(tmp_path)
    assert hits > 0 and misses == 0
