"""A spec becomes the plan that its stack is made from: no AWS call, no clock."""

from __future__ import annotations

from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.guard import names as guard_names
from peagle_sm.core.plan.plan import Plan, make_plan
from peagle_sm.core.plan.records import Context
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from stacks.specs import StandIns

EXECUTION_ROLE = "${ExecutionRoleArn}"
SCHEDULER_ROLE = "${SchedulerRoleArn}"
DEFAULT_REGION = "us-east-1"

_NO_ACCOUNT = "000000000000"


def plan_for(spec: EndpointSpec, region: str, stand_ins: StandIns) -> Plan:
    """Return the plan of a spec, with placeholders where the guard's roles go.

    Raises:
        PlanRefused: the plan has a finding of severity "error".
        SpecError: the spec names something that the catalogue does not have.
    """
    context = Context(
        account=_NO_ACCOUNT,
        region=spec.placement.region or region,
        image_uris=stand_ins.image_uris,
        artifacts=stand_ins.artifacts,
        role_arn=EXECUTION_ROLE,
        scheduler_role_arn=SCHEDULER_ROLE,
        stack=guard_names.endpoint_stack(spec.name),
    )
    plan = make_plan(spec, context)
    errors = [finding for finding in plan.findings if finding.severity == "error"]
    if errors:
        raise PlanRefused(
            f"{spec.name}: the plan is refused: " + "; ".join(finding.message for finding in errors),
            next_step=" ".join(dict.fromkeys(finding.next_step for finding in errors)),
        )
    return plan
