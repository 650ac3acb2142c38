"""The recommended specs as stacks on both instance types: synthesised, and read by cfn-lint."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from aws_cdk import App
from cfnlint.api import ManualArgs, lint

from peagle_sm.service.spec_to_plan import load_spec
from stacks.endpoint_stack import EndpointStack
from stacks.specs import plan_for
from tests.recommended import GPUS, PATHS, PLACES, placed
from tests.stacks.support import EMAIL, REGION, evaluated, stand_ins

pytestmark = pytest.mark.slow

# Where an example names the instance type itself, test_review lints its stack already.
_LINTED = {(path.stem, kind) for path in PATHS for kind in load_spec(path).placement.instance_types}


@cache
def _templates() -> dict[tuple[str, str], str]:
    app = App(analytics_reporting=False)
    values = {}
    for number, place in enumerate(PLACES):
        spec = placed(*place).model_copy(update={"name": f"place-{number}"})
        values[place] = EndpointStack(app, plan_for(spec, REGION, stand_ins()), EMAIL).stack_name
    by_name = {stack.stack_name: json.dumps(stack.template) for stack in app.synth().stacks}
    return {place: by_name[name] for place, name in values.items()}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-on-".join(place))
def test_it_becomes_a_stack_that_accelerates_on_that_type(place: tuple[str, str]) -> None:
    template: dict[str, Any] = json.loads(_templates()[place])
    resources = evaluated(template)
    (variant,) = [
        variant
        for resource in resources.values()
        for variant in resource["Properties"].get("ProductionVariants", ())
    ]
    assert variant["InstanceType"] == place[1]
    (text,) = _values(resources, "SM_VLLM_SPECULATIVE_CONFIG")
    assert json.loads(text)["parallel_drafting"] is True
    replicas = _values(resources, "SM_VLLM_DATA_PARALLEL_SIZE") or ["1"]
    assert replicas == [str(GPUS[place[1]])]


def _values(given: object, key: str) -> list[str]:
    """Every value of a key, in fields of a resource or in the text of the request for its provider."""
    if isinstance(given, str) and given.startswith("{"):
        given = json.loads(given)
    if isinstance(given, list):
        return [value for each in given for value in _values(each, key)]
    if not isinstance(given, dict):
        return []
    here = [str(given[key])] if key in given else []
    return here + [value for each in given.values() for value in _values(each, key)]


@pytest.mark.campaign  # no property that the templates of test_review lack
@pytest.mark.parametrize("place", sorted(set(PLACES) - _LINTED), ids=lambda place: "-on-".join(place))
def test_cfn_lint_finds_nothing(place: tuple[str, str]) -> None:
    assert [str(match) for match in lint(_templates()[place], config=ManualArgs(regions=[REGION]))] == []
