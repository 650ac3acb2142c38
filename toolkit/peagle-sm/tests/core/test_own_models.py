"""Models that the catalogue does not have: sizes from their public config.json, plans, and what is refused.

The expected figures are not of this project: the parameters of the model that `transformers` builds, which
give the size of its files, and the KV cache by hand (``public_configs.yaml``).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.model_config import read_config
from peagle_sm.core.own_models import catalog_for
from peagle_sm.core.planning import Plan, make_plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, dump_spec, parse_spec
from peagle_sm.core.spec.own_model import OwnFacts
from tests.core.support import AWS, LOCAL, ROLE, SCHEDULER_ROLE

PUBLIC: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("public_configs.yaml").read_text("utf-8"))
LLAMA = PUBLIC["Llama-3.1-8B-Instruct"]["config"]
# vLLM 0.32.0's classes of these lack SupportsEagle3.
WITHOUT_HEADS = ("Mixtral-8x7B-Instruct-v0.1", "Gemma-3-27B-it", "GLM-4.5-Air")
each_model = pytest.mark.parametrize("name", PUBLIC)


def files_of(config: Any) -> int:
    """Return the bytes of a public model's files; a changed config has those of Llama 3.1 8B."""
    known = next((known for known in PUBLIC.values() if known["config"] is config), None)
    known = known or PUBLIC["Llama-3.1-8B-Instruct"]
    float32 = isinstance(config, dict) and config.get("torch_dtype") == "float32"
    return int(known["built"] * known.get("bytes_per_parameter", 4 if float32 else 2))


def spec_with(config: Any, *, has_files: bool = True, **fields: Any) -> EndpointSpec:
    """Return a spec of one's own model, as if its config had been read at a place."""
    values: dict[str, Any] = {
        "name": "demo",
        "model": {"name": "mine", "config": "mine", "license": "mit"},
        "model_uri": "s3://bucket/target/",
        "speculation": {"mode": "none"},
        "execution_role_arn": ROLE,
        "scheduler_role_arn": SCHEDULER_ROLE,
    }
    weights = files_of(config) if has_files else None
    facts = OwnFacts(config=config, place="mine/config.json", weights_bytes=weights)
    return EndpointSpec(**{**values, **fields}).with_own_facts(facts)


def plan_with(config: Any, **fields: Any) -> Plan:
    """Plan such a spec on AWS."""
    return make_plan(spec_with(config, **fields), AWS)


def errors(plan: Plan) -> list[str]:
    """The messages that refuse a plan."""
    return [one.message for one in plan.errors()]


@each_model
def test_the_kv_cache_and_the_context_are_right(name: str) -> None:
    facts, known = read_config(PUBLIC[name]["config"], name), PUBLIC[name]
    sizes = {
        bool(window): sum(
            group["layers"] * group.get("tensors", 2) * group["kv_heads"] * group["head_dim"] * 2
            for group in facts.attention or ()
            if bool(group.get("window")) == window
        )
        for window in (False, True)
    }
    assert sum(sizes.values()) == known["kv_bytes"]
    windowed = known.get("window", {"kv_bytes": 0, "tokens": None})
    assert sizes[True] == windowed["kv_bytes"]
    assert {group.get("window") for group in facts.attention or ()} - {None} == {windowed["tokens"]} - {None}
    assert facts.max_context == known["context"]


# Instance, GPUs of a replica, and whether weights, one sequence of 8,192 tokens, 2 GB a GPU and the tenth
# that vLLM leaves free fit: the sums were made by hand from the cards' figures.

