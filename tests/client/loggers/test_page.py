"""docs/loggers.md: its lines run here as far as no library of others is needed, and with these in `make frameworks`."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor import Monitor
from offpolicy_monitor.client.loggers import kinds

from tests.client.batches import batch
from tests.client.loggers.steps import Steps, knowing, row

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "loggers.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_there_is_a_block_for_each_logger() -> None:
    assert [re.findall(r"^(?:from|import) ([\w.]+)", block, re.MULTILINE)[0] for block in BLOCKS] == [
        "wandb",
        "torch.utils.tensorboard",
        "mlflow",
        "offpolicy_monitor",
    ]
    loggers = {name for name, found in vars(kinds).items() if inspect.isclass(found) and hasattr(found, "write")}
    assert len(loggers - {"Logger"}) == len(BLOCKS)


def test_every_argument_that_the_page_gives_a_monitor_is_one() -> None:
    known = inspect.signature(Monitor).parameters
    calls = [node for block in BLOCKS for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
    given = {word.arg for call in calls if getattr(call.func, "id", "") == "Monitor" for word in call.keywords}
    assert given == {"run", "log_to"} and {*given, *re.findall(r"(log_as|for_run)=", PAGE)} <= known.keys()


def test_the_function_of_the_page_prints_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [row(step, "warn", gaps={"mismatch": {"k3": step / 8}}) for step in range(2)]
    with knowing(Steps(steps)) as service:
        made: dict[str, Any] = {}
        exec(BLOCKS[-1].replace("http://monitor:8900", service.url), made)
        for step in range(2):
            made["monitor"].log(step=step, **batch())
        made["monitor"].close()
    assert capsys.readouterr().out == "0 warn 0.0\n1 warn 0.125\n"


def test_the_versions_on_the_page_are_those_that_are_installed_for_its_test() -> None:
    packages = (ROOT / "tests" / "frameworks" / "packages.txt").read_text().split()
    named = re.findall(r"(wandb|tensorboard|mlflow-skinny) (\d+[\d.]*\d)", PAGE)
    assert len(named) == 3 and {f"{name}=={version}" for name, version in named} <= set(packages)
