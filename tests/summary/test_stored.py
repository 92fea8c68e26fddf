"""The stored form: bit for bit back and forth, old versions read for ever, anything else refused."""

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from offpolicy_monitor.summary import StepSummary, StoredSummaryError, from_bytes, to_bytes
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.scheme import scheme_of
from offpolicy_monitor.summary.stored import version_2, version_3
from offpolicy_monitor.summary.stored.named import Parts, summary_of
from offpolicy_monitor.summary.tables.worst import Worst
from zstandard import ZstdCompressor

from tests.summary.full import FULL
from tests.summary.summaries import SUMMARIES

#: Each pair was written when its version was the newest; none of these files may ever be written again.
VERSION_1 = Path(__file__).with_name("stored_v1.bin")
VERSION_1_FIGURES = Path(__file__).with_name("stored_v1.json")
VERSION_2 = Path(__file__).with_name("stored_v2.bin")
VERSION_2_FIGURES = Path(__file__).with_name("stored_v2.json")
VERSION_3 = Path(__file__).with_name("stored_v3.bin")
VERSION_3_FIGURES = Path(__file__).with_name("stored_v3.json")
VERSION_4 = Path(__file__).with_name("stored_v4.bin")
VERSION_4_FIGURES = Path(__file__).with_name("stored_v4.json")
VERSION_6 = Path(__file__).with_name("stored_v6.bin")
VERSION_6_FIGURES = Path(__file__).with_name("stored_v6.json")


@given(summary=SUMMARIES)
def test_a_summary_is_read_back_bit_for_bit(summary: StepSummary) -> None:
    stored = to_bytes(summary)
    assert from_bytes(stored) == summary
    assert to_bytes(from_bytes(stored)) == stored


def assert_pinned(got: Any, pinned: Any, path: str = "") -> None:
    """Everything pinned is still answered; later releases may answer more."""
    if isinstance(pinned, dict):
        for key, value in pinned.items():
            assert key in got, f"{path}.{key}"
            assert_pinned(got[key], value, f"{path}.{key}")
    elif isinstance(pinned, float):
        assert got == pytest.approx(pinned, rel=1e-12, abs=1e-300), path
    else:
        assert got == pinned, path


def test_a_summary_stored_by_version_1_still_gives_its_figures() -> None:
    summary = from_bytes(VERSION_1.read_bytes())
    pinned = json.loads(VERSION_1_FIGURES.read_text())
    assert set(pinned["gaps"]) == {"mismatch", "staleness", "total"}
    assert len(pinned["methods"]) == 29
    assert_pinned(json.loads(json.dumps(summary.figures())), pinned)


def test_a_summary_stored_by_version_2_still_gives_its_figures_and_its_worst_sequences() -> None:
    summary = from_bytes(VERSION_2.read_bytes())
    pinned = json.loads(VERSION_2_FIGURES.read_text())
    assert {"breakdowns", "versions", "signature", "routing"} <= set(pinned)
    assert_pinned(json.loads(json.dumps(summary.step_figures())), pinned)
    assert len(summary.worst.sequences) == len(set(summary.worst.sequences.ids or ())) > 10
    assert len(summary.worst.sequences.kept)
    assert from_bytes(to_bytes(summary)) == summary


@pytest.mark.parametrize(
    ("file", "figures"),
    [(VERSION_3, VERSION_3_FIGURES), (VERSION_4, VERSION_4_FIGURES), (VERSION_6, VERSION_6_FIGURES)],
    ids=["3", "4", "6"],
)
def test_a_summary_stored_as_arrays_still_gives_its_figures_and_its_worst_sequences(file: Path, figures: Path) -> None:
    summary = from_bytes(file.read_bytes())
    assert_pinned(json.loads(json.dumps(summary.step_figures())), json.loads(figures.read_text()))
    assert len(summary.worst.sequences) == 7
    assert from_bytes(to_bytes(summary)) == summary


