"""Grammars in the engine: no schema goes to outlines, and xgrammar compiles the real schemas."""

from pathlib import Path

import pytest

from sagemaker_local.paths import weights_dir
from tests.local.engine_program import run_in_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

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


def test_no_schema_is_compiled_with_outlines(tmp_path: Path) -> None:
    assert run_in_engine(tmp_path, "-c", FOR_OUTLINES) == "refused"


def test_xgrammar_compiles_each_real_schema(tmp_path: Path) -> None:
    schemas = Path(__file__).with_name("real_schemas.jsonl")
    assert run_in_engine(tmp_path, "-c", REAL_SCHEMAS, weights_dir() / "target", schemas) == "100"
