"""The table of modes against the engine's own configuration classes, in its environment.

The configs are those that the plan sends, of models that exist only as a config.json. No engine starts: the
modes that cannot run on a CPU are checked in the same way.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.spec.modes import DRAFT_TOKENS, HEAD, SPECULATING, Mode, facts_of
from sagemaker_local.engine.env import ensure_engine
from tests.core.test_modes import VALUES as OF_THE_SPEC

pytestmark = pytest.mark.engine

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "dtype": "float32",
}
_QWEN = {**_LLAMA, "model_type": "qwen3", "head_dim": 16, "rms_norm_eps": 1e-6, "num_hidden_layers": 2}
_LAYERS = {"mask_token_id": 511, "target_layer_ids": [1, 3, 5]}
MODELS: dict[str, dict[str, Any]] = {
    "target": _LLAMA,
    "other-vocabulary": {**_LLAMA, "vocab_size": 256},
    "small": {**_LLAMA, "num_hidden_layers": 1},
    "head": {
        **_LLAMA,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "ptd_token_id": 511,
    },
    "block": {**_QWEN, "architectures": ["DFlashDraftModel"], "block_size": 8, "dflash_config": _LAYERS},
    "spark": {**_QWEN, "architectures": ["Qwen3DSparkModel"], "block_size": 7, "markov_rank": 8, **_LAYERS},
    "with-mtp": {
        **_LLAMA,
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_nextn_predict_layers": 1,
        "n_routed_experts": 8,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "kv_lora_rank": 32,
        "q_lora_rank": 32,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    },
}
DRAFTERS: Mapping[Mode, str] = {
    "draft-model": "small",
    "eagle3": "head",
    "p-eagle": "head",
    "dflash": "block",
    "dspark": "spark",
}
#: A value of each field that vLLM must take with its mode.
VALUES: dict[str, Any] = {
    **OF_THE_SPEC,
    DRAFT_TOKENS: 4,
    "num_speculative_tokens_per_batch_size": [[1, 4, 4], [5, 8, 0]],
    "draft_sample_method": "probabilistic",
    "use_heterogeneous_vocab": False,
}

_ENGINE = """
import json, sys
from types import SimpleNamespace as Has
from vllm.config import ModelConfig, ParallelConfig, SpeculativeConfig, VllmConfig
from vllm.config.compilation import CUDAGraphMode

def made(target, config):
    model = ModelConfig(model=target, tokenizer=target, max_model_len=1024, dtype="float32")
    return SpeculativeConfig(
        target_model_config=model, target_parallel_config=ParallelConfig(), **config
    )

def config(target, config):
    found = made(target, config)
    return {"method": found.method, "tokens": found.num_speculative_tokens,
            "parallel": found.parallel_drafting}

def runners(method, parallel):
    asked = Has(method=method, parallel_drafting=parallel, use_heterogeneous_vocab=False,
                enable_adaptive_verification=False)
    places = Has(distributed_executor_backend="mp", pipeline_parallel_size=1, use_ubatching=False,
                 prefill_context_parallel_size=1, enable_batch_sharded_sampling=False)
    engine = Has(speculative_config=asked, parallel_config=places,
                 scheduler_config=Has(async_scheduling=False), model_config=Has(is_diffusion=False),
                 _dflash_needs_multi_kv_group=lambda: False, _is_dflash_candidate_draft=lambda: False)
    lacks = {"v1": VllmConfig._get_v1_model_runner_unsupported_features(engine),
             "v2": VllmConfig._get_v2_model_runner_unsupported_features(engine)}
    return [name for name, missing in lacks.items() if not missing]

def adaptive(argument, value):
    engine = Has(
        speculative_config=Has(enable_adaptive_verification=True),
        lora_config=True if argument == "enable_lora" and value else None,
        compilation_config=Has(cudagraph_mode=CUDAGraphMode["NONE" if argument == "enforce_eager" and value
            else value if argument == "cudagraph_mode" else "FULL_AND_PIECEWISE"]),
        parallel_config=Has(pipeline_parallel_size=value if argument == "pipeline_parallel_size" else 1),
    )
    VllmConfig._validate_adaptive_verification(engine)