def test_tables_that_came_later_are_absent_from_every_merge_with_a_summary_of_an_older_version() -> None:
    later = {table.key for table in LAYOUT.tables if table.since > 3 and "{" not in table.key}
    assert later >= {"density/total", "batch#calibration", "batch#decimals"}
    assert later <= FULL.arrays.scheme.tables.keys()
    for path in (VERSION_1, VERSION_2, VERSION_3):
        old = from_bytes(path.read_bytes())
        for summary in (old, old.merge(FULL), FULL.merge(old), from_bytes(to_bytes(old.merge(FULL)))):
            assert later <= summary.arrays.absent and not later & summary.arrays.scheme.tables.keys()
            figures = summary.step_figures()
            assert not figures.get("calibration") and "decimals" not in figures["signature"]


def test_the_longest_sequences_are_absent_from_every_merge_with_a_summary_of_version_4() -> None:
    old = from_bytes(VERSION_4.read_bytes())
    assert "longest_fraction" in FULL.figures()
    for summary in (old, old.merge(FULL), FULL.merge(old)):
        assert "longest_fraction" not in summary.figures() and "calibration" in summary.step_figures()


def test_the_noise_floor_is_absent_from_every_merge_with_a_summary_of_version_6() -> None:
    old = from_bytes(VERSION_6.read_bytes())
    assert {"engine_internal", "cross_engine", "trainer", "attribution"} == FULL.figures()["noise_floor"].keys()
    for summary in (old, old.merge(FULL), FULL.merge(old), from_bytes(to_bytes(old.merge(FULL)))):
        assert "noise_floor" not in summary.figures() and "longest_fraction" in summary.figures()


@pytest.mark.parametrize("older", [VERSION_1, VERSION_2], ids=["1", "2"])
def test_a_count_of_the_batch_that_an_older_summary_lacks_is_absent_from_every_merge_with_it(older: Path) -> None:
    old, new = from_bytes(older.read_bytes()), from_bytes(VERSION_3.read_bytes())
    assert new.figures()["zero_filled_tokens"] > 0
    for summary in (old, old.merge(new), new.merge(old), from_bytes(to_bytes(new.merge(old)))):
        figures = summary.figures()
        assert figures["zero_filled_tokens"] is None and figures["suspect_tokens"]["exact_zero"] is not None
    assert StepSummary.empty().figures()["zero_filled_tokens"] == 0


def test_a_histogram_of_version_2_is_steps_between_counts_and_what_is_above_a_split() -> None:
    counts = version_2.histogram([5, 3, 2, -1, 4, 1, 1])
    assert {index: counts[index] for index in np.flatnonzero(counts)} == {10: 2, 13: 1, 14: 5}
    assert not version_2.histogram([]).any()


def test_a_summary_stored_by_version_1_merges_with_itself() -> None:
    summary = from_bytes(VERSION_1.read_bytes())
    merged, once = summary.merge(summary).figures(), summary.figures()
    for gap, figures in once["gaps"].items():
        assert merged["gaps"][gap]["tokens"] == 2 * figures["tokens"]
        for name in ("k1", "k3", "ess", "ratio_mean", "log_ratio_min"):
            assert merged["gaps"][gap][name] == pytest.approx(figures[name], rel=1e-12)


def stored(content: object) -> bytes:
    return zlib.compress(json.dumps(content).encode())


@pytest.mark.parametrize("version", [0, 2, 99, "1", None, [1], 1.5])
def test_an_unknown_version_of_the_first_form_is_refused(version: object) -> None:
    with pytest.raises(StoredSummaryError, match="not a summary that this release can read"):
        from_bytes(stored({"version": version, "batch": {}, "cross": {}, "gaps": {}, "methods": {}}))


@pytest.mark.parametrize("version", [0, 1, 2, LAYOUT.version + 1, 255])
def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(StoredSummaryError, match="not a summary that this release can read"):
        from_bytes(bytes([version]) + to_bytes(StepSummary())[1:])


