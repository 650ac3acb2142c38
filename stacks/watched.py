"""What alarms and dashboard need to know of an endpoint, and the metrics by which it is seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.catalog.catalog import load_catalog
from peagle_sm.core.plan.environment import GATE_NAMESPACE, SPECULATIVE_CONFIG, acceptance_namespace
from peagle_sm.core.plan.plan import Plan, bodies

INVOCATIONS = "AWS/SageMaker"
INSTANCES = "/aws/sagemaker/Endpoints"


@dataclass(frozen=True)
class Watched:
    """An endpoint as the watchers see it.

    ``tokens`` is K, None without speculation. ``gated`` says that the container tells of its drafting itself.
    ``gpus`` counts those of one instance (of several types the
    most), 0 for a host without. Money is USD, None where no price is known. ``publish_s`` is the time
    between two utilisation figures.
    """

    name: str
    variant: str
    component: str | None
    tokens: int | None
    parallel: bool
    gated: bool
    gpus: int
    publish_s: int
    usd_per_instance_hour: float | None
    usd_per_hour: float | None
    max_usd: float | None
    budget_usd: float | None
    max_lifetime_hours: float

    @property
    def log_group(self) -> str:
        """Where SageMaker writes what the containers print."""
        if self.component is not None:
            return f"/aws/sagemaker/InferenceComponents/{self.component}"
        return f"/aws/sagemaker/Endpoints/{self.name}"

    @property
    def acceptance_namespace(self) -> str:
        """The namespace of the figures that are read from the log; it carries the endpoint's name."""
        return acceptance_namespace(self.name)

    @property
    def instances(self) -> Mapping[str, str]:
        """The dimensions of utilisation metrics."""
        return {"EndpointName": self.name, "VariantName": self.variant}

    @property
    def invocations(self) -> Mapping[str, str]:
        """The dimensions of invocation metrics; a component has its own."""
        return self.instances if self.component is None else {"InferenceComponentName": self.component}


def watched(plan: Plan) -> Watched:
    """Take from a plan what the watchers need."""
    sent = bodies(plan)
    variant = sent.config["ProductionVariants"][0]
    speculative = _speculative(sent.model)
    count = plan.spec.placement.instance_count
    lifecycle = plan.spec.lifecycle
    return Watched(
        name=plan.names.endpoint,
        variant=variant["VariantName"],
        component=plan.names.component,
        tokens=speculative.get("num_speculative_tokens"),
        parallel=bool(speculative.get("parallel_drafting")),
        gated=GATE_NAMESPACE in sent.model["PrimaryContainer"]["Environment"],
        gpus=max(_gpus(name) for name in instance_types(plan)),
        publish_s=sent.config["MetricsConfig"]["MetricPublishFrequencyInSeconds"],
        usd_per_instance_hour=None if plan.usd_per_hour is None else plan.usd_per_hour / count,
        usd_per_hour=plan.usd_per_hour,
        max_usd=plan.max_usd,
        budget_usd=lifecycle.budget_usd,
        max_lifetime_hours=lifecycle.max_lifetime_hours,
    )


def _speculative(model: Mapping[str, Any]) -> dict[str, Any]:
    text = model["PrimaryContainer"]["Environment"].get(SPECULATIVE_CONFIG)
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def instance_types(plan: Plan) -> list[str]:
    """Return the instance types of the endpoint, first choice first."""
    variant = bodies(plan).config["ProductionVariants"][0]
    pools = variant.get("InstancePools")
    return [pool["InstanceType"] for pool in pools] if pools else [variant["InstanceType"]]


def _gpus(instance_type: str) -> int:
    entry = load_catalog().instances.get(instance_type)
    return entry.gpu_count if entry is not None else 0


def stat(
    name: str, namespace: str, metric: str, dimensions: Mapping[str, str], statistic: str, period_s: int
) -> dict[str, Any]:
    """Return a metric of an alarm, called ``name`` in its expression."""
    return {
        "Id": name,
        "ReturnData": False,
        "MetricStat": {
            "Metric": {
                "Namespace": namespace,
                "MetricName": metric,
                "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
            },
            "Stat": statistic,
            "Period": period_s,
        },
    }
