"""No generated grammar that passes the gate ends xgrammar, or costs it more than a second of CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sagemaker_local.engine.env import ensure_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

ROOT = Path(__file__).parents[2]


def test_no_grammar_that_passes_ends_the_engine_or_stalls_it(tmp_path: Path) -> None:
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    done = subprocess.run(
        [str(python), "-m", "tests.container.grammar_fuzz", "--grammars", "400", "--seed", "3"],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT / "container"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["above"] == []
    assert result["real_schemas_failed"] == []
    assert result["passed"] > 150, "otherwise the test says nothing"
