"""The real service answers every conformance case, in both formats, as the peers' functions and the definitions do."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

VECTORS = Path(__file__).with_name("vectors")
CASES = sorted(path.stem for path in (VECTORS / "expected").glob("*.json"))
FORMS = ("json", "safetensors")
CHECKS = 28_102  # of all cases in both forms


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    """The checker that travels with the vectors, as it stands."""
    spec = importlib.util.spec_from_file_location("conformance_check", VECTORS / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_thirty_cases_with_all_their_checks_are_in_the_repository() -> None:
    assert len(CASES) == 30
    checks = [len(json.loads((VECTORS / "expected" / f"{case}.json").read_text())["checks"]) for case in CASES]
    assert len(FORMS) * sum(checks) == CHECKS


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_the_service_gives_the_expected_figures(url: str, checker: ModuleType, case: str, form: str) -> None:
    passed, failures = checker.run_case(VECTORS / "expected" / f"{case}.json", VECTORS, form, url, None)
    assert failures == []
    assert passed > 0
