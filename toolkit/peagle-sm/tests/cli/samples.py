"""One plan and a few events with round figures, for tests that hold the whole output."""

from __future__ import annotations

from datetime import UTC, datetime

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.plan.memory import MemoryFit
from peagle_sm.core.plan.resolve import Context, resolve
from peagle_sm.core.planning import Plan
from peagle_sm.core.resources.endpoint import Endpoint
from peagle_sm.core.resources.endpoint_config import EndpointConfig
from peagle_sm.core.resources.lifetime_schedule import LifetimeSchedule
from peagle_sm.core.resources.model import Model
from peagle_sm.core.resources.naming import Names
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.words import Finding

NOW = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
SPEC = EndpointSpec(
    name="coder",
    model="qwen3-coder-30b-a3b-instruct",
    speculation={"mode": "p-eagle", "num_speculative_tokens": 7},
    placement={"instance_types": ["ml.p5.48xlarge"]},
    lifecycle={"max_lifetime_hours": 4},
)
RESOURCES = (
    LifetimeSchedule("peagle-coder-lifetime", {"Name": "peagle-coder-lifetime"}),
    Model("coder-0a1b2c3d", {"ModelName": "coder-0a1b2c3d"}),
    EndpointConfig(
        "coder-0a1b2c3d",
        {
            "EndpointConfigName": "coder-0a1b2c3d",
            "ProductionVariants": [{"ModelName": "coder-0a1b2c3d"}],
        },
    ),
    Endpoint("coder", {"EndpointName": "coder", "EndpointConfigName": "coder-0a1b2c3d"}),
)
WARNING = Finding(
    check="unused-gpus",
    severity="warning",
    message="7 of 8 GPUs do nothing",
    next_step="Set serving.data_parallel_size: 8.",
    source="instance facts, 2026-11-20",
)
ERROR = Finding(
    check="draft-depth",
    severity="error",
    message="K is 30, and the head was trained for 18",
    next_step="Set speculation.num_speculative_tokens to 18 or less.",
    source="model card, 2026-02-11",
)


def plan(*findings: Finding, local: bool = False) -> Plan:
    """The plan, with some findings."""
    context = Context(account="123456789012", region="us-west-2", now=NOW, local=local)
    return Plan(
        draft=resolve(SPEC, context, load_catalog()),
        names=Names("coder", "coder-0a1b2c3d", "coder-0a1b2c3d", "peagle-coder-lifetime"),
        spec_hash="0a1b2c3d",
        resources=RESOURCES,
        usd_per_hour=12.5,
        price_source="a price list, 2026-11-20",
        usd_per_day=300.0,
        max_usd=50.0,
        memory=MemoryFit(30.0, 2.0, 8.0, 4.0, 80.0, True, ("weights  30.0 GB", "sum      44.0 of 80.0 GB")),
        unused_gpus=7,
        findings=findings,
    )
