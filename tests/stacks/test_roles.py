"""A role of the spec's own: refused at synth where the guard's function could not pass it on."""

from __future__ import annotations

import pytest

from peagle_sm.core.checks.account import NOT_IN_CLOUDFORMATION
from peagle_sm.core.errors import PlanRefused
from stacks.schemas import lacking
from stacks.specs import plan_for
from tests.core.support import bodies
from tests.stacks.support import REGION, plan_of, specs, stand_ins

_OWN = "arn:aws:iam::123456789012:role/ours"


@pytest.mark.parametrize("name", ["gpt-oss-20b", "smollm2-p-eagle"])
def test_a_role_that_the_model_provider_may_not_pass_is_refused_before_anything_is_made(name: str) -> None:
    spec = specs()[name].model_copy(update={"execution_role_arn": _OWN})
    with pytest.raises(
        PlanRefused, match=r"execution_role_arn: found .*role/ours; allowed in this"
    ) as caught:
        plan_for(spec, REGION, stand_ins())
    assert "Leave execution_role_arn out" in (caught.value.next_step or "")


def test_a_role_that_cloudformation_passes_is_a_warning() -> None:
    plan = plan_for(
        specs()["gemma-4-31b-it"].model_copy(update={"execution_role_arn": _OWN}), REGION, stand_ins()
    )
    (finding,) = [finding for finding in plan.findings if finding.check == "stack-role"]
    assert finding.severity == "warning"
    assert "Leave execution_role_arn out" in finding.next_step


@pytest.mark.parametrize("name", sorted(specs()))
def test_the_check_knows_which_fields_the_cdks_model_lacks(name: str) -> None:
    exact = bodies(plan_of(name)).model
    absent = {path.rpartition(".")[2] for path in lacking("AWS::SageMaker::Model", exact)}
    assert absent == NOT_IN_CLOUDFORMATION & exact["PrimaryContainer"].keys()