for line in sys.stdin:
    what, *arguments = json.loads(line)
    try:
        answer = {"ok": True, "value": globals()[what](*arguments)}
    except Exception as error:
        answer = {"ok": False, "value": str(error)}
    print("> " + json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders that hold only a config.json."""
    root = tmp_path_factory.mktemp("models")
    for name, config in MODELS.items():
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(config))
    return root


Answers = Callable[[Sequence[str]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    """What the engine's classes say to questions; one process for all, since its imports take long."""
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([str(python), "-c", _ENGINE], **pipes) as engine:
        asked, heard = engine.stdin, engine.stdout
        assert asked is not None
        assert heard is not None

        def answered(question: str) -> dict[str, Any]:
            print(question, file=asked, flush=True)
            line = next(line for line in heard if line.startswith("> "))
            answer: dict[str, Any] = json.loads(line[2:])
            return answer

        yield lambda questions: [answered(question) for question in questions]
        asked.close()


def config_of(mode: Mode, folder: Path, **values: Any) -> tuple[str, dict[str, Any]]:
    """The target of a mode's question, and the config that a plan would send."""
    target = folder / ("with-mtp" if mode == "mtp" else "target")
    head = {"model": str(folder / DRAFTERS[mode])} if mode in DRAFTERS else {}
    return str(target), {**facts_of(mode).config, **head, DRAFT_TOKENS: 4, **values}


def ask(what: str, *arguments: Any) -> str:
    return json.dumps([what, *arguments])


def test_the_engine_takes_each_mode_with_each_of_its_fields(answers: Answers, folder: Path) -> None:
    asked = [
        (mode, name)
        for mode in SPECULATING
        for name in facts_of(mode).fields
        if name != HEAD and mode != "suffix"
    ]
    questions = [ask("config", *config_of(mode, folder, **{name: VALUES[name]})) for mode, name in asked]
    for (mode, name), answer in zip(asked, answers(questions), strict=True):
        assert answer["ok"], (mode, name, answer["value"])
        assert answer["value"]["method"] == facts_of(mode).config["method"]
        assert answer["value"]["parallel"] == facts_of(mode).one_pass


def test_suffix_decoding_needs_the_package_that_the_check_names(answers: Answers, folder: Path) -> None:
    (answer,) = answers([ask("config", *config_of("suffix", folder))])
    assert not answer["ok"]
    assert "arctic-inference==0.1.1" in answer["value"]


REFUSED: tuple[tuple[Mode, dict[str, Any], str], ...] = (
    ("ngram", {DRAFT_TOKENS: 0}, "num_speculative_tokens"),
    ("ngram", {"prompt_lookup_max": 2, "prompt_lookup_min": 3}, "prompt_lookup_min"),
    ("eagle3", {"use_heterogeneous_vocab": True}, "use_heterogeneous_vocab"),
    ("ngram", {"dspark_draft_topk": 0}, "dspark_draft_topk"),
    ("dflash", {"dspark_draft_topk": 8}, "dspark_draft_topk"),
    ("eagle3", {"index_share_for_mtp_iteration": True}, "index_share_for_mtp_iteration"),
    ("dspark", {"draft_tensor_parallel_size": 4}, "draft_tensor_parallel_size"),
)


def test_what_the_spec_refuses_the_engine_refuses_too(answers: Answers, folder: Path) -> None:
    questions = [ask("config", *config_of(mode, folder, **values)) for mode, values, _ in REFUSED]
    for (mode, values, named), answer in zip(REFUSED, answers(questions), strict=True):
        assert not answer["ok"], (mode, values)
        assert named in answer["value"]


def test_a_draft_model_of_another_vocabulary_is_refused(answers: Answers, folder: Path) -> None:
    target, config = config_of("draft-model", folder, model=str(folder / "other-vocabulary"))
    (answer,) = answers([ask("config", target, config)])
    assert "vocab" in answer["value"]


def test_the_model_runners_of_each_mode_are_the_engines(answers: Answers) -> None:
    questions = [
        ask("runners", facts_of(mode).config["method"], facts_of(mode).one_pass) for mode in SPECULATING
    ]
    for mode, answer in zip(SPECULATING, answers(questions), strict=True):
        assert answer["value"] == list(facts_of(mode).runners), mode


def test_adaptive_verification_refuses_what_the_table_says(answers: Answers) -> None:
    refusals = {refusal.part or refusal.argument: refusal for refusal in facts_of("dspark").refuses}
    asked: list[tuple[str, Any]] = [
        ("enforce_eager", True),
        ("enforce_eager", False),
        ("enable_lora", True),
        ("pipeline_parallel_size", 2),
        ("pipeline_parallel_size", 1),
        ("cudagraph_mode", "NONE"),
        ("cudagraph_mode", "PIECEWISE"),
        ("cudagraph_mode", "FULL_DECODE_ONLY"),
    ]
    questions = [ask("adaptive", name, value) for name, value in asked]
    for (name, value), answer in zip(asked, answers(questions), strict=True):
        given = {name: value} if refusals[name].part else value
        assert (refusals[name].refused(given) is None) == answer["ok"], (name, value, answer["value"])
