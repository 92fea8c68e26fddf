import io
import json
import os
import time
from pathlib import Path

import pytest
from offpolicy_monitor.client.files.deliver import BadDump, Choice, Delivery
from offpolicy_monitor.client.files.follow import Follower
from offpolicy_monitor.client.files.formats import FORMATS
from offpolicy_monitor.client.files.progress import Progress
from offpolicy_monitor.client.files.record import Record
from offpolicy_monitor.client.files.state import State
from offpolicy_monitor.client.files.units import Readiness
from offpolicy_monitor.errors import ConfigurationError, Refusal

from tests.client.files import dumps

ALL = Choice()


class Posts:
    """A service that keeps what it is posted as (step, attempt), and refuses the steps in `refused`."""

    def __init__(self) -> None:
        self.got: list[tuple[int, int | None]] = []
        self.refused: set[int] = set()

    def __call__(self, record: Record, attempt: int | None) -> bool:
        if record.order[0] in self.refused:
            raise Refusal(422, "refused", "422 logprobs: not so")
        self.got.append((record.order[0], attempt))
        return False

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.got]


class Setting:
    """A folder that is followed; `again()` is another process that resumes."""

    def __init__(self, folder: Path, form: str, settle: float = 0.0, choice: Choice = ALL) -> None:
        self.folder, self.form, self.settle, self.choice = folder, form, settle, choice
        self.posts, self.notes = Posts(), io.StringIO()
        self.again()

    def again(self, url: str = "http://a") -> None:
        state = State(self.folder / ".state.json", url, "r1")
        self.delivery = Delivery(FORMATS[self.form], self.posts, state, self.choice, Progress(self.notes, None))
        self.follower = Follower(self.folder, self.delivery, Readiness(self.settle))

    def look(self) -> list[int]:
        before = len(self.posts.got)
        self.follower.look()
        return self.posts.steps[before:]


def test_new_lines_are_posted_as_they_come_and_none_twice(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "jsonl")
    path = dumps.write_jsonl(tmp_path / "a.jsonl", [0, 1])
    assert setting.look() == [0, 1]
    assert setting.look() == []
    dumps.write_jsonl(path, [2])
    assert setting.look() == [2]
    setting.again()
    assert setting.look() == []


def test_a_torn_last_line_is_waited_for_and_posted_whole(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "jsonl")
    path = dumps.write_jsonl(tmp_path / "a.jsonl", [0])
    line = json.dumps(dumps.body(1)) + "\n"
    for part in (line[:7], line[7:-9], line[-9:-1]):
        with path.open("a") as file:
            file.write(part)
        seen = setting.look()
        assert (1 in seen) == (part == line[-9:-1])
        setting.again()
    dumps.write_jsonl(path, [])
    with path.open("a") as file:
        file.write("\n")
    setting.look()
    assert setting.posts.steps == [0, 1]


def test_lines_of_several_files_come_in_step_order(tmp_path: Path) -> None:
    dumps.write_jsonl(tmp_path / "rank0.jsonl", [0, 2, 4])
    dumps.write_jsonl(tmp_path / "rank1.jsonl", [1, 3, 5])
    assert Setting(tmp_path, "jsonl").look() == [0, 1, 2, 3, 4, 5]


def test_a_rotated_file_is_gone_on_with_under_its_new_name(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "jsonl")
    path = dumps.write_jsonl(tmp_path / "a.jsonl", [0, 1])
    setting.look()
    dumps.write_jsonl(path, [2])
    path.rename(tmp_path / "a.jsonl.1")
    dumps.write_jsonl(path, [3])
    assert setting.look() == [2, 3]
    path.with_name("a.jsonl.1").rename(tmp_path / "a.jsonl.2")
    path.rename(tmp_path / "a.jsonl.1")
    setting.again()
    assert setting.look() == []
    (tmp_path / "a.jsonl.2").unlink()
    dumps.write_jsonl(path, [4])
    assert setting.look() == [4]


def test_a_file_truncated_and_written_anew_is_read_from_its_start(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "jsonl")
    path = dumps.write_jsonl(tmp_path / "a.jsonl", [0, 1, 2])
    setting.look()
    path.write_text("")
    assert setting.look() == []
    dumps.write_jsonl(path, [3])
    assert setting.look() == [3]


def test_a_step_without_its_marker_is_waited_for_and_holds_no_other_up(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "prime-rl", settle=60)
    dumps.write_prime_rl(tmp_path, 1, stable=False)
    dumps.write_prime_rl(tmp_path, 2)
    assert setting.look() == [2]
    assert setting.delivery.waiting == {"step_1": "its STABLE marker is not there yet"}
    (tmp_path / "step_1" / "STABLE").touch()
    assert setting.look() == [1]
    assert setting.delivery.waiting == {}


def test_a_marker_of_an_earlier_writing_ends_nothing(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "prime-rl")
    os.utime(dumps.write_prime_rl(tmp_path, 1) / "STABLE", (1, 1))
    assert setting.look() == []
    assert setting.delivery.waiting == {"step_1": "its STABLE marker is older than its files"}
    (tmp_path / "step_1" / "STABLE").touch()
    assert setting.look() == [1]


