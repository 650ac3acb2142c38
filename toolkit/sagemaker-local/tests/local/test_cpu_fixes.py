"""The plugin peagle_cpu_fixes computes what vLLM means to; one process of the engine's own Python.

See cpu_fixes_check.py. test_engine_real.py and tests/e2e/test_engine_versions.py run engines with it.
"""

import json
from typing import Any

import pytest

from tests.local.engine_program import run_in_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("home")
    document: dict[str, Any] = json.loads(run_in_engine(home, "-m", "tests.local.cpu_fixes_check"))
    return document


@pytest.mark.parametrize("kernel", ["top-k without drafts", "slots"])
def test_a_kernel_computes_what_the_one_it_replaces_does(report: dict[str, Any], kernel: str) -> None:
    assert report[kernel]


@pytest.mark.parametrize("kernel", ["rows", "compiled rows"])
def test_a_row_of_packed_weights_is_the_same_in_any_company(report: dict[str, Any], kernel: str) -> None:
    assert report[kernel] is (True if report["packs weights"] else None)
