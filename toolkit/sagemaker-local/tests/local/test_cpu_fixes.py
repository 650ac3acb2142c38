"""The plugin peagle_cpu_fixes computes what vLLM means to; one process of the engine's own Python.

See cpu_fixes_check.py. test_engine_real.py and tests/e2e/test_engine_versions.py run engines with it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local.engine.env import ensure_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

CHECK = Path(__file__).with_name("cpu_fixes_check.py")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    done = subprocess.run(
        [str(python), str(CHECK)],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path_factory.mktemp("home"))},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


@pytest.mark.parametrize("kernel", ["top-k without drafts", "slots"])
def test_a_kernel_computes_what_the_one_it_replaces_does(report: dict[str, Any], kernel: str) -> None:
    assert report[kernel]


@pytest.mark.parametrize("kernel", ["rows", "compiled rows"])
def test_a_row_of_packed_weights_is_the_same_in_any_company(report: dict[str, Any], kernel: str) -> None:
    assert report[kernel] is (True if report["packs weights"] else None)
