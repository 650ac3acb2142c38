"""Grammars in the engine: no schema goes to outlines, and xgrammar compiles the real schemas."""

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
REAL_SCHEMAS = """
import json, sys
import xgrammar
from transformers import AutoTokenizer
tokens = xgrammar.TokenizerInfo.from_huggingface(AutoTokenizer.from_pretrained(sys.argv[1]))
compiler = xgrammar.GrammarCompiler(tokens, max_threads=8)
schemas = [json.loads(line)["schema"] for line in open(sys.argv[2], encoding="utf-8")]
for schema in schemas:
    compiler.compile_json_schema(json.dumps(schema))
print(len(schemas))
"""


def in_the_engine(program: str, home: Path, *arguments: Path) -> str:
    """Run a program in the engine's Python with the gate on its path; return what it printed."""
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    done = subprocess.run(
        [str(python), "-c", program, *map(str, arguments)],
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
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_no_schema_is_compiled_with_outlines(tmp_path: Path) -> None:
    assert in_the_engine(FOR_OUTLINES, tmp_path) == "refused"


def test_xgrammar_compiles_each_real_schema(tmp_path: Path) -> None:
    target = ROOT / "toolkit/sagemaker-local/sagemaker_local/weights/target"
    schemas = Path(__file__).with_name("real_schemas.jsonl")
    assert in_the_engine(REAL_SCHEMAS, tmp_path, target, schemas) == "100"
