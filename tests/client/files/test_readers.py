import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from offpolicy_monitor.client.files import jsonl
from offpolicy_monitor.client.files.formats import FORMATS, guessed
from offpolicy_monitor.client.files.record import Bad, Item, Record, Unfinished
from offpolicy_monitor.client.files.rows import Row, records
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.wire.frame import encode

from tests.client.files import dumps

EXPECTED = dumps.answers(4)
MU = np.concatenate([a["mu"] for a in EXPECTED])
OLD = np.concatenate([a["old"] for a in EXPECTED])


def items(name: str, *paths: Path) -> list[Item]:
    return [item for unit in FORMATS[name].units(paths) for item in FORMATS[name].read(unit)]


def record(name: str, *paths: Path) -> Record:
    (item,) = items(name, *paths)
    assert isinstance(item, Record)
    return item


def bad(name: str, *paths: Path) -> Bad:
    item = items(name, *paths)[0]
    assert isinstance(item, Bad)
    return item


def under_mask(found: Record, name: str) -> Any:
    return found.arrays[name][found.arrays["mask"]]


def test_a_prime_rl_step_is_all_ranks_in_their_order_with_engine_and_current_policy(tmp_path: Path) -> None:
    found = record("prime-rl", *dumps.write_prime_rl(tmp_path, 4).iterdir())
    assert found.envelope == {
        "step": 4, "shard": 0, "shards": 1, "sequence_ids": ["rank2/0", "rank2/1", "rank10/0"],
    }  # fmt: skip
    assert sorted(found.arrays) == ["advantages", "entropy", "lengths", "logprobs", "mask", "sampling_logprobs"]
    assert found.arrays["lengths"].tolist() == [6, 4, 5]
    assert under_mask(found, "sampling_logprobs").tolist() == MU.tolist()
    assert under_mask(found, "logprobs").tolist() == OLD.tolist()
    assert under_mask(found, "advantages").tolist() == [-1.0] * 4 + [0.0] * 2 + [1.0] * 3


def test_prime_rl_tokens_that_only_the_cross_entropy_stream_weighs_are_outside_the_mask(tmp_path: Path) -> None:
    row = dumps.prime_rl_record(1, 0, 0, {"mu": [-0.5, -0.25], "old": [-0.5, -0.5], "advantages": [0, 0]})
    row |= {"rl_weights": [0, 0, 0, 1.0], "ce_weights": [0, 0, 1.0, 0]}
    (tmp_path / "step_1").mkdir()
    path = tmp_path / "step_1" / "rank_0.jsonl"
    path.write_text(json.dumps(row) + "\n")
    assert record("prime-rl", path).arrays["mask"].tolist() == [False, False, False, True]


def test_nulls_of_prime_rl_are_not_a_number(tmp_path: Path) -> None:
    row = dumps.prime_rl_record(1, 0, 0, {"mu": [None, -0.25], "old": [-0.5, -0.5], "advantages": [0, 0]})  # pyrefly: ignore[bad-assignment]
    (tmp_path / "step_1").mkdir()
    path = tmp_path / "step_1" / "rank_0.jsonl"
    path.write_text(json.dumps(row))
    found = under_mask(record("prime-rl", path), "sampling_logprobs")
    assert np.isnan(found[0]) and found[1] == -0.25


def test_a_nemo_rl_step_has_engine_and_recompute_without_its_padding(tmp_path: Path) -> None:
    found = record("nemo-rl", dumps.write_nemo_rl(tmp_path, 4))
    assert found.arrays["lengths"].tolist() == [6, 4, 5]
    assert under_mask(found, "sampling_logprobs").tolist() == MU.tolist()
    assert under_mask(found, "old_logprobs").tolist() == OLD.tolist()
    assert found.arrays["rewards"].tolist() == [0.0, 1.0, 2.0]
    assert found.envelope["step"] == 4


