"""The recommended specs have no error; what is held against their engine is a warning with a last day."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_sm.core.planning import make_plan
from peagle_sm.service.spec_to_plan import load_spec
from tests.core.support import AWS as ON_AWS
from tests.core.support import LOCAL, bodies, breaches
from tests.recommended import GPUS, PATHS, PLACES, placed

EXAMPLES = sorted((Path(__file__).parents[4] / "docs" / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_recommended_spec_has_no_error(path: Path) -> None:
    spec = load_spec(path)
    here = spec.model_name == "smollm2-135m-instruct"  # meant for this machine
    plan = make_plan(spec, LOCAL if here else ON_AWS)
    assert [f"{each.check}: {each.message}" for each in plan.findings if each.severity == "error"] == []
    assert not plan.refused
    assert [breaches(request) for request in plan.requests] == [[]] * 6
    assert plan.memory is not None
    assert (plan.memory.fits, plan.unused_gpus) == (True, 0)
    held = [each for each in plan.findings if each.check in ("advisories", "known-faults")]
    assert bool(held) is not here, "every engine that AWS publishes is below the floor"
    for each in held:
        assert each.severity == "warning", each
        assert each.expires is not None
        assert "valid until" in each.message
        assert each.url


@pytest.mark.parametrize(("stem", "instance_type"), PLACES)
def test_a_recommended_spec_fits_on_both_instance_types(stem: str, instance_type: str) -> None:
    plan = make_plan(placed(stem, instance_type), ON_AWS)
    assert [f"{each.check}: {each.message}" for each in plan.findings if each.severity == "error"] == []
    assert not plan.refused
    assert plan.memory is not None
    assert plan.memory.fits
    assert {each.check for each in plan.findings} <= {
        "advisories",
        "known-faults",
        "price",  # of a B200: EC2's alone is known
        "jumpstart-instance",  # gpt-oss-20b on a B200: JumpStart does not list the type
        "chat-vocabulary",  # gpt-oss from your own bucket
        "trained-depth",  # Gemma's head is one's own
    }
    (variant,) = [
        variant for request in plan.requests for variant in request.parameters.get("ProductionVariants", ())
    ]
    assert variant["InstanceType"] == instance_type
    environment = bodies(plan).model["PrimaryContainer"]["Environment"]
    assert json.loads(environment["SM_VLLM_SPECULATIVE_CONFIG"])["parallel_drafting"] is True
    assert environment.get("SM_VLLM_DATA_PARALLEL_SIZE", "1") == str(GPUS[instance_type])


def test_there_are_five_recommended_specs_for_each_instance_type() -> None:
    assert len(PATHS) == 5
    assert len(PLACES) == len(PATHS) * len(GPUS)
