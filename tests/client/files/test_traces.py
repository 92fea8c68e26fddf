"""prime-rl's newer layout: episodes in numbered streams, and annotations beside them that say what became of them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from offpolicy_monitor.client.files import streams
from offpolicy_monitor.client.files.formats import FORMATS, guessed
from offpolicy_monitor.client.files.record import Bad, Record, Unfinished, Unreadable
from offpolicy_monitor.client.files.sealed import open_sealed
from offpolicy_monitor.client.files.units import Unit

from tests.client.files import dumps, traces
from tests.client.files.test_following import Setting

FORMAT = FORMATS["prime-rl"]
RUN = "monitors/file/traces"
SEALED = Path(__file__).parent / "data" / "sealed_by_pyzstd.jsonl.zst"


def units(folder: Path) -> list[Unit]:
    return FORMAT.in_folder(folder)


def record(unit: Unit) -> Record:
    (item,) = FORMAT.read(unit)
    assert isinstance(item, Record)
    return item


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("sealed", [True, False])
def test_a_step_of_traces_has_engine_and_trainer_with_advantages_entropies_rewards_and_versions(
    tmp_path: Path, indexed: bool, sealed: bool
) -> None:
    for step in (4, 5):
        for path in traces.write(tmp_path / RUN, step, indexed=indexed):
            if sealed and step == 5:
                traces.seal(path)
    assert [unit.step for unit in units(tmp_path)] == [4, 5]
    found = record(units(tmp_path)[0])
    answers = dumps.answers(4)
    assert found.envelope == {
        "step": 4, "policy_version": 3, "shard": 0, "shards": 1,
        "sequence_ids": ["trace-4-0/0", "trace-4-1/0", "trace-4-2/0"],
    }  # fmt: skip
    assert found.arrays["lengths"].tolist() == [dumps.PROMPT + length for length in dumps.LENGTHS]
    mask = found.arrays["mask"]
    for name, key in (("sampling_logprobs", "mu"), ("logprobs", "old")):
        expected = np.round(np.concatenate([answer[key] for answer in answers]), traces.DECIMALS).astype(np.float32)
        assert found.arrays[name][mask].tolist() == expected.tolist()
    assert found.arrays["advantages"][mask].tolist() == [-1.0] * 4 + [0.0] * 2 + [1.0] * 3
    assert (found.arrays["entropy"][mask] == 0.5).all()
    assert found.arrays["rewards"].tolist() == [0.0, 1.0, 2.0]
    assert found.arrays["policy_versions"].tolist() == [1, 1, 1]


def test_a_run_its_folder_of_traces_and_a_file_of_the_trainer_are_all_found(tmp_path: Path) -> None:
    path = traces.write(tmp_path / RUN, 1)[2]
    for place in (tmp_path, tmp_path / "monitors" / "file", tmp_path / RUN, path):
        assert guessed(place).name == "prime-rl"
        assert [unit.step for unit in FORMAT.found(place)] == [1]


def test_both_layouts_of_one_folder_are_read_in_step_order(tmp_path: Path) -> None:
    traces.write(tmp_path / RUN, 3)
    for step in (2, 4):
        dumps.write_prime_rl(tmp_path / "token_exports", step)
    assert [unit.step for unit in units(tmp_path)] == [2, 3, 4]


def test_branches_of_a_trace_share_their_beginning_and_are_sequences_of_their_own(tmp_path: Path) -> None:
    root = tmp_path / RUN
    told = traces.episode(1, 0)
    told["traces"] = [
        {
            "id": "t",
            "nodes": [
                traces.node(None, [False], []),
                traces.node(0, [True, True], [-0.5, -0.25]),
                traces.node(1, [False, True], [-1.5]),
                traces.node(1, [True], [-2.5]),
            ],
        }
    ]
    branches = [
        {"index": 0, "trainer_logprobs": [None, -1, -1, None, -1]},
        {"index": 1, "trainer_logprobs": [None, -1]},
    ]
    traces.append(root, "stream", [told])
    traces.append(root, traces.ORCHESTRATOR, [{"trace_id": "t", "info": {"ship": {"step": 1}}, "branches": []}])
    traces.append(root, traces.TRAINER, [{"trace_id": "t", "info": {}, "branches": branches}])
    found = record(units(tmp_path)[0])
    assert found.arrays["lengths"].tolist() == [5, 2]
    assert found.arrays["sampling_logprobs"][found.arrays["mask"]].tolist() == [-0.5, -0.25, -1.5, -0.5]


def test_episodes_of_a_frozen_sampler_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / RUN
    traces.write(root, 1)
    (root / "stream" / "00000.jsonl").unlink()
    (root / "stream.index.jsonl").unlink()
    traces.append(root, "stream", [traces.episode(1, version=None)])
    assert list(FORMAT.read(units(tmp_path)[0])) == []


def test_a_step_is_posted_once_the_trainer_has_gone_on_to_the_next(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "prime-rl", settle=60.0)
    traces.write(tmp_path / RUN, 1)
    assert setting.look() == []
    assert setting.delivery.waiting == {f"{RUN}/step_1": "it is still being written"}
    traces.write(tmp_path / RUN, 2, ended=False)
    setting.follower.readiness.settle = 0.0
    assert setting.look() == [1, 2]


def test_a_step_that_has_settled_is_posted_once_and_stays_so_after_a_restart(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "prime-rl")
    traces.write(tmp_path / RUN, 1)
    assert (setting.look(), setting.look()) == ([1], [])
    traces.write(tmp_path / RUN, 2)
    assert setting.look() == [2]
    setting.again()
    assert setting.look() == []
    assert setting.posts.got == [(1, 0), (2, 0)]


def test_a_stream_that_is_sealed_while_it_is_followed_goes_on(tmp_path: Path) -> None:
    root, setting = tmp_path / RUN, Setting(tmp_path, "prime-rl")
    paths = traces.write(root, 1)
    assert setting.look() == [1]
    traces.write(root, 2)
    for path in paths:
        traces.seal(path)
    traces.write(root, 3, chunk=1)
    assert setting.look() == [2, 3]


def test_a_trainer_that_goes_back_to_a_checkpoint_begins_another_attempt(tmp_path: Path) -> None:
    root, setting = tmp_path / RUN, Setting(tmp_path, "prime-rl")
    for step in (1, 2, 3):
        traces.write(root, step)
    assert setting.look() == [1, 2, 3]
    again = [{**line, "trace_id": f"again-{line['trace_id']}"} for line in traces.trained(2)]
    told = traces.episode(2, 1)
    for trace in told["traces"]:
        trace["id"] = f"again-{trace['id']}"
    traces.append(root, "stream", [told])
    ships = [{**line, "trace_id": f"again-{line['trace_id']}"} for line in traces.shipped(2)]
    traces.append(root, traces.ORCHESTRATOR, ships)
    traces.append(root, traces.TRAINER, again)
    assert setting.look() == [2]
    assert setting.posts.got[-1] == (2, 1)


def test_a_folder_that_was_emptied_for_a_new_run_is_read_from_its_start(tmp_path: Path) -> None:
    root, setting = tmp_path / RUN, Setting(tmp_path, "prime-rl")
    for step in (1, 2):
        traces.write(root, step)
    assert setting.look() == [1, 2]
    shutil.rmtree(root)
    assert setting.look() == []
    traces.write(root, 1)
    assert setting.look() == [1]


def test_records_wait_for_the_orchestrator_to_say_their_step_and_for_their_episode(tmp_path: Path) -> None:
    root = tmp_path / RUN
    traces.append(root, traces.TRAINER, traces.trained(1))
    assert units(tmp_path) == []
    traces.append(root, traces.ORCHESTRATOR, traces.shipped(1))
    (unit,) = units(tmp_path)
    with pytest.raises(Unfinished, match="the episode of trace trace-1-0 is not there yet"):
        list(FORMAT.read(unit))
    traces.append(root, "stream", [traces.episode(1, 0)])
    assert record(units(tmp_path)[0]).arrays["lengths"].tolist() == [6, 4, 5]


def test_a_record_that_nobody_shipped_is_of_the_step_of_those_beside_it(tmp_path: Path) -> None:
    root = tmp_path / RUN
    for step in (4, 5):
        traces.append(root, "stream", [traces.episode(step, 0)])
        traces.append(root, traces.ORCHESTRATOR, traces.shipped(step)[1:])
        traces.append(root, traces.TRAINER, traces.trained(step))
    found = {unit.step: record(unit).envelope["sequence_ids"] for unit in units(tmp_path)}
    assert found == {4: ["trace-4-0/0", "trace-4-1/0", "trace-4-2/0", "trace-5-0/0"], 5: ["trace-5-1/0", "trace-5-2/0"]}


def test_the_step_that_a_trainer_names_itself_is_taken(tmp_path: Path) -> None:
    root = tmp_path / RUN
    traces.append(root, "stream", [traces.episode(7, 6)])
    lines = [{**line, "info": {"train": {"trained_at_step": 8}}} for line in traces.trained(7)]
    traces.append(root, traces.TRAINER, lines)
    assert [unit.step for unit in units(tmp_path)] == [8]


def test_a_record_that_does_not_fit_its_episode_is_bad_and_says_so(tmp_path: Path) -> None:
    root = tmp_path / RUN
    traces.write(root, 1)
    (root / traces.TRAINER / "00000.jsonl").unlink()
    (root / f"{traces.TRAINER}.index.jsonl").unlink()
    line = {"trace_id": "trace-1-0", "info": {}, "branches": [{"index": 0, "trainer_logprobs": [-1.0] * 99}]}
    traces.append(root, traces.TRAINER, [line])
    (item,) = FORMAT.read(units(tmp_path)[0])
    assert isinstance(item, Bad) and item.reason == "4 log-probs of 4 sampled tokens, 99 of 6 trained on"


def test_a_chunk_that_pyzstd_sealed_is_read_from_any_line_of_it() -> None:
    expected = [json.dumps({"line": i, "logprobs": [-(i % 7) / 8] * 20}).encode() + b"\n" for i in range(40)]
    with open_sealed(SEALED) as file:
        assert list(file) == expected
        for index in (39, 0, 23):
            file.seek(sum(map(len, expected[:index])))
            assert file.readline() == expected[index]


def test_a_sealed_file_without_its_table_or_with_a_broken_frame_is_refused(tmp_path: Path) -> None:
    whole = SEALED.read_bytes()
    (tmp_path / "a.zst").write_bytes(whole[:-9])
    with pytest.raises(Unreadable, match="not in zstd's seekable format: unpack it with zstd -d"):
        open_sealed(tmp_path / "a.zst")
    (tmp_path / "b.zst").write_bytes(bytes(30) + whole[30:])
    with open_sealed(tmp_path / "b.zst") as file, pytest.raises(Unreadable, match="is damaged"):
        file.readline()


def test_a_torn_last_line_of_a_stream_without_an_index_is_told_once_it_is_whole(tmp_path: Path) -> None:
    stream = streams.Stream(tmp_path / "stream")
    path = traces.append(tmp_path, "stream", [{"trace_id": "a", "info": {}}], indexed=False)
    with path.open("a") as file:
        file.write('{"trace_id":')
    assert [row["trace_id"] for _, row in stream.news()] == ["a"]
    with path.open("a") as file:
        file.write('"b"}\n')
    assert [row["trace_id"] for _, row in stream.news()] == ["b"]
