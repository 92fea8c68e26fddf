"""Settings to paste: every option is one that its framework has, and says the thresholds of the row."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from offpolicy_monitor.methods import METHODS, PRESETS, MethodRow
from offpolicy_monitor.methods.options import FRAMEWORKS, OPTIONS, Option, settings
from trl import GRPOConfig

#: Names of options by framework, read off its sources at a commit.
NAMES = json.loads((Path(__file__).parent / "option_names.json").read_text())
NAME_IN = {
    "verl": re.compile(r"^([\w.]+)="),
    "TRL": re.compile(r"^(\w+)="),
    "prime-rl": re.compile(r"^(\w+) = "),
    "slime": re.compile(r"^(--[\w-]+)"),
}


def of(row: MethodRow) -> dict[str, list[str]]:
    return {found["framework"]: found["lines"] for found in settings(row.spec)}


def preset(name: str) -> MethodRow:
    return next(row for row in PRESETS if row.name == name)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.framework}-{option.method}-{option.level}")
def test_every_line_names_an_option_that_the_framework_has(option: Option) -> None:
    known = set(NAMES[option.framework]["names"])
    for line in option.lines:
        if line.startswith("["):
            assert line in NAMES[option.framework]["tables"]
            continue
        name = NAME_IN[option.framework].match(line)
        assert name is not None and name.group(1) in known, line


def test_trl_itself_has_the_names() -> None:
    fields = {field.name for field in dataclasses.fields(GRPOConfig)}
    assert set(NAMES["TRL"]["names"]) <= fields


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.framework}-{option.method}-{option.level}")
def test_an_option_is_of_a_method_its_level_and_its_thresholds(option: Option) -> None:
    method = METHODS[option.method]
    assert option.level in method.levels
    assert option.thresholds <= set(method.parameters)
    assert option.framework in FRAMEWORKS


@pytest.mark.parametrize(
    ("name", "framework", "lines"),
    [
        ("icepop", "verl", ["algorithm.rollout_correction.rollout_is=token",
                            "algorithm.rollout_correction.rollout_is_threshold=0.5_5"]),
        ("geometric_mask", "verl", ["algorithm.rollout_correction.rollout_rs=seq_mean_k1",
                                    "algorithm.rollout_correction.rollout_rs_threshold=0.999001_1.001"]),
        ("k3_sequence", "verl", ["algorithm.rollout_correction.rollout_rs=seq_mean_k3",
                                 "algorithm.rollout_correction.rollout_rs_threshold=0.01"]),
        ("opsm", "TRL", ["off_policy_mask_threshold=0.01"]),
        ("mis_sequence_trl", "TRL", ['vllm_importance_sampling_mode="sequence_mask"',
                                     "vllm_importance_sampling_clip_max=3"]),
        ("ipo", "prime-rl", ["[trainer.loss]", "ipo_threshold = 0.1"]),
        ("opsm", "slime", ["--use-opsm", "--opsm-delta 0.01", "--use-rollout-logprobs"]),
        ("tis_token", "slime", ["--use-tis", "--tis-clip 2"]),
    ],
)  # fmt: skip
def test_a_preset_is_written_as_its_framework_writes_it(name: str, framework: str, lines: list[str]) -> None:
    assert of(preset(name))[framework] == lines


def test_what_a_framework_cannot_say_is_left_out() -> None:
    assert "prime-rl" not in of(preset("opsm"))
    assert settings({**preset("mis_token").spec, "lower": None, "upper": None}) == []
    assert "verl" not in {found["framework"] for found in settings({**preset("mis_sequence").spec, "lower": 0.0})}


def test_another_gap_than_the_frameworks_own_is_told() -> None:
    [found] = [one for one in settings({**preset("gspo").spec, "gap": "total"}) if one["framework"] == "verl"]
    assert found["differs"] == "there it is on staleness, here on total"