FITS = [
    ("Llama-3.1-8B-Instruct", "ml.g5.2xlarge", 1, True),  # 16.06 + 1.07 of 24 x 0.9 - 2 = 19.6
    ("Qwen2.5-VL-7B-Instruct", "ml.g5.2xlarge", 1, True),  # 16.58 + 0.47 of 19.6
    ("Mistral-Small-3.1-24B-Instruct-2503", "ml.g6e.2xlarge", 1, False),  # 48.0 of 48 x 0.9 - 2 = 41.2
    ("Phi-4", "ml.g6e.2xlarge", 1, True),  # 29.3 + 1.7 of 41.2
    ("Llama-3.3-70B-Instruct", "ml.p5.48xlarge", 1, False),  # 141.1 of 80 x 0.9 - 2 = 70
    ("Llama-3.3-70B-Instruct", "ml.g6e.12xlarge", 4, True),  # 141.1 + 2.7 of 4 x 41.2 = 164.8
    ("Mixtral-8x7B-Instruct-v0.1", "ml.g6e.12xlarge", 2, False),  # 93.4 of 2 x 41.2 = 82.4
    ("Mixtral-8x7B-Instruct-v0.1", "ml.g6e.12xlarge", 4, True),  # 93.4 + 1.1 of 164.8
    ("Qwen3-32B", "ml.p5.48xlarge", 1, True),  # 65.5 + 2.1 of 70
    ("Gemma-3-27B-it", "ml.g6e.2xlarge", 1, False),  # 54.9 of 41.2
    ("Qwen3-235B-A22B", "ml.p5.48xlarge", 8, True),  # 470.2 + 1.6 of 8 x 70 = 560
    ("DeepSeek-V3", "ml.p5.48xlarge", 8, False),  # 672.9 (FP8) of 560
    ("DeepSeek-V3", "ml.p5en.48xlarge", 8, True),  # 672.9 + 8 x 0.58 of 8 x (141 x 0.9 - 2) = 999
    ("SmolLM2-135M-Instruct", "ml.g5.2xlarge", 1, True),
]


@pytest.mark.parametrize(("name", "instance", "gpus", "fits"), FITS)
def test_the_memory_verdict_is_that_of_a_sum_by_hand(name: str, instance: str, gpus: int, fits: bool) -> None:
    plan = plan_with(
        PUBLIC[name]["config"],
        serving={"tensor_parallel_size": gpus, "max_model_len": 8192},
        placement={"instance_types": [instance]},
    )
    assert plan.memory is not None
    assert plan.memory.fits is fits, plan.memory.lines
    assert any("does not fit" in message for message in errors(plan)) is not fits


@each_model
@pytest.mark.parametrize("mode", ["none", "eagle3", "p-eagle"])
def test_a_plan_of_each_with_and_without_a_head_sends_its_own_files(name: str, mode: str) -> None:
    head, heads = "s3://bucket/heads/mine", read_config(PUBLIC[name]["config"], name).heads
    gpus = {"Phi-4": 2, "SmolLM2-135M-Instruct": 1}.get(name, 8 if heads % 8 == 0 else 4)
    plan = plan_with(
        PUBLIC[name]["config"],
        speculation={"mode": mode, **({"draft_head": head} if mode != "none" else {})},
        serving={"tensor_parallel_size": gpus},
        placement={"instance_types": ["ml.p6-b200.48xlarge"]},
    )
    if mode != "none" and name in WITHOUT_HEADS:
        assert any("speculation.mode" in message for message in errors(plan))
        return
    assert errors(plan) == []
    container = plan.parameters("create_model")["PrimaryContainer"]
    sent = str(container)
    assert "s3://bucket/target/" in sent
    assert (f"{head}/" in sent) is (mode != "none")
    assert container["Environment"]["SM_VLLM_TENSOR_PARALLEL_SIZE"] == str(gpus)


@pytest.mark.parametrize(("name", "gpus"), [("Qwen2.5-7B-Instruct", 8), ("Phi-4", 8), ("Phi-4", 4)])
def test_heads_that_cannot_be_split_over_the_gpus_are_an_error(name: str, gpus: int) -> None:
    """28 heads over 8; 10 KV heads over 8 and 4: vllm/config/model.py refuses both."""
    [message] = errors(
        plan_with(
            PUBLIC[name]["config"],
            serving={"tensor_parallel_size": gpus},
            placement={"instance_types": ["ml.p6-b200.48xlarge"]},
        )
    )
    assert message.startswith("serving.tensor_parallel_size")


def test_the_smallest_instance_on_which_it_fits_is_the_default() -> None:
    assert plan_with(LLAMA).draft.instance_types == ("ml.g5.2xlarge",)
    large = plan_with(PUBLIC["Llama-3.3-70B-Instruct"]["config"], serving={"tensor_parallel_size": 4})
    assert large.draft.instance_types == ("ml.g6e.12xlarge",)
    assert large.memory is not None
    assert large.memory.fits


