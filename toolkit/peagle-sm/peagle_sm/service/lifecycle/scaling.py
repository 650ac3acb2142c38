"""Inference component and autoscaling of a serving endpoint without a stack.

`bring_up_scaling` sends the last requests of a plan. Each can be repeated, so that a run can continue
a killed one. `Teardown` removes what it created.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from peagle_sm.aws.control import cloudwatch
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import EndpointFailed, NotFound, PlanRefused
from peagle_sm.core.plan.scaling import policy_placeholder
from peagle_sm.service.inventory.inspection import patience_s, poll_repeatedly
from peagle_sm.service.inventory.resources import belongs_to
from peagle_sm.service.lifecycle.teardown import Run
from peagle_sm.service.progress import create_once, once_visible


def bring_up_scaling(run: Run) -> None:
    """Create the plan's component and wait for it, then its autoscaling.

    Raises:
        EndpointFailed: the component failed, or took too long.
        PlanRefused: another endpoint's component has the name.
        PeagleError: AWS refused, or did not answer several times.
    """
    policies: dict[str, str] = {}
    for request in run.plan.requests:
        parameters = request.parameters
        if request.operation == "create_inference_component":
            _bring_up_component(run, parameters)
        elif request.operation == "register_scalable_target":
            once_visible(partial(control.register, run.session, parameters), run.pacing, run.report)
            bounds = f"{parameters['MinCapacity']} to {parameters['MaxCapacity']}"
            run.report(
                "scaling",
                f"autoscaling of {request.name}: {bounds}",
                resource=f"scalable-target/{request.name}",
            )
        elif request.operation == "put_scaling_policy":
            arn = _put_policy(run, parameters)
            policies[policy_placeholder(request.name)] = arn
        elif request.operation == "put_metric_alarm":
            actions = [policies.get(action, action) for action in parameters["AlarmActions"]]
            cloudwatch.put_alarm(run.session, {**parameters, "AlarmActions": actions})
            run.report("scaling", f"alarm {request.name} created", resource=f"alarm/{request.name}")


def _put_policy(run: Run, parameters: Mapping[str, Any]) -> str:
    """Put a scaling policy; retry for about a minute while AWS does not see its new target.

    "There might be a brief delay until the operation achieves eventual consistency" (API reference of
    RegisterScalableTarget). Without a retry the deploy would delete an endpoint that serves.
    """
    return once_visible(
        partial(control.put_policy, run.session, parameters),
        run.pacing,
        run.report,
        is_early=lambda error: isinstance(error, NotFound),
    )


def _bring_up_component(run: Run, parameters: Mapping[str, Any]) -> None:
    name = str(parameters["InferenceComponentName"])
    outcome = create_once(
        partial(control.create_component, run.session, parameters),
        partial(_is_ours, run.session, name, run.name),
        run.pacing,
        run.report,
    )
    run.report("component", f"inference component {name} {outcome}", resource=f"inference-component/{name}")
    look = partial(control.describe_component, run.session, name)
    patience = patience_s(run.startup_timeout_s)
    for facts in poll_repeatedly(run.session, look, patience=patience, pacing=run.pacing, report=run.report):
        status = "missing" if facts is None else str(facts["InferenceComponentStatus"])
        if status == "InService":
            return
        if facts is None or status in ("Failed", "Deleting"):
            raise _failed(name, (facts or {}).get("FailureReason") or f"it is {status}")
        run.report(
            "waiting",
            f"inference component {name}",
            status=status,
            resource=f"inference-component/{name}",
        )
    raise _failed(name, f"it was not InService after {patience / 60:.0f} minutes")


def _is_ours(session: Session, name: str, endpoint: str) -> bool:
    facts = control.describe_component(session, name)
    if facts is None:
        return False
    tags = control.tags_of(session, facts["InferenceComponentArn"])
    if facts["EndpointName"] == endpoint and belongs_to(tags, endpoint):
        return True
    raise PlanRefused(
        f"inference component {name} exists on endpoint {facts['EndpointName']} and was not created by this "
        "plan; it was not changed.",
        next_step="Choose another name for the spec, or delete that component.",
        details={"findings": [], "arn": facts["InferenceComponentArn"]},
    )


def _failed(name: str, reason: str) -> EndpointFailed:
    return EndpointFailed(
        f"Inference component {name} is not in service: {reason}", details={"failure_reason": reason}
    )