def test_a_nemo_rl_recompute_of_zeros_is_none(tmp_path: Path) -> None:
    path = dumps.write_nemo_rl(tmp_path, 4)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["prev_logprobs"] = [[0.0] * len(row["prev_logprobs"][0])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert bad("nemo-rl", path).reason == "has sampling_logprobs alone, and a gap needs two log-probs"


def test_a_nemo_rl_sample_outside_the_loss_is_outside_the_mask(tmp_path: Path) -> None:
    path = dumps.write_nemo_rl(tmp_path, 4)
    path.write_text(path.read_text().replace('"sample_loss_mask": [1.0]', '"sample_loss_mask": [0.0]', 1))
    assert under_mask(record("nemo-rl", path), "old_logprobs").tolist() == OLD[4:].tolist()


@pytest.mark.parametrize("by_rank", [False, True])
def test_a_slime_train_dump_has_engine_and_recompute(tmp_path: Path, by_rank: bool) -> None:
    paths = dumps.write_slime_by_rank(tmp_path, 4) if by_rank else [dumps.write_slime(tmp_path, 4)]
    found = record("slime", *paths)
    assert found.arrays["lengths"].tolist() == list(dumps.LENGTHS)
    assert found.arrays["sampling_logprobs"].tolist() == MU.tolist()
    assert found.arrays["old_logprobs"].tolist() == OLD.tolist()
    assert found.arrays["rewards"].tolist() == [0.0, 1.0, 2.0]
    assert found.envelope["sequence_ids"] == ["sample0", "sample1", "sample2"]


def test_a_slime_rollout_dump_says_which_flag_gives_the_rest(tmp_path: Path) -> None:
    sample = {"index": 0, "rollout_log_probs": [-0.5], "loss_mask": [1], "reward": 1.0, "status": "completed"}
    torch.save({"rollout_id": 3, "samples": [sample]}, tmp_path / "3.pt")
    assert "lacks log_probs: dump it with --save-debug-train-data" in bad("slime", tmp_path / "3.pt").reason


def test_code_in_a_slime_dump_is_not_run(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"samples": [Runs()]}, tmp_path / "3.pt")
    assert "holds more than tensors and plain values" in bad("slime", tmp_path / "3.pt").reason
    assert not (tmp_path / "ran").exists()


def test_half_a_slime_dump_is_unfinished(tmp_path: Path) -> None:
    path = dumps.write_slime(tmp_path, 1)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(Unfinished, match="not whole yet"):
        items("slime", path)


def test_a_step_of_many_tokens_is_cut_into_shards_of_whole_sequences() -> None:
    rows = [Row({"sampling_logprobs": np.zeros(n), "logprobs": np.ones(n)}) for n in (3, 3, 5, 1, 9)]
    found = list(records("x", {"step": 1}, rows, 100, most=6))
    assert [item.arrays["lengths"].tolist() for item in found if isinstance(item, Record)] == [[3, 3], [5, 1], [9]]
    assert [item.kwargs["shard"] for item in found if isinstance(item, Record)] == [0, 1, 2]
    assert {item.kwargs["shards"] for item in found if isinstance(item, Record)} == {3}
    assert [item.end for item in found] == [33, 66, 100]


def test_a_line_of_our_jsonl_is_the_body_of_a_post(tmp_path: Path) -> None:
    path = dumps.write_jsonl(tmp_path / "a.jsonl", [4, 5])
    found = list(jsonl.read(path))
    assert [item.kwargs for item in found if isinstance(item, Record)] == [dumps.body(4), dumps.body(5)]
    assert [item.line for item in found] == [1, 2]
    assert found[1].end == path.stat().st_size
    assert [item.line for item in jsonl.read(path, found[0].end, 1)] == [2]