def test_without_a_placement_each_model_gets_an_instance_on_which_it_fits() -> None:
    assert plan_with(LLAMA).spec.serving.tensor_parallel_size == 1
    for name in PUBLIC:
        chosen = plan_with(PUBLIC[name]["config"])
        assert chosen.memory is not None
        assert (chosen.memory.fits, errors(chosen)) == (True, []), name
    # two replicas need twice the GPUs
    double = plan_with(PUBLIC["Qwen3-32B"]["config"], serving={"data_parallel_size": 2})
    assert double.unused_gpus == 0


def head_plan(head_bytes: int | None, config: Any = LLAMA, **fields: Any) -> Plan:
    """Plan with a head of one's own, whose files were read or not."""
    drafting = {"mode": "eagle3", "draft_head": "s3://bucket/heads/mine"}
    spec = spec_with(config, speculation=drafting, **fields)
    assert spec.own_facts is not None
    return make_plan(spec.with_own_facts(replace(spec.own_facts, head_bytes=head_bytes)), AWS)


def test_a_heads_memory_is_that_of_its_files_else_an_upper_estimate() -> None:
    read = head_plan(850_000_000).memory
    assert read is not None
    assert (read.head_gb, read.head_estimated) == (0.85, False)
    unread = head_plan(None).memory
    assert unread is not None
    # yuhuili's EAGLE-3 head of Llama 3.1 8B has 0.85 GB, with 32,000 of 128,256 output rows
    assert 0.85 < unread.head_gb < 4
    assert unread.head_estimated
    assert any("upper estimate" in line for line in unread.lines)


def test_an_estimate_alone_refuses_no_plan() -> None:
    tight = {"placement": {"instance_types": ["ml.g5.2xlarge"]}, "serving": {"max_model_len": 16384}}
    assert errors(head_plan(300_000_000, **tight)) == []
    plan = head_plan(None, **tight)
    assert errors(plan) == []
    [warning] = [each for each in plan.findings if each.check == "memory"]
    assert warning.severity == "warning"
    assert "upper estimate" in warning.message
    assert any("does not fit" in message for message in errors(head_plan(3_000_000_000, **tight)))


def test_float32_is_counted_where_the_engine_computes_in_it() -> None:
    """On a GPU only if the spec's dtype says so; the local engine keeps float32 files as they are."""
    config = {**LLAMA, "torch_dtype": "float32"}
    given = plan_with(config, serving={"extra_args": {"dtype": "float32"}}).memory
    usual = plan_with(config).memory
    assert given is not None
    assert usual is not None
    assert given.weights_gb == pytest.approx(2 * usual.weights_gb)
    assert given.kv_cache_gb == pytest.approx(2 * usual.kv_cache_gb)
    local = make_plan(spec_with(config, placement={"instance_types": ["ml.c7i.2xlarge"]}), LOCAL).memory
    assert local is not None
    assert local.weights_gb == pytest.approx(32.12, abs=0.01)
    halved = make_plan(spec_with(LLAMA, placement={"instance_types": ["ml.c7i.2xlarge"]}), LOCAL).memory
    assert halved is not None
    assert halved.weights_gb == pytest.approx(16.06, abs=0.01)


def test_a_fine_tune_meets_the_known_faults_of_its_family() -> None:
    uri = "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.23.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
    drafting = {"mode": "eagle3", "draft_head": "s3://bucket/heads/mine"}
    faults = {
        name: {
            each.message.partition(":")[0]
            for each in plan_with(PUBLIC[name]["config"], speculation=drafting, image=uri).findings
            if each.check == "known-faults"
        }
        for name in ("gpt-oss-20b", "gemma-4-31B-it", "Llama-3.1-8B-Instruct", "Qwen3-235B-A22B")
    }
    assert "gpt-oss-tool-arguments" in faults["gpt-oss-20b"]
    assert faults["gemma-4-31B-it"] == {"gemma-tool-streams"}
    assert faults["Llama-3.1-8B-Instruct"] == faults["Qwen3-235B-A22B"] == set()


