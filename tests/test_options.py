"""Settings to paste: each is read as its framework would read it, and says the thresholds of the row."""

import ast
import dataclasses
import json
import shlex
import tomllib
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.methods import METHODS, ON_REQUEST, PRESETS, MethodRow
from offpolicy_monitor.methods.options import FRAMEWORKS, OPTIONS, Option, settings

#: Options by framework with the values that they take, read off its sources at the version that `source` names.
KNOWN = json.loads((Path(__file__).parent / "option_names.json").read_text())
#: Thresholds that are easily written wrong: whole, with few digits, tiny and huge, with more digits than are shown.
THRESHOLDS = [(0.5, 5.0), (0.5, 2.0), (1e-5, 1e6), (0.9990009, 1.0010009), (3e-4, 4e-4)]
named = pytest.mark.parametrize("option", OPTIONS, ids=lambda one: f"{one.framework}-{one.method}-{one.level}")


def read_by_verl(lines: Sequence[str]) -> list[float]:
    """Hydra overrides: `name=value`, where what Python takes for a number is one to Hydra too, 0.5_5 included."""
    texts = dict(line.split("=") for line in lines)
    # CPPO reads clip_ratio itself, where the clips read the two halves that override it.
    for name in texts if not any(text == "cppo" for text in texts.values()) else ():
        assert not set(KNOWN["verl"]["overriding"].get(name, ())) - set(texts), f"{name} alone changes nothing"
    return [number for name, text in texts.items() for number in _verl_numbers(KNOWN["verl"]["names"][name], text)]


def _verl_numbers(kind: list[str] | str, text: str) -> list[float]:
    if isinstance(kind, list):
        assert text in kind
        return []
    try:
        return [float(text)]
    except ValueError:
        assert kind == "number or pair"
        low, high = map(float, text.split("_"))
        assert 0 < low <= high
        return [low, high]


def read_by_trl(lines: Sequence[str]) -> list[float]:
    """Arguments of GRPOConfig in Python."""
    from trl import GRPOConfig  # a second of every process that collects these tests

    given = {name: ast.literal_eval(text) for name, text in (line.split("=") for line in lines)}
    kinds = {field.name: str(field.type) for field in dataclasses.fields(GRPOConfig)}
    words = {name: value for name, value in given.items() if isinstance(value, str)}
    assert all(value in KNOWN["TRL"]["words"][name] for name, value in words.items())
    numbers = {name: value for name, value in given.items() if name not in words}
    assert all(
        "float" in kinds[name] and (value is not None or "None" in kinds[name]) for name, value in numbers.items()
    )
    return [value for value in numbers.values() if value is not None]


def read_by_prime_rl(lines: Sequence[str]) -> list[float]:
    """TOML, whose `type` says which keys there are."""
    loss = tomllib.loads("\n".join(lines))["trainer"]["loss"]
    keys = KNOWN["prime-rl"]["types"][loss.pop("type")]
    assert set(loss) <= set(keys)
    return [float(value) for value in loss.values()]


def read_by_slime(lines: Sequence[str]) -> list[float]:
    """Flags."""
    parser = ArgumentParser(exit_on_error=False, allow_abbrev=False)
    for flag, kind in KNOWN["slime"]["flags"].items():
        if kind == "flag":
            parser.add_argument(flag, action="store_true")
        elif kind == "number":
            parser.add_argument(flag, type=float)
        else:
            parser.add_argument(flag, choices=kind)
    words = shlex.split(" ".join(lines))
    assert not set(KNOWN["slime"]["exclusive"]) <= set(words)
    values = vars(parser.parse_args(words))
    given = (values.get(word.lstrip("-").replace("-", "_")) for word in words)
    return [value for value in given if type(value) is float]


READ: dict[str, Callable[[Sequence[str]], list[float]]] = {
    "verl": read_by_verl,
    "TRL": read_by_trl,
    "prime-rl": read_by_prime_rl,
    "slime": read_by_slime,
}


def of(row: MethodRow) -> dict[str, list[str]]:
    return {found["framework"]: found["lines"] for found in settings(row.spec)[0]}


def preset(name: str) -> MethodRow:
    return next(row for row in (*PRESETS, *ON_REQUEST) if row.name == name)


def row_of(option: Option, low: float, high: float) -> dict[str, Any]:
    """A row that the option says all of: its lowest threshold is `low`, the others are `high`."""
    names = sorted(option.thresholds, key=("lower", "upper", "delta", "threshold", "budget", "w_min").index)
    values = dict(zip(names, (low, high, 0.8) if len(names) > 1 else (high,), strict=False))
    return {"method": option.method, "gap": option.gap, "level": option.level, **option.options, **values}


