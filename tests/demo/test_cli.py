import argparse
import os
import signal
from dataclasses import replace

import pytest
from offpolicy_monitor.client.read import Unreachable
from offpolicy_monitor.demo.cli import Stop, add_arguments, config_of, main, stop_on_signals
from offpolicy_monitor.demo.engines.kinds import ENGINES, require_installed
from offpolicy_monitor.demo.faults import KINDS, Fault
from offpolicy_monitor.errors import ConfigurationError

from tests.client.fakes import Fake
from tests.fixtures.http_stub import unused_url


def parse(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(flags)


@pytest.mark.parametrize(
    ("flags", "steps", "seconds"),
    [
        ((), None, 180.0),
        (("--steps", "5"), 5, None),
        (("--seconds", "7.5"), None, 7.5),
        (("--forever",), None, None),
    ],
)
def test_flags_say_when_a_run_ends(flags: tuple[str, ...], steps: int | None, seconds: float | None) -> None:
    config = config_of(parse(*flags))
    assert (config.steps, config.seconds) == (steps, seconds)


def test_a_run_is_named_after_the_time_unless_it_is_named() -> None:
    assert config_of(parse()).run.startswith("demo-2")
    assert config_of(parse("--run", "mine")).run == "mine"


@pytest.mark.parametrize(
    "flags", [("--steps", "0"), ("--lag", "-1"), ("--attempt", "-1"), ("--seconds", "nan"), ("--fault", "x")]
)
def test_a_number_that_makes_no_sense_is_refused(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse(*flags)
    assert raised.value.code == 2
    assert flags[0] in capsys.readouterr().err


def test_a_fault_is_asked_for_by_name_and_strength(capsys: pytest.CaptureFixture[str]) -> None:
    assert config_of(parse()).fault is None
    assert config_of(parse("--fault", "temperature=0.7")).fault == Fault("temperature", 0.7)
    with pytest.raises(SystemExit):
        parse("--help")
    told = " ".join(capsys.readouterr().out.split())
    assert all(f"{name}=" in told for name in KINDS)


@pytest.mark.parametrize(
    ("flags", "since"),
    [((), (0, 30)), (("--fault", "top_p", "--onset", "7"), (7, 7)), (("--scenario", "top-p", "--onset", "7"), (7, 7))],
)
def test_a_fault_is_there_from_the_beginning_and_a_scenario_from_its_onset_unless_a_step_is_named(
    flags: tuple[str, ...], since: tuple[int, int]
) -> None:
    config = config_of(parse(*flags))
    assert (config.fault_from, config.onset) == since


@pytest.mark.parametrize(
    ("flags", "precision", "profile"),
    [
        ((), "bfloat16", "dense_bf16"),
        (("--engine", "vllm"), "bfloat16", "dense_bf16"),
        (("--engine", "vllm", "--sampler", "exact"), "exact", "dense_bf16"),
        (("--engine", "ct2"), "int8", "fp8"),
    ],
)
def test_an_engine_has_its_own_precision_unless_another_is_asked_for(
    flags: tuple[str, ...], precision: str, profile: str
) -> None:
    config = config_of(parse(*flags))
    assert (config.sampler, config.profile) == (precision, profile)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--sampler", "int8"), "^vLLM computes in bfloat16 or exact, not in int8$"),
        (("--fault", "noise"), "^noise cannot be planted in vLLM; what can: cut, "),
        (("--scenario", "spike"), "^noise cannot be planted in vLLM; what can: cut, "),
        (("--fault", "kv_cache=5"), r"^vLLM caches in 4 bits \(float8 e4m3\) or 3 \(e5m2\), not in 5$"),
    ],
)
def test_what_a_real_engine_cannot_do_is_said_before_anything_is_asked_of_a_service(
    flags: tuple[str, ...], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        main(parse("--engine", "vllm", "--url", unused_url(), *flags))


def test_an_engine_that_is_not_installed_is_named_with_what_installs_it() -> None:
    absent = replace(ENGINES["ct2"], modules=("no_such_engine", "json"))
    with pytest.raises(ConfigurationError) as raised:
        require_installed(absent)
    assert str(raised.value) == (
        "CTranslate2 cannot sample here: no_such_engine is not installed. In an environment of its own: "
        "pip install ctranslate2==4.8.5 transformers; in a checkout `make engines` makes one, .venv-engines"
    )


def test_a_run_prints_addresses_progress_and_a_summary(service: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(parse("--url", service.url, "--steps", "2", "--run", "r1")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"page     {service.url}/runs/r1" in lines
    assert f"metrics  {service.url}/metrics" in lines
    assert any(line.startswith("step    0  reward 0.") for line in lines)
    assert lines[-1].startswith("reward 0.")
    assert "mean mismatch k3 1.0e-03, 2 steps in " in lines[-1]
    assert lines[-1].endswith("8 posts acknowledged, 0 failed, 0 dropped")


def test_a_service_that_is_not_there_is_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    url = unused_url()
    with pytest.raises(Unreachable, match=f"^no service answers at {url}: .* Start one with"):
        main(parse("--url", url))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_asks_to_stop_and_a_second_interrupts(number: signal.Signals) -> None:
    before, stop = signal.getsignal(number), Stop()
    with stop_on_signals(stop):
        assert not stop.is_set() and stop.by is None
        os.kill(os.getpid(), number)
        assert stop.is_set() and stop.by == number
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before
