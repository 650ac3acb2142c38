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


#: A schema for outlines: xgrammar has no multiples, guidance no patternProperties.
FOR_OUTLINES = """
import sys
from peagle_gate.startup import block_outlines
block_outlines(sys.modules)
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.structured_output.backend_outlines import validate_structured_output_request_outlines
schema = {"patternProperties": {"^a$": {"type": "integer", "multipleOf": 2}}}
try:
    validate_structured_output_request_outlines(
        SamplingParams(structured_outputs=StructuredOutputsParams(json=schema))
    )
except VLLMValidationError:
    print("refused")
"""


def in_the_engine(arguments: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    """Run the engine's Python with the gate on its path."""
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    return subprocess.run(
        [str(python), *arguments],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT / "container"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_schema_is_compiled_with_outlines(tmp_path: Path) -> None:
    done = in_the_engine(["-c", FOR_OUTLINES], tmp_path)
    assert done.stdout.split() == ["refused"], done.stderr[-3000:]


def test_no_grammar_that_passes_ends_the_engine_or_stalls_it(tmp_path: Path) -> None:
    arguments = ["-m", "tests.container.grammar_fuzz", "--grammars", "400", "--seed", "3"]
    done = in_the_engine(arguments, tmp_path)
    assert done.returncode in (0, 1), done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["above"] == []
    assert result["real_schemas_failed"] == []
    assert result["passed"] > 150, "otherwise the test says nothing"
