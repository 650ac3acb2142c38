"""Cases of the checks in `peagle_sm.core.checks.lifecycle`: lifetime, scaling, updates and price."""

from __future__ import annotations

from tests.core.checks.cases import Case
from tests.core.support import CONTAINER, GPT, STACK

_UNPRICED = "placement: {instance_types: [ml.p5e.48xlarge]}"
_TO_ZERO = "lifecycle: {idle: scale-to-zero}"
_TWO_TYPES = "\nplacement: {instance_types: [ml.g7e.2xlarge, ml.g7e.4xlarge]}"
_NEURON = "\nplacement: {instance_types: [ml.inf2.xlarge]}"
_PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/one"
_RESERVED = f"placement: {{capacity_reservation_arn: '{_PLAN}'}}"

_HOURS = "hours: Mon-Fri 07:00-19:00 UTC"
_SCALES = "autoscaling: {max_instances: 3}"

CASES = [
    Case("hours-scaling", GPT, f"{_HOURS}\n{_TO_ZERO}", severity="error", text="scale-to-zero"),
    Case("hours-scaling", GPT, f"{_HOURS}\n{_SCALES}", severity="error", text="autoscaling"),
    Case("hours-scaling", GPT, f"{_HOURS}\n{_SCALES}", context=STACK),
    Case("hours-scaling", GPT, _HOURS),
    Case(
        "price",
        CONTAINER,
        "placement: {instance_types: [ml.p5e.48xlarge]}",
        severity="warning",
        text="no price known",
    ),
    Case(
        "price",
        GPT,
        "placement: {instance_types: [ml.p6-b200.48xlarge]}",
        severity="warning",
        text="NOT SageMaker's",
    ),
    Case("price", GPT),
    Case(
        "budget",
        GPT,
        "lifecycle: {budget_usd: 10}",
        severity="error",
        text="8 h can cost 33.60 USD; budget_usd allows 10.00",
    ),
    Case(
        "budget",
        CONTAINER,
        "placement: {instance_types: [ml.p5e.48xlarge]}\nlifecycle: {budget_usd: 10}",
        severity="error",
        text="cannot check",
    ),
    Case("budget", GPT, "lifecycle: {budget_usd: 33.60}"),
    Case("budget", CONTAINER, f"{_UNPRICED}\nlifecycle: {{budget_usd: 900, usd_per_hour: 100}}"),
    Case(
        "budget",
        CONTAINER,
        f"{_UNPRICED}\nlifecycle: {{budget_usd: 700, usd_per_hour: 100}}",
        severity="error",
        text="8 h can cost 800.00 USD; budget_usd allows 700.00",
    ),
    Case(
        "budget",
        GPT,
        "placement: {instance_types: [ml.p6-b200.48xlarge]}\nlifecycle: {budget_usd: 1000}",
        severity="error",
        text="8 h can cost 1139.33 USD, an upper bound; budget_usd allows 1000.00",
    ),
    Case("price", CONTAINER, f"{_UNPRICED}\nlifecycle: {{usd_per_hour: 100}}"),
    Case("price", CONTAINER, f"{_UNPRICED}\nlifecycle: {{budget_usd: 700}}"),
    Case(
        "price",
        GPT,
        "lifecycle: {usd_per_hour: 5}",
        severity="warning",
        text="lifecycle.usd_per_hour: found 5; counted: 4.2 USD/hour",
    ),
    Case("price", GPT, "lifecycle: {usd_per_hour: 4.2}"),
    Case(
        "price",
        GPT,
        "placement: {instance_types: [ml.p6-b200.48xlarge]}\nlifecycle: {usd_per_hour: 100}",
        severity="warning",
        text="found 100; EC2 alone costs 113.9328 USD/hour",
    ),
    Case("scale-to-zero", GPT, _TO_ZERO, STACK, severity="warning", text="until an instance runs"),
    Case("scale-to-zero", GPT, f"{_TO_ZERO}{_TWO_TYPES}", STACK, severity="error", text="found several"),
    Case(
        "scale-to-zero",
        GPT,
        f"{_TO_ZERO}{_NEURON}",
        STACK,
        severity="error",
        text="GPUs of ml.inf2.xlarge is not known",
    ),
    Case(
        "scale-to-zero",
        GPT,
        f"{_TO_ZERO}\n{_RESERVED}",
        STACK,
        severity="warning",
        text="billed at zero instances, too",
    ),
    Case("scale-to-zero", GPT, context=STACK),
    Case(
        "second-fleet",
        GPT,
        context=STACK,
        severity="info",
        text="1 x ml.g7e.2xlarge beside the first, for 4.20 USD/hour more",
    ),
    Case("second-fleet", GPT, _RESERVED, STACK, severity="warning", text="runs a second fleet"),
    Case("second-fleet", GPT, "update: off-update-on", STACK),
]