@named
@pytest.mark.parametrize(("low", "high"), THRESHOLDS)
def test_a_framework_reads_the_thresholds_that_the_row_has(option: Option, low: float, high: float) -> None:
    if option.options.get("statistic") == "k1":
        low, high = -low, min(high, 9.0)
    row = row_of(option, low, high)
    lines = option.of(row)
    assert lines is not None
    own = [value for name, value in row.items() if name in option.thresholds]
    if any("1/" in line for line in option.lines):
        own = [1 / value for value in reversed(own)]
    if option.options.get("statistic") == "k1":
        own = [2.718281828459045**value for value in own]
    if any("1+" in line for line in option.lines):
        own = [1 + value for value in own]
    assert READ[option.framework](lines) == pytest.approx(own, rel=1e-5)


@named
def test_an_option_is_of_a_method_its_level_and_its_thresholds(option: Option) -> None:
    method = METHODS[option.method]
    assert option.level in method.levels
    assert option.thresholds <= set(method.parameters)
    assert option.framework in FRAMEWORKS
    assert all(choice in method.choices[name].options for name, choice in option.options.items())


@pytest.mark.parametrize(
    ("name", "framework", "lines"),
    [
        ("icepop", "verl", ["algorithm.rollout_correction.rollout_is=token",
                            "algorithm.rollout_correction.rollout_is_threshold=0.5_5.0"]),
        ("geometric_mask", "verl", ["algorithm.rollout_correction.rollout_rs=seq_mean_k1",
                                    "algorithm.rollout_correction.rollout_rs_threshold=0.999001_1.001"]),
        ("k3_sequence", "verl", ["algorithm.rollout_correction.rollout_rs=seq_mean_k3",
                                 "algorithm.rollout_correction.rollout_rs_threshold=0.01"]),
        ("dppo_tv", "verl", ["actor_rollout_ref.actor.policy_loss.loss_mode=dppo_tv",
                             "actor_rollout_ref.actor.clip_ratio_low=0.2",
                             "actor_rollout_ref.actor.clip_ratio_high=0.2"]),
        ("opsm", "TRL", ["off_policy_mask_threshold=0.01"]),
        ("mis_sequence_trl", "TRL", ['vllm_importance_sampling_mode="sequence_mask"',
                                     "vllm_importance_sampling_clip_max=3"]),
        ("mis_token", "TRL", ['vllm_importance_sampling_mode="token_mask"',
                              "vllm_importance_sampling_clip_min=0.5", "vllm_importance_sampling_clip_max=2"]),
        ("cispo", "TRL", ['loss_type="cispo"', "epsilon_high=5"]),
        ("dppo_tv", "prime-rl", ["[trainer.loss]", 'type = "default"', "dppo_mask_low = 0.2", "dppo_mask_high = 0.2"]),
        ("ipo", "prime-rl", ["[trainer.loss]", 'type = "ipo"', "ipo_threshold = 0.1"]),
        ("opsm", "slime", ["--use-opsm", "--opsm-delta 0.01", "--use-rollout-logprobs"]),
        ("tis_token", "slime", ["--use-tis", "--tis-clip 2"]),
        ("cppo_dense", "verl", ["actor_rollout_ref.actor.policy_loss.loss_mode=cppo",
                                "actor_rollout_ref.actor.clip_ratio=0.15",
                                "actor_rollout_ref.actor.policy_loss.cppo.cppo_delta_b=0.02",
                                "actor_rollout_ref.actor.policy_loss.cppo.cppo_w_min=0.8",
                                "algorithm.rollout_correction.bypass_mode=True"]),
    ],
)  # fmt: skip
def test_a_preset_is_written_as_its_framework_writes_it(name: str, framework: str, lines: list[str]) -> None:
    assert of(preset(name))[framework] == lines


def test_what_a_framework_cannot_say_is_left_out() -> None:
    assert "prime-rl" not in of(preset("opsm"))
    assert settings({**preset("mis_token").spec, "lower": None, "upper": None}) == ([], list(FRAMEWORKS))
    assert "verl" in settings({**preset("mis_sequence").spec, "lower": 0.0})[1]


def test_a_setting_that_is_in_no_release_says_so_and_a_cap_that_it_lacks() -> None:
    said = differing(preset("cppo_fixed").spec)
    assert said == {"verl": "of the draft pull request 6731, in no release yet; verl has no budget_max"}


def differing(row: dict[str, Any]) -> dict[str, str]:
    return {found["framework"]: found["differs"] for found in settings(row)[0]}


def test_another_gap_than_the_frameworks_own_is_told() -> None:
    assert differing({**preset("gspo").spec, "gap": "total"})["verl"] == "there it is on staleness, here on total"
    assert differing({**preset("tis_token").spec, "gap": "total"}) == dict.fromkeys(
        ("verl", "TRL", "slime"), "there it is on mismatch, here on total"
    )


def test_a_threshold_that_a_framework_has_no_word_for_is_told() -> None:
    told = differing({**preset("tis_token").spec, "lower": 0.5})
    assert told == {"verl": "verl has no lower", "TRL": "", "slime": ""}
