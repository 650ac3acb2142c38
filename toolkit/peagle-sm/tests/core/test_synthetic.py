"""Synthetic acceptance: no file can have it, and an endpoint with it cannot be taken for a real one."""

from __future__ import annotations

import json

import pytest

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.resolve import Context
from peagle_sm.core.planning import Plan, make_plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, dump_spec, json_schema, parse_spec
from peagle_sm.core.spec.modes import is_synthetic
from tests.core.support import AWS, LOCAL, bodies

TINY = "name: a\nmodel: tiny-code\nspeculation: {mode: p-eagle, num_speculative_tokens: 3}\n"
FIELDS = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.5}


def planned(text: str, length: float, context: Context) -> Plan:
    return make_plan(parse_spec(text).with_synthetic_acceptance(length), context, load_catalog())


def test_no_file_can_have_it() -> None:
    for name, value in FIELDS.items():
        with pytest.raises(SpecError, match=name):
            EndpointSpec(name="a", model="tiny-code", speculation={name: value})
    spec = parse_spec(TINY).with_synthetic_acceptance(2.5)
    assert dump_spec(spec) == dump_spec(parse_spec(TINY))
    assert "synthetic" not in json.dumps(json_schema())


def test_the_engine_gets_vllm_s_fields_and_the_endpoint_another_mode() -> None:
    plan = planned(TINY, 2.5, LOCAL)
    body = bodies(plan).model
    environment = body["PrimaryContainer"]["Environment"]
    config = json.loads(environment["SM_VLLM_SPECULATIVE_CONFIG"])
    assert FIELDS.items() <= config.items()
    assert is_synthetic(config)
    assert {tag["Value"] for tag in body["Tags"] if tag["Key"] == "peagle-sm:mode"} == {"synthetic"}
    # The gate would refuse an engine that accepts no draft, and count what is made up.
    assert environment["PEAGLE_GATE_CANARY_PROMPTS"] == "0"
    assert "PEAGLE_GATE_NAMESPACE" not in environment
    real = make_plan(parse_spec(TINY), LOCAL, load_catalog())
    assert not is_synthetic(
        json.loads(bodies(real).model["PrimaryContainer"]["Environment"]["SM_VLLM_SPECULATIVE_CONFIG"])
    )


def test_an_image_without_it_is_refused() -> None:
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.19.0-gpu-py312"
    text = f"name: a\nmodel: gpt-oss-20b\nsource: container\nimage: {image}\nspeculation: {{mode: p-eagle}}\n"
    messages = [f.message for f in planned(text, 2.0, AWS).findings if f.check == "flag-versions"]
    assert any("synthetic acceptance" in message and "0.20.0" in message for message in messages)