@pytest.mark.parametrize(
    ("name", "gpus", "instance"),
    [
        ("Llama-3.3-70B-Instruct", 4, "ml.g6e.12xlarge"),
        ("Mixtral-8x7B-Instruct-v0.1", 4, "ml.g6e.12xlarge"),
        ("DeepSeek-V3", 8, "ml.p5en.48xlarge"),
    ],
)
def test_a_large_model_is_split_over_gpus_by_default(name: str, gpus: int, instance: str) -> None:
    """On one GPU Llama 3.3 70B needs a B200: 142 USD an hour with seven idle GPUs, instead of 13."""
    plan = plan_with(PUBLIC[name]["config"])
    assert (plan.spec.serving.tensor_parallel_size, plan.draft.instance_types) == (gpus, (instance,))
    assert errors(plan) == []
    assert plan.unused_gpus == 0
    container = plan.parameters("create_model")["PrimaryContainer"]
    assert container["Environment"]["SM_VLLM_TENSOR_PARALLEL_SIZE"] == str(gpus)
    assert ("GPUs per replica", str(gpus)) in plan.card().fields


def test_a_given_number_of_gpus_or_instance_is_kept() -> None:
    config = PUBLIC["Llama-3.3-70B-Instruct"]["config"]
    assert plan_with(config, serving={"tensor_parallel_size": 1}).spec.serving.tensor_parallel_size == 1
    placed = plan_with(config, placement={"instance_types": ["ml.g6e.12xlarge"]})
    assert placed.spec.serving.tensor_parallel_size == 1
    [message] = errors(placed)
    assert "ml.g6e.12xlarge" in message


def test_more_gpus_than_kv_heads_hold_copies_of_the_cache() -> None:
    """MLA's latent is whole on each GPU, and so are the 4 KV heads of Qwen3-235B on 8 GPUs, twice."""
    for name, copies in (("DeepSeek-V3", 8), ("Qwen3-235B-A22B", 2), ("Llama-3.3-70B-Instruct", 1)):
        plan = plan_with(
            PUBLIC[name]["config"],
            serving={"tensor_parallel_size": 8, "max_model_len": 1000},
            placement={"instance_types": ["ml.p6-b200.48xlarge"]},
        )
        assert plan.memory is not None
        assert plan.memory.kv_cache_gb == pytest.approx(copies * PUBLIC[name]["kv_bytes"] / 1e6, abs=1e-4)


def test_an_unknown_model_type_has_the_defaults_of_its_class() -> None:
    """Kimi K2 has DeepSeek-V3's class and a model_type of its own."""
    config = {
        **PUBLIC["DeepSeek-V3"]["config"],
        "model_type": "kimi_k2",
        "n_routed_experts": 384,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 0,
        "vocab_size": 163840,
    }
    del config["kv_lora_rank"]
    [group] = read_config(config, "kimi").attention or ()
    assert (group["tensors"], group["head_dim"]) == (1, 576)


def test_the_advice_for_a_model_of_the_hub_is_a_spec_that_parses() -> None:
    with pytest.raises(SpecError) as error:
        load_catalog().model("meta-llama/Llama-3.3-70B-Instruct")
    advice = str(error.value.next_step)
    written = advice[advice.index("model: {") : advice.index("}") + 1]
    spec = parse_spec(f"name: demo\n{written}\n", "peagle.yaml")
    assert spec.own_model is not None
    assert spec.own_model.config == "meta-llama/Llama-3.3-70B-Instruct"


@pytest.mark.parametrize(
    "config",
    [
        LLAMA,
        {**LLAMA, "quantization_config": {"quant_method": "brand-new"}},
        {**LLAMA, "model_type": "brand_new", "architectures": ["BrandNewForCausalLM"]},
    ],
)
def test_without_weights_and_their_index_the_size_is_asked_for(config: Any) -> None:
    plan = plan_with(config, has_files=False)
    assert any("model.weights_gb" in message for message in errors(plan))
    assert errors(plan_with(config)) == []
    given = plan_with(config, has_files=False, model={"name": "mine", "config": "mine", "weights_gb": 5.7})
    assert errors(given) == []
    assert given.memory is not None
    assert given.memory.weights_gb == 5.7


def test_files_of_float32_take_half_in_the_engine() -> None:
    """vLLM loads float32 weights with 16 bits: vllm/config/model.py, _resolve_auto_dtype."""
    plan = plan_with({**LLAMA, "torch_dtype": "float32"})
    assert plan.memory is not None
    assert plan.memory.weights_gb == pytest.approx(16.06, abs=0.01)


