"""The table of modes: what the spec accepts with each, and what the engine gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.catalog import SPECULATIVE_CONFIG, load_catalog
from peagle_sm.core.engines import RUNNER_VARIABLE
from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.environment import speculative_config
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, SpeculationSpec, dump_spec, parse_spec
from peagle_sm.core.spec.modes import (
    DRAFT_TOKENS,
    HEAD,
    MODES,
    SPECULATING,
    TABLE,
    WITH_HEAD,
    Mode,
    facts_of,
    mode_of_config,
    title_of,
)
from tests.core.strategies import json_values
from tests.core.support import AWS, CONTAINER, LOCAL, TINY, bodies, found, plan_of

VALUES: dict[str, Any] = {
    DRAFT_TOKENS: 5,
    HEAD: "mine",
    TABLE: ((1, 4, 5), (5, 8, 2)),
    "draft_sample_method": "greedy",
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
    "suffix_decoding_max_tree_depth": 16,
    "suffix_decoding_max_cached_requests": 0,
    "suffix_decoding_max_spec_factor": 1.5,
    "suffix_decoding_min_token_prob": 0.2,
    "use_heterogeneous_vocab": True,
    "index_share_for_mtp_iteration": False,
    "dspark_draft_topk": 8,
    "enable_adaptive_verification": True,
    "draft_tensor_parallel_size": 1,
}
FIELDS = sorted(set(SpeculationSpec.model_fields) - {"mode"})


def spec_with(mode: Mode, fields: dict[str, Any]) -> EndpointSpec:
    return EndpointSpec(name="demo", model="tiny-code", speculation={"mode": mode, **fields})


def test_every_field_of_the_spec_is_of_a_mode_and_every_mode_has_only_fields_of_the_spec() -> None:
    assert set(FIELDS) == {name for mode in SPECULATING for name in facts_of(mode).fields} == set(VALUES)


@given(mode=st.sampled_from(SPECULATING), name=st.sampled_from(FIELDS))
def test_a_field_is_accepted_by_the_modes_that_have_it_and_by_no_other(mode: Mode, name: str) -> None:
    if name in facts_of(mode).fields:
        assert getattr(spec_with(mode, {name: VALUES[name]}).speculation, name) == VALUES[name]
        return
    with pytest.raises(SpecError) as caught:
        spec_with(mode, {name: VALUES[name]})
    message = caught.value.message
    assert f"speculation.{name}: found " in message
    assert f"with mode {mode!r}" in message
    allowed = message.partition("only with mode ")[2].partition(" (")[0]
    assert allowed.split(", ") == [each for each in MODES if name in facts_of(each).fields]


@given(mode=st.sampled_from(MODES), fields=st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4))
def test_any_values_are_read_back_or_refused_by_name(mode: Mode, fields: dict[str, Any]) -> None:
    try:
        spec = spec_with(mode, fields)
    except SpecError as error:
        problems = error.details["problems"]
    else:
        assert parse_spec(dump_spec(spec)) == spec
        return
    assert problems
    assert all(each["next_step"] and each["field"].startswith("speculation") for each in problems)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mode": "ngram", DRAFT_TOKENS: 0}, "num_speculative_tokens: found 0 with mode 'ngram'; allowed: 1"),
        ({"mode": "ngram", "prompt_lookup_max": 0}, "prompt_lookup_max: found 0; allowed: 1 or more"),
        (
            {"mode": "ngram", "prompt_lookup_max": 2, "prompt_lookup_min": 3},
            "prompt_lookup_min: found 3 with prompt_lookup_max 2; allowed: 1 to 2",
        ),
        (
            {"mode": "suffix", "suffix_decoding_min_token_prob": 1.5},
            "suffix_decoding_min_token_prob: found 1.5; allowed: 1.0 or less",
        ),
        (
            {"mode": "draft-model", "use_heterogeneous_vocab": True, "draft_sample_method": "probabilistic"},
            "draft_sample_method: found 'probabilistic' with use_heterogeneous_vocab; allowed: greedy",
        ),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_allowed(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        EndpointSpec(name="demo", model="tiny-code", speculation=fields)
    assert said in caught.value.message


def drafting(spec: str, base: str = CONTAINER, context: Any = AWS) -> dict[str, Any]:
    container = bodies(plan_of(base, f"speculation: {spec}", context)).model["PrimaryContainer"]
    config: dict[str, Any] = json.loads(container["Environment"][SPECULATIVE_CONFIG])
    return config


CHANNEL = "/opt/ml/additional-model-data-sources/eagle"


@pytest.mark.parametrize(
    ("spec", "config"),
    [
        (
            "{mode: ngram, prompt_lookup_max: 4}",
            {"method": "ngram", DRAFT_TOKENS: 5, "prompt_lookup_max": 4},
        ),
        ("{mode: suffix}", {"method": "suffix", DRAFT_TOKENS: 24}),
        (
            "{mode: draft-model, draft_head: small, num_speculative_tokens: 4}",
            {"method": "draft_model", "model": CHANNEL, DRAFT_TOKENS: 4},
        ),
        ("{mode: mtp, draft_head: mine}", {"method": "mtp", "model": CHANNEL, DRAFT_TOKENS: 1}),
        ("{mode: dflash, draft_head: mine}", {"method": "dflash", "model": CHANNEL, DRAFT_TOKENS: 7}),
        (
            "{mode: dspark, draft_head: mine, enable_adaptive_verification: true}",
            {"method": "dspark", "model": CHANNEL, DRAFT_TOKENS: 7, "enable_adaptive_verification": True},
        ),
        (
            "{mode: p-eagle, num_speculative_tokens: 5}",
            {"method": "eagle3", "model": CHANNEL, DRAFT_TOKENS: 5, "parallel_drafting": True},
        ),
    ],
)
def test_the_engine_gets_the_modes_own_config(spec: str, config: dict[str, Any]) -> None:
    assert drafting(spec) == config


@pytest.mark.parametrize("mode", SPECULATING)
def test_the_config_of_a_mode_names_the_mode_again(mode: Mode) -> None:
    assert mode_of_config(facts_of(mode).config) == mode


def test_a_method_that_no_mode_has_is_no_mode() -> None:
    assert mode_of_config({"method": "medusa"}) is None
    assert title_of("medusa") == "mode unknown"


def test_a_drafter_from_the_text_has_no_files_and_no_memory() -> None:
    plan = plan_of(TINY, "speculation: {mode: ngram}", LOCAL)
    container = bodies(plan).model["PrimaryContainer"]
    assert "AdditionalModelDataSources" not in container
    assert plan.memory is not None
    assert plan.memory.head_gb == 0
    assert not [finding for finding in plan.findings if finding.severity == "error"]


def test_a_heads_files_have_no_effect_with_a_drafter_from_the_text() -> None:
    plan = plan_of(CONTAINER, "speculation: {mode: ngram}")
    assert [finding.severity for finding in found(plan, "ignored-speculation")] == ["info"]


def test_weights_inside_the_target_need_no_head() -> None:
    own = "name: demo\nmodel: {name: mine, weights_gb: 2}\nsource: container\n"
    plan = plan_of(own, "speculation: {mode: mtp, num_speculative_tokens: 2}")
    assert speculative_config(plan.draft) == {"method": "mtp", DRAFT_TOKENS: 2}
    assert not [
        finding
        for finding in plan.findings
        if "draft_head" in finding.message and finding.severity == "error"
    ]


@pytest.mark.parametrize("mode", [mode for mode in WITH_HEAD if facts_of(mode).needs_head])
def test_a_mode_without_a_head_is_refused_before_anything_is_sent(mode: Mode) -> None:
    own = "name: demo\nmodel: {name: mine, weights_gb: 2}\nsource: container\n"
    errors = [each.message for each in found(plan_of(own, f"speculation: {{mode: {mode}}}"), "missing-fact")]
    assert [message for message in errors if message.startswith("speculation.draft_head: found nothing")]


VLLM = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"


@pytest.mark.parametrize(
    ("mode", "lacks", "has"), [("dflash", "0.19.1", "0.20.0"), ("dspark", "0.24.0", "0.25.0")]
)
def test_a_mode_that_the_image_does_not_have_is_refused(mode: Mode, lacks: str, has: str) -> None:
    def messages(version: str) -> list[str]:
        image = f"{VLLM}:{version}-gpu-py312-cu129-ubuntu22.04-sagemaker"
        extra = f"speculation: {{mode: {mode}, draft_head: mine}}\n{image}"
        return [finding.message for finding in found(plan_of(CONTAINER, extra), "flag-versions")]

    assert messages(lacks) == [f"speculation.mode: {mode} needs vLLM {has} or newer; the image has {lacks}"]
    assert messages(has) == []


@pytest.mark.parametrize(
    ("mode", "runner"), [("ngram", None), ("suffix", "0"), ("dflash", None), ("dspark", None)]
)
def test_the_first_model_runner_is_chosen_only_for_modes_that_need_it(mode: Mode, runner: str | None) -> None:
    head = ", draft_head: mine" if facts_of(mode).has_weights else ""
    plan = plan_of(CONTAINER, f"speculation: {{mode: {mode}{head}}}")
    assert bodies(plan).model["PrimaryContainer"]["Environment"].get(RUNNER_VARIABLE) == runner


@pytest.mark.parametrize(
    ("spec", "runner", "refused"),
    [
        ("{mode: dspark, draft_head: mine}", "0", True),
        ("{mode: suffix}", "1", True),
        ("{mode: ngram}", "1", False),
    ],
)
def test_a_model_runner_without_the_mode_is_refused(spec: str, runner: str, refused: bool) -> None:
    extra = f"speculation: {spec}\nserving: {{env: {{{RUNNER_VARIABLE}: '{runner}'}}}}"
    assert bool(found(plan_of(CONTAINER, extra), "v2-model-runner")) == refused


def test_a_mode_of_the_second_model_runner_is_refused_on_a_cpu() -> None:
    plan = plan_of(TINY, "speculation: {mode: dspark, draft_head: mine}", LOCAL)
    assert [finding.severity for finding in found(plan, "v2-model-runner")] == ["error"]


def test_the_four_models_have_their_public_heads() -> None:
    catalog = load_catalog()
    heads = {name: head for name, head in catalog.heads.items() if head.method in ("dflash", "dspark", "mtp")}
    assert {head.target for head in heads.values()} == {
        "gpt-oss-20b",
        "gpt-oss-120b",
        "gemma-4-31b-it",
        "qwen3-coder-30b-a3b-instruct",
    }
    for name, head in heads.items():
        assert catalog.models[head.target].default_heads[head.method] == name
