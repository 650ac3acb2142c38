"""Arms side by side on one instance: one endpoint, one inference component for each arm. Pure.

Each component names a model of its own (``ModelName``, which brings the draft head along) and takes the
accelerators of one replica, so an instance with eight of them holds eight arms on one bill. The schedules
that end its life delete the components too: SageMaker refuses to delete an endpoint that has any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from peagle_sm.core.catalog.catalog import load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.component import compute_requirements
from peagle_sm.core.plan.payloads import hard_schedule_name, lifetime_schedule, partition
from peagle_sm.core.plan.plan import Plan, bodies
from peagle_sm.core.plan.records import Request
from peagle_sm.core.plan.resolve import resolve
from peagle_sm.core.plan.tags import ENDPOINT, MODE
from peagle_sm.measure.tune.arms import PREFIX

_PLACED = ("ExecutionRoleArn", "EnableNetworkIsolation", "VpcConfig")
_HOST_MEMORY = 0.9  #: of a host without accelerators that the components may share


@dataclass(frozen=True)
class HostPlan:
    """The requests that make the endpoint, in order; ``components`` are the components' names by arm."""

    endpoint: str
    requests: tuple[Request, ...]
    components: Mapping[str, str]
    usd_per_hour: float | None
    schedules: tuple[str, ...]
    startup_timeout_s: int

    def of(self, operation: str) -> list[dict[str, Any]]:
        """The parameters of each request of one operation."""
        return [one.parameters for one in self.requests if one.operation == operation]


def host_name(spec_name: str) -> str:
    """The endpoint's name."""
    return f"{PREFIX}-{spec_name}"


def spread(max_k: int, count: int) -> tuple[int, ...]:
    """``count`` K from small to ``max_k``, closer together where they are small: 1, 2, 3, 4, 5, 7, 11.

    Raises:
        SpecError: fewer than two, of which no curve can be drawn.
    """
    if count < 2:
        raise SpecError(
            f"--components: {count} K for each mode; allowed: 2 or more, besides the baseline.",
            next_step="Run more arms side by side, or tune one mode at a time.",
        )
    if count >= max_k:
        return tuple(range(1, max_k + 1))
    least = 3 if count == 2 and max_k > 5 else 2 if count < 5 and max_k > 5 else 1
    ratio = (max_k / least) ** (1 / (count - 1))
    found: list[int] = []
    for index in range(count):
        wanted = round(least * ratio**index)
        found.append(max(wanted, found[-1] + 1) if found else wanted)
    return tuple(min(k, max_k - (count - 1 - index)) for index, k in enumerate(found))


def host_plan(spec_name: str, plans: Mapping[str, Plan]) -> HostPlan:
    """One endpoint for the arms of ``plans`` (by arm, each planned as an endpoint of its own).

    Raises:
        SpecError: the instance has too few accelerators for all arms.
        PlanRefused: an arm's plan has no requests.
    """
    endpoint = host_name(spec_name)
    first = next(iter(plans.values()))
    template = bodies(first)
    variant = {
        key: value for key, value in template.config["ProductionVariants"][0].items() if key != "ModelName"
    }
    variant["InitialInstanceCount"] = 1
    needs = _requirements(first, len(plans))
    tags = _tags(template.endpoint["Tags"], endpoint)
    models, components, names = [], [], {}
    for arm, plan in plans.items():
        body = {**bodies(plan).model, "ModelName": plan.names.model, "Tags": tags}
        models.append(Request("sagemaker", "create_model", body))
        names[arm] = plan.names.endpoint
        timeouts = ("ModelDataDownloadTimeoutInSeconds", "ContainerStartupHealthCheckTimeoutInSeconds")
        specification = {
            "ModelName": plan.names.model,
            "StartupParameters": {key: variant[key] for key in timeouts},
            "ComputeResourceRequirements": needs,
        }
        component = {
            "InferenceComponentName": plan.names.endpoint,
            "EndpointName": endpoint,
            "VariantName": variant["VariantName"],
            "Specification": specification,
            "RuntimeConfig": {"CopyCount": 1},
            "Tags": tags,
        }
        components.append(Request("sagemaker", "create_inference_component", component))
    placed = {key: template.model[key] for key in _PLACED if key in template.model}
    config = {
        **template.config,
        "EndpointConfigName": f"{endpoint}-{first.spec_hash[:8]}",
        "ProductionVariants": [variant],
        **placed,
        "Tags": tags,
    }
    schedules = _schedules(endpoint, first, list(names.values()))
    return HostPlan(
        endpoint=endpoint,
        requests=(
            *schedules,
            *models,
            Request("sagemaker", "create_endpoint_config", config),
            Request(
                "sagemaker",
                "create_endpoint",
                {
                    "EndpointName": endpoint,
                    "EndpointConfigName": config["EndpointConfigName"],
                    "Tags": tags,
                },
            ),
            *components,
        ),
        components=names,
        usd_per_hour=first.usd_per_hour,
        schedules=tuple(one.parameters["Name"] for one in schedules),
        startup_timeout_s=first.spec.startup_timeout_s,
    )


def _requirements(plan: Plan, arms: int) -> dict[str, Any]:
    draft = resolve(plan.spec, plan.context, load_catalog())
    facts = draft.instance(draft.instance_types[0])
    needs = compute_requirements(draft)
    each = int(needs.get("NumberOfAcceleratorDevicesRequired", 0))
    if not each:
        memory = int((facts.host_memory_gb if facts and facts.host_memory_gb else 0) * 1000 * _HOST_MEMORY)
        return {"NumberOfCpuCoresRequired": 1.0, "MinMemoryRequiredInMb": max(128, memory // arms)}
    have = facts.gpu_count if facts is not None else 0
    if have < arms * each:
        raise SpecError(
            f"placement.instance_types: {draft.instance_types[0]} has {have} accelerators; {arms} arms "
            f"side by side need {arms * each}.",
            next_step="Choose an instance with eight, run fewer arms, or leave --components out.",
            details={"have": have, "needed": arms * each},
        )
    return needs


def _tags(tags: list[dict[str, str]], endpoint: str) -> list[dict[str, str]]:
    """The arms' tags, under the name of the endpoint that carries them: what deletes it looks for that."""
    other = {ENDPOINT: endpoint, MODE: "none"}
    return [{**tag, "Value": other.get(tag["Key"], tag["Value"])} for tag in tags]


def _schedules(endpoint: str, plan: Plan, components: list[str]) -> list[Request]:
    """The end of its life: each component, and the endpoint, which is refused while one is left."""
    context = plan.context
    if context.now is None:
        return []
    draft = resolve(plan.spec, context, load_catalog())
    hours = timedelta(hours=plan.spec.lifecycle.max_lifetime_hours)
    expiry = context.now.replace(microsecond=0) + hours
    last = lifetime_schedule(endpoint, draft.region, draft.scheduler_role_arn, expiry)
    found = []
    for number, component in enumerate(components, start=1):
        target = {
            "Arn": f"arn:{partition(draft.region)}:scheduler:::aws-sdk:sagemaker:deleteInferenceComponent",
            "RoleArn": draft.scheduler_role_arn,
            "Input": json.dumps({"InferenceComponentName": component}),
        }
        body = {
            **last,
            "Name": hard_schedule_name(endpoint, number),
            "Description": f"peagle-sm: deletes inference component {component} at the end of its lifetime",
            "Target": target,
        }
        found.append(Request("scheduler", "create_schedule", body))
    return [*found, Request("scheduler", "create_schedule", last)]