def test_a_whole_last_line_without_its_end_is_taken_and_half_a_one_is_not(tmp_path: Path) -> None:
    path = dumps.write_jsonl(tmp_path / "a.jsonl", [4])
    text = path.read_text().rstrip("\n")
    path.write_text(text)
    assert len(list(jsonl.read(path))) == 1
    path.write_text(text + "\n" + text[:-1])
    reading = jsonl.read(path)
    assert isinstance(next(reading), Record)
    with pytest.raises(Unfinished, match=r"a\.jsonl:2: the last line is not whole yet"):
        next(reading)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "is not a JSON object"),
        ('{"step": 1, "logprobs": [NaN]}', "is not valid JSON: NaN is not JSON: write null"),
        ('{"minibatch": 1}', "step must be an integer of at least 0, not None"),
        ('{"step": true}', "step must be an integer of at least 0, not True"),
        ('{"step": 1', "is not valid JSON"),
        ("\x00\x00", "is not valid JSON"),
    ],
)
def test_a_malformed_line_is_named_with_its_reason_and_the_next_one_read(
    tmp_path: Path, line: str, reason: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line + "\n\n")
    dumps.write_jsonl(path, [2])
    first, second = jsonl.read(path)
    assert isinstance(first, Bad) and first.where == f"{path}:1" and reason in first.reason
    assert isinstance(second, Record) and second.where == f"{path}:3"


def test_a_safetensors_dump_keeps_bfloat16_as_it_is(tmp_path: Path) -> None:
    halves = np.array([0xBF80, 0xC000], np.uint16)  # -1 and -2
    parts = encode({"step": 9, "shard": 1, "shards": 2}, {"logprobs": halves, "lengths": np.array([2])}, {"logprobs"})
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"".join(parts))
    found = record("safetensors", path)
    assert found.bfloat16 == {"logprobs"} and found.arrays["logprobs"].tolist() == halves.tolist()
    assert found.order == (9, 0, 1)


@pytest.mark.parametrize("kept", [0, 5, 40, -1])
def test_a_safetensors_dump_shorter_than_its_header_says_is_unfinished(tmp_path: Path, kept: int) -> None:
    path = dumps.write_frame(tmp_path, 1)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(Unfinished, match="not whole yet"):
        items("safetensors", path)


def test_a_file_that_is_no_frame_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"no frame at all, but long enough to be one")
    assert "header" in bad("safetensors", path).reason


def test_units_come_in_step_order_whatever_their_names_sort_like(tmp_path: Path) -> None:
    for step in (10, 9, 100):
        dumps.write_nemo_rl(tmp_path, step)
        dumps.write_frame(tmp_path, step)
        dumps.write_slime(tmp_path, step)
        dumps.write_prime_rl(tmp_path / "token_exports", step)
    assert [unit.step for unit in FORMATS["nemo-rl"].in_folder(tmp_path)] == [9, 10, 100]
    assert [unit.step for unit in FORMATS["slime"].in_folder(tmp_path)] == [9, 10, 100]
    assert [unit.step for unit in FORMATS["prime-rl"].in_folder(tmp_path)] == [9, 10, 100]
    assert [unit.name for unit in FORMATS["safetensors"].in_folder(tmp_path)] == [
        "batch-9.safetensors", "batch-10.safetensors", "batch-100.safetensors",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "step"),
    [("3.pt", 3), ("3_1.pt", 3), ("run2_rollout_7.pt", 7), ("rollout_7_12.pt", 7), ("eval_3.pt", None)],
)
def test_names_of_slime_files_say_their_rollout(name: str, step: int | None) -> None:
    assert [unit.step for unit in FORMATS["slime"].units([Path("dumps") / name])] == ([] if step is None else [step])


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("step_3/rank_0.jsonl", "prime-rl"), ("train_data_step12.jsonl", "nemo-rl"), ("4.pt", "slime"),
        ("rank0.jsonl", "jsonl"), ("x.safetensors", "safetensors"),
    ],
)  # fmt: skip
def test_a_name_speaks_for_its_format(name: str, format_: str) -> None:
    assert guessed(Path(name)).name == format_


def test_a_folder_speaks_for_its_format_whether_of_a_run_or_of_a_step(tmp_path: Path) -> None:
    step = dumps.write_prime_rl(tmp_path / "token_exports", 3)
    for folder in (tmp_path, step.parent, step):
        assert guessed(folder).name == "prime-rl"
        assert [unit.step for unit in FORMATS["prime-rl"].found(folder)] == [3]


def test_an_unknown_name_asks_for_the_format() -> None:
    with pytest.raises(ConfigurationError, match=r"say --format prime-rl\|nemo-rl\|slime\|jsonl\|safetensors"):
        guessed(Path("dump.bin"))
