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


@pytest.mark.parametrize("kernel", ["rows", "compiled rows", "dispatched rows"])
def test_a_row_of_packed_weights_is_the_same_in_any_company(report: dict[str, Any], kernel: str) -> None:
    assert report[kernel] is (True if report["packs weights"] else None)


def test_synthetic_acceptance_keeps_drafts_at_the_given_rates(report: dict[str, Any]) -> None:
    """vLLM's own CPU kernels refuse it; greedy and sampled requests alike."""
    kept = report["synthetic"]
    every, none = [[10, 11, 12, 30], [13, 31, -1, -1], [32, -1, -1, -1]], [[20], [23], [32]]
    assert kept["all"] == [every, every]
    assert kept["no"] == [[[*row, -1, -1, -1] for row in none]] * 2
    assert kept["two"] == [[10, 11, 22, -1], [13, 31, -1, -1], [32, -1, -1, -1]]
    assert abs(kept["length"] - (1 + 0.5 + 0.25 + 0.125)) < 0.05