HISTOGRAM_BEYOND_THE_LAST_BIN = {"total": {"sums": {}, "histograms": {"log_ratio/zero": [[10**6], [5]]}}}
DAMAGED = {
    "nothing": b"",
    "no zlib": b"no zlib at all",
    "no JSON": zlib.compress(b"{no json"),
    "no text": zlib.compress(b"\xff\xfe"),
    "a list": stored([]),
    "no version": stored({}),
    "a text": stored("text"),
    "cut short": to_bytes(StepSummary())[:-3],
    "a version alone": to_bytes(StepSummary())[:1],
    "more than was written": to_bytes(StepSummary()) + b"0",
    "a first version alone": stored({"version": 1}),
    "gaps in a list": stored({"version": 1, "batch": {}, "cross": {}, "gaps": [], "methods": {}}),
    "no histograms": stored({"version": 1, "batch": {}, "cross": {}, "gaps": {"total": {"sums": {}}}, "methods": {}}),
    "a bin too far": stored(
        {"version": 1, "batch": {}, "cross": {}, "gaps": HISTOGRAM_BEYOND_THE_LAST_BIN, "methods": {}}
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_bytes_that_hold_no_summary_are_refused(damage: str) -> None:
    with pytest.raises(StoredSummaryError):
        from_bytes(DAMAGED[damage])


def test_a_buffer_with_an_entry_twice_is_refused() -> None:
    found = bytearray(version_3.content(to_bytes(FULL)[1:]))
    steps = sum(map(len, version_3.headers_of(bytes(found)))) + 8
    found[steps + 2 : steps + 4] = b"\0\0"  # from the first entry that is not zero to the second
    with pytest.raises(ValueError, match="there twice"):
        version_3.parsed(bytes(found), 3)


OF_SHARD = ("breakdown/shard/3/total", 'breakdown/label:a"b/\u00e9/total')


@pytest.mark.parametrize("keys", [(), ("batch", "cross"), OF_SHARD, ("batch", "cross", *OF_SHARD)], ids=len)
def test_the_first_header_tells_the_keys_the_specs_and_what_is_absent(keys: tuple[str, ...]) -> None:
    for specs in ({}, FULL.specs):
        summary = StepSummary(Arrays(scheme_of(LAYOUT, keys), absent=frozenset({"cross"})), specs)
        header = version_3.headers_of(version_3.content(to_bytes(summary)[1:]))[0]
        assert json.loads(header) == {"keys": list(keys), "specs": specs, "absent": ["cross"]}


def test_the_stored_form_says_its_version() -> None:
    assert to_bytes(StepSummary())[0] == LAYOUT.version


def test_what_is_not_finite_is_not_stored() -> None:
    with pytest.raises(ValueError, match="NaN and infinity"):
        to_bytes(summary_of(Parts(cross={"tokens": 1, "mismatch_square": float("inf")})))


def test_a_stored_shard_of_every_preset_stays_small() -> None:
    # Some 13,600 bytes, 330 of densities and 130 of calibration and decimals; floats differ from machine to machine.
    assert len(to_bytes(replace(FULL, worst=Worst()))) < 14_400


def test_whole_numbers_that_were_stored_without_a_sign_merge_and_are_stored_again() -> None:
    content = version_3.content(to_bytes(FULL)[1:])
    shape, own = version_3.headers_of(content)
    unsigned = own.replace(b'["<i8",', b'["<u8",')
    assert unsigned != own
    stored = to_bytes(FULL)[:1] + ZstdCompressor().compress(
        struct.pack("<2I", len(shape), len(unsigned)) + shape + unsigned + content[8 + len(shape) + len(own) :]
    )
    odd = replace(from_bytes(stored), worst=Worst())
    assert odd == replace(FULL, worst=Worst())
    again = from_bytes(to_bytes(odd.merge(odd)))
    assert again == odd.merge(odd)
    assert again.figures() == odd.merge(odd).figures()