REFUSED: list[tuple[Any, str]] = [
    (["a", "list"], "JSON object"),
    ({}, "hidden_size"),
    ({**LLAMA, "hidden_size": "4096"}, "hidden_size"),
    ({**LLAMA, "num_hidden_layers": 10**30}, "num_hidden_layers"),
    ({**LLAMA, "num_attention_heads": -1}, "num_attention_heads"),
    ({**LLAMA, "architectures": ["LlamaForCausalLMEagle3"]}, "draft head"),
    ({"speculators_model_type": "peagle"}, "draft head"),
    ({**LLAMA, "draft_vocab_size": 32000}, "draft head"),
    ({**LLAMA, "is_encoder_decoder": True}, "encoder-decoder"),
]


@pytest.mark.parametrize(("config", "said"), REFUSED)
def test_what_is_no_targets_config_is_refused_by_the_fields_name(config: Any, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        plan_with(config)
    assert caught.value.message.startswith("model.config")
    assert said in caught.value.message
    assert caught.value.next_step


ODD: tuple[Any, ...] = (
    *(None, 0, -1, 2**40, 1.5, float("nan"), float("inf"), True, False, "x", "", [], ["x"], [1, "a"], {}),
    *({"a": 1}, {"factor": "x"}, {"factor": float("inf"), "rope_type": "linear"}, [[1]]),
)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_value_anywhere_is_a_spec_error_or_is_left_out(odd: Any) -> None:
    for known in PUBLIC.values():
        config = known["config"]
        parts = [(None, config), *((name, part) for name, part in config.items() if isinstance(part, dict))]
        for outer, part in parts:
            for name in (*part, "mlp_only_layers", "layer_types", "quantization_config", "mlp_ratio"):
                changed = {**part, name: odd}
                with suppress(SpecError):  # nothing else
                    read_config(changed if outer is None else {**config, outer: changed}, "x")


def test_the_mapping_is_read_written_and_refused_by_field() -> None:
    text = "name: demo\nmodel: {name: mine, config: ./folder, license: mit}\n"
    spec = parse_spec(text)
    assert (spec.model_name, parse_spec(dump_spec(spec))) == ("mine", spec)
    for wrong, field in (
        ("{name: mine, confg: x}", "model.confg"),
        ("{config: x}", "model.name"),
        ("{name: mine, weights_gb: -1}", "model.weights_gb"),
        ("{name: 'has space'}", "model.name"),
    ):
        with pytest.raises(SpecError) as caught:
            parse_spec(f"name: demo\nmodel: {wrong}\n")
        [problem] = caught.value.details["problems"]
        assert (problem["field"], problem["line"]) == (field, 2)


def test_a_name_of_the_catalogue_is_not_for_ones_own_model() -> None:
    with pytest.raises(SpecError, match=r"model\.name"):
        plan_with(LLAMA, model={"name": "gpt-oss-20b", "config": "x"})


def test_an_unknown_name_leads_to_the_mapping() -> None:
    with pytest.raises(SpecError) as caught:
        catalog_for(parse_spec("name: a\nmodel: llama-3.3-70b\n")).model("llama-3.3-70b")
    assert "config:" in str(caught.value.next_step)


def test_a_head_in_s3_is_its_own_name_and_prefix() -> None:
    values = {"name": "a", "model": "gpt-oss-20b", "speculation": {"draft_head": "s3://bucket/heads/mine"}}
    spec = EndpointSpec(**values)
    assert (spec.head_uri, spec.speculation.draft_head) == ("s3://bucket/heads/mine/", "mine")
    with pytest.raises(SpecError, match="head_uri"):
        EndpointSpec(**values, head_uri="s3://bucket/other/")


def test_a_jumpstart_model_of_any_id_waits_for_its_lock() -> None:
    spec = EndpointSpec(name="a", model={"name": "mine", "jumpstart": "meta-llama-3-8b"})
    plan = make_plan(spec, AWS)
    assert plan.draft.source == "jumpstart"
    assert any("meta-llama-3-8b" in message for message in errors(plan))
    assert any("peagle-sm lock" in one.next_step for one in plan.errors())
