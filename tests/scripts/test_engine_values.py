"""Choices, ranges and kinds of arguments: read from sources, and compared with the engine's own classes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from peagle_sm.core.engines import load_arguments, version_of
from sagemaker_local.engine.env import ensure_engine
from scripts.lib.engine_values import choices_in, fields_in, ranges_in, variables_in

SOURCES = {
    "vllm/config/cache.py": """
CacheDType = Literal["auto", "fp8"]
Sizes = Literal[1, 8]
class CacheConfig:
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    cache_dtype: CacheDType = "auto"
    block_size: int | None = Field(default=None, gt=0)
    max_logprobs: int = Field(default=20, ge=-1)
    _own: int = 0
    mode: CacheDType | str = "auto"
    kind: CacheDType | torch.dtype | None = None
""",
    "vllm/engine/arg_utils.py": """
class EngineArgs:
    gpu_memory_utilization: float = CacheConfig.gpu_memory_utilization
    kv_cache_dtype: CacheDType = CacheConfig.cache_dtype
    block_size: int | None = None
    mode: str = CacheConfig.mode
    kind: str = get_field(CacheConfig, "kind")
    max_logprobs: int = CacheConfig.max_logprobs
    cache_config: CacheConfig | None = None
""",
    "vllm/v1/attention/backends/registry.py": "class AttentionBackendEnum(Enum):\n    FLASH_ATTN = 'a'",
    "vllm/config/vllm.py": "class OptimizationLevel(IntEnum):\n    O0 = 0\n    O1 = 1",
    "vllm/tool_parsers/__init__.py": "_TOOL_PARSERS_TO_REGISTER = {'hermes': ('a', 'b')}",
    "vllm/reasoning/__init__.py": "_REASONING_PARSERS_TO_REGISTER = {}",
    "vllm/envs.py": "environment_variables: dict = {'VLLM_A': 1, 'CUDA_HOME': 2}\nos.getenv('VLLM_B')",
}


def test_values_are_read_from_the_sources() -> None:
    assert choices_in(SOURCES) == {
        "kv_cache_dtype": {"auto", "fp8"},
        "kind": {"auto", "fp8"},
        "cache_config.cache_dtype": {"auto", "fp8"},
        "cache_config.kind": {"auto", "fp8"},
        "attention_backend": {"AUTO", "FLASH_ATTN"},
        "attention_config.backend": {"AUTO", "FLASH_ATTN"},
        "optimization_level": {"0", "1"},
        "tool_call_parser": {"hermes"},
        "reasoning_parser": set(),
    }
    assert ranges_in(SOURCES) == {
        "gpu_memory_utilization": {"gt": 0, "le": 1},
        "block_size": {"gt": 0},
        "max_logprobs": {"ge": -1},
    }
    assert fields_in(SOURCES)["cache_config"] >= {"cache_dtype", "block_size"}
    assert "_own" not in fields_in(SOURCES)["cache_config"]
    assert variables_in(SOURCES) == {"VLLM_A", "VLLM_B"}


VALUES: dict[str, tuple[Any, ...]] = {
    "gpu_memory_utilization": (0, 0.01, 0.95, 1, 1.01, 95, -0.5, "nan", "half"),
    "max_num_batched_tokens": ("2k", "2K", "1.5k", "1.5K", "k", 4096, "4 k"),
    "max_lora_rank": (8, 24, 512, "x"),
    "cpu_offload_gb": (-1, 0, 2.5),
    "video_pruning_rate": (0, 0.5, 1),
    "moe_backend": ("Deep-GEMM", "triton", "cuda"),
    "override_generation_config": ('{"a": 1}', "{a: 1}"),
}
"""Values beside those that the test makes of each argument's choices and bounds."""

REFUSED_LATER = ("attention_backend", "optimization_level", "quantization")
"""Arguments whose unknown values pass vLLM's parser; its configuration refuses them at the start."""

_ENGINE = """
import io, json, os, sys, typing
from contextlib import redirect_stderr
os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
from dataclasses import fields
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
import vllm.config as configs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
from vllm.config.offload import PrefetchOffloadConfig, UVAOffloadConfig
kinds = [PrefetchOffloadConfig, UVAOffloadConfig, configs.CacheConfig, configs.SchedulerConfig,
         configs.ParallelConfig, configs.LoRAConfig,
         configs.ModelConfig, configs.MultiModalConfig, configs.ObservabilityConfig, configs.LoadConfig]
def verdict(name, value):
    name, _, inner = name.partition(".")  # a field of a JSON argument
    given = json.dumps({inner: int(value) if value.isdigit() else value}) if inner else value
    try:
        with redirect_stderr(io.StringIO()):
            read = vars(parser.parse_args([f"--{name.replace('_', '-')}", given]))[name]
    except SystemExit:
        return False
    if inner:
        return True
    for kind in kinds:
        for item in fields(kind):
            if item.name != name:
                continue
            bounded = isinstance(item.default, FieldInfo)
            if bounded or typing.get_origin(item.type) is typing.Literal:
                expected = typing.Annotated[item.type, item.default] if bounded else item.type
                try:
                    TypeAdapter(expected).validate_python(read)
                except ValidationError:
                    return False
    return True
for line in sys.stdin:
    print(json.dumps(verdict(*json.loads(line))), flush=True)
"""


def generated() -> list[tuple[str, str]]:
    """Each argument with allowed and refused values."""
    arguments = load_arguments()
    pairs = [(name, str(value)) for name, values in VALUES.items() for value in values]
    for name, bounds in arguments.ranges.items():
        for bound in (bounds.gt, bounds.ge, bounds.lt, bounds.le):
            if bound is not None:
                pairs += [(name, f"{bound + step:g}") for step in (-1, 0, 1)]
    for name, spans in arguments.choices.items():
        now = [text for text, span in spans.items() if span.covers(version_of("0.32.0"))]
        if name.endswith("_parser"):
            continue  # an unknown parser is refused later, by the server
        pairs += [(name, text) for text in now]
        if now and name not in REFUSED_LATER:
            pairs.append((name, f"{name}-x"))
    installed = [pair for pair in pairs if arguments.missing_in(pair[0], version_of("0.32.0")) is None]
    return [(name, value) for name, value in installed if not value.startswith("-")]


@pytest.mark.engine
def test_our_verdict_is_the_engines() -> None:
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    pairs = generated()
    done = subprocess.run(
        [str(python), "-c", _ENGINE],
        input="\n".join(map(json.dumps, pairs)),
        check=True,
        capture_output=True,
        text=True,
    )
    engines = [json.loads(line) for line in done.stdout.splitlines() if line in ("true", "false")]
    arguments = load_arguments()
    ours = [
        arguments.number_needed(name, value) is None
        and arguments.allowed(name, value, version_of("0.32.0")) is None
        for name, value in pairs
    ]
    assert len(engines) == len(pairs) > 200
    differing = [
        pair
        for pair, mine, theirs in zip(pairs, ours, engines, strict=True)
        # A field that is right may need another one, such as the profiler's folder.
        if mine != theirs and not (mine and "." in pair[0])
    ]
    assert not differing, differing
