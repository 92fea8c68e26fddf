"""A file of figures is read whatever wrote it, and a bad one is refused by its field and its line."""

import csv
import json
from pathlib import Path

import pytest
from offpolicy_monitor.backtest.errors import BadHistory
from offpolicy_monitor.backtest.tables import read

WANTED = {"a": {1: 0.5, 3: 0.25}, "b": {1: 7.0, 2: 8.0, 3: 9.0}}
FORMS = {
    "h.csv": "step,a,b\n1,0.5,7\n2,,8\n3,0.25,9\n",
    "tabs.csv": "Step\ta\tb\n1\t0.5\t7\n2\tNaN\t8\n3\t0.25\t9\n",
    "wandb.csv": '"Step","my - run - a","my - run - a__MIN","my - run - b"\n1,0.5,0.4,7\n2,,,8\n3,0.25,0.2,9\n',
    "sparse.csv": "_step,a,b\n1,0.5,\n1,,7\n2,,8\n3,0.25,9\n",
    "again.csv": "train/global_step,a,b\n1,0.5,7\n2,,8\n3,4,4\n3,0.25,9\n",
    "long.csv": "run,tag,step,value\nr,a,1,0.5\nr,a,3,0.25\nr,b,1,7\nr,b,2,8\nr,b,3,9\n",
    "rows.json": json.dumps([{"_step": 1, "a": 0.5, "b": 7}, {"_step": 2, "b": 8}, {"_step": 3, "a": 0.25, "b": 9}]),
    "lists.json": json.dumps({"step": [1, 2, 3], "a": [0.5, None, 0.25], "b": [7, 8, 9]}),
    "figures.json": json.dumps({"steps": [1, 2, 3], "figures": {"a": [0.5, None, 0.25], "b": [7, 8, 9]}}),
    "h.jsonl": '{"step": 1, "a": 0.5, "b": 7}\n{"step": 2, "b": 8}\n\n{"step": 3, "a": 0.25, "b": 9}\n',
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_holds_the_same_history(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FORMS[name])
    table = read(tmp_path / name)
    assert {column: table.numbers(column) for column in table.columns} == WANTED
    assert table.steps == {1, 2, 3}


@pytest.mark.parametrize("text", ["Wall time,Step,Value\n1.5,1,0.5\n2.5,2,0.25\n", "[[1.5, 1, 0.5], [2.5, 2, 0.25]]"])
def test_a_download_of_tensorboard_has_its_tag_in_its_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run-gsm8k-tag-rollout_corr_k3_kl.csv"
    path.write_text(text)
    assert read(path).numbers("rollout_corr_k3_kl") == {1: 0.5, 2: 0.25}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(
    "name", ['a;b;c;"d"', "a\tb\tc\td", "a,b,c,d", "a\nb,;\tc", '""', "=1+1", "\u202egpj", "@a", "-a"]
)
def test_a_quoted_name_may_hold_whatever_delimits(delimiter: str, name: str, tmp_path: Path) -> None:
    with (tmp_path / "h.csv").open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_NONNUMERIC).writerows(
            [[name, "step", "b"], [0.5, 1, -7], ["", 2, 8]]
        )
    table = read(tmp_path / "h.csv")
    assert {column: table.numbers(column) for column in table.columns} == {name: {1: 0.5}, "b": {1: -7.0, 2: 8.0}}


REFUSED = {
    "": "is empty",
    "a,b\n1,2\n": "line 2: no column of steps",
    "step,a\n1,2\nx,3\n": "line 3: step is 'x', which is no number",
    "step,a\n1.5,2\n": "line 2: step is '1.5', which is no step",
    "step,a\n1,2\n-1,2\n": "line 3: step is '-1', which is no step",
    "step,a\n1,2,3\n": "line 2: 3 cells under 2 columns",
    "step,a,a\n1,2,3\n": "line 1: column 'a' is there twice",
    '{"steps": [1, 2], "figures": {"a": [1]}}': "figures.a: 2 values are expected, one per step, not 1",
    '{"steps": 3, "figures": {"a": [1]}}': "`steps` is a list",
    '{"steps": [null], "figures": {"a": [1]}}': "steps[0]: there is no step",
    '{"step": 1, "a": 2}\n{"step": 2,': "line 2: no JSON",
    '{"step": ': "line 1: no JSON",
    "[1, 2]": "element 0: an object of figures is expected, not 1",
    "step,a\n": "has no step",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_bad_file_is_refused_by_its_line_or_field(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(BadHistory) as refused:
        read(path)
    assert str(path) in str(refused.value) and REFUSED[text] in str(refused.value)


def test_text_in_a_column_is_refused_where_the_column_is_looked_at_alone(tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    path.write_text("step,a,note\n1,2,fine\n2,oops,fine\n")
    table = read(path)
    with pytest.raises(BadHistory, match=r"h\.csv, line 3: a is 'oops', which is no number"):
        table.numbers("a")


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadHistory, match="cannot be read: No such file"):
        read(tmp_path / "none.csv")
    (tmp_path / "x").write_bytes(b"step\n\xff")
    with pytest.raises(BadHistory, match="byte 5 is no text in UTF-8"):
        read(tmp_path / "x")