def test_files_without_a_marker_are_waited_for_until_they_rest(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "nemo-rl", settle=0.3)
    path = dumps.write_nemo_rl(tmp_path, 1)
    assert setting.look() == []
    with path.open("a") as file:
        time.sleep(0.2)
        file.write(path.read_text().splitlines()[0] + "\n")
    assert setting.look() == []
    time.sleep(0.2)
    assert setting.look() == []
    time.sleep(0.15)
    assert setting.look() == [1]


@pytest.mark.parametrize("form", ["nemo-rl", "slime", "safetensors"])
def test_a_file_cut_short_is_never_posted_and_is_once_it_is_whole(tmp_path: Path, form: str) -> None:
    write = {"nemo-rl": dumps.write_nemo_rl, "slime": dumps.write_slime, "safetensors": dumps.write_frame}[form]
    setting = Setting(tmp_path, form)
    path = write(tmp_path, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert setting.look() == []
    assert "not whole yet" in next(iter(setting.delivery.waiting.values()))
    path.write_bytes(whole)
    assert setting.look() == [1]


def test_steps_that_a_restarted_trainer_writes_again_are_one_new_attempt(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "prime-rl")
    for step in (1, 2, 3):
        dumps.write_prime_rl(tmp_path, step)
    setting.look()
    for step in (2, 3):
        row = dumps.prime_rl_record(step, 2, 0, dumps.answers(9)[0])
        (tmp_path / f"step_{step}" / "rank_2.jsonl").write_text(json.dumps(row) + "\n")
        (tmp_path / f"step_{step}" / "STABLE").touch()
    dumps.write_prime_rl(tmp_path, 4)
    setting.again()
    setting.look()
    assert setting.posts.got == [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (4, 1)]
    assert "step_2 was written again: posted as attempt 1" in setting.notes.getvalue()


def test_files_touched_but_not_changed_are_not_posted_again(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "nemo-rl")
    path = dumps.write_nemo_rl(tmp_path, 1)
    assert setting.look() == [1]
    os.utime(path, (1, 1))
    assert setting.look() == []


def test_deleted_dumps_are_forgotten(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "nemo-rl")
    dumps.write_nemo_rl(tmp_path, 1).rename(tmp_path / "train_data_step2.jsonl")
    dumps.write_nemo_rl(tmp_path, 1)
    assert setting.look() == [1, 2]
    (tmp_path / "train_data_step1.jsonl").unlink()
    setting.look()
    assert list(json.loads((tmp_path / ".state.json").read_text())["units"]) == ["train_data_step2.jsonl"]


def test_the_state_moves_only_behind_the_acknowledgement(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "jsonl")
    dumps.write_jsonl(tmp_path / "a.jsonl", [0, 1, 2])
    setting.posts.refused = {1}
    with pytest.raises(BadDump, match=r"a\.jsonl:2: refused: 422 logprobs: not so"):
        setting.look()
    setting.delivery.state.save()
    setting.posts.refused = set()
    setting.again()
    assert setting.look() == [1, 2]


def test_a_service_elsewhere_is_posted_everything(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "jsonl")
    dumps.write_jsonl(tmp_path / "a.jsonl", [0, 1])
    setting.look()
    setting.again("http://b")
    assert setting.look() == [0, 1]


def test_bad_lines_are_counted_and_gone_by_where_that_is_chosen(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "jsonl", choice=Choice(skip_bad=True))
    path = dumps.write_jsonl(tmp_path / "a.jsonl", [0])
    path.write_text(path.read_text() + "{]\n")
    dumps.write_jsonl(path, [1, 2])
    setting.posts.refused = {1}
    assert setting.look() == [0, 2]
    assert setting.delivery.bad == 2
    assert f"skipped {path}:2: is not valid JSON" in setting.notes.getvalue()


def test_only_the_chosen_steps_are_posted(tmp_path: Path) -> None:
    dumps.write_jsonl(tmp_path / "a.jsonl", range(6))
    assert Setting(tmp_path, "jsonl", choice=Choice(first=2, last=4)).look() == [2, 3, 4]
    for step in range(6):
        dumps.write_nemo_rl(tmp_path, step)
    assert Setting(tmp_path, "nemo-rl", choice=Choice(first=5)).look() == [5]


def test_a_state_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".state.json").write_text('{"version": 9}')
    with pytest.raises(ConfigurationError, match="is no state file of this program"):
        Setting(tmp_path, "jsonl")


def test_progress_reads_as_share_rate_and_time_left() -> None:
    seconds = iter([0.0, 10.0, 10.0, 10.0, 10.0])
    stream = io.StringIO()
    progress = Progress(stream, 40_000_000, lambda: next(seconds))
    progress.reached("a", 10_000_000, Record("a", {"step": 7}, {}, 0))
    assert stream.getvalue() == " 25%  10.0 MB of 40.0 MB  1.0 MB/s  ETA 0:30  step 7\n"
