"""Cases of the checks in `peagle_sm.core.checks.lifecycle`: lifetime, scaling, updates and price."""

from __future__ import annotations

from tests.core.checks.cases import Case, error, info, warning
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
    error("hours-scaling", "scale-to-zero", GPT, f"{_HOURS}\n{_TO_ZERO}"),
    error("hours-scaling", "autoscaling", GPT, f"{_HOURS}\n{_SCALES}"),
    Case("hours-scaling", GPT, f"{_HOURS}\n{_SCALES}", STACK),
    Case("hours-scaling", GPT, _HOURS),
    warning("price", "no price known", CONTAINER, "placement: {instance_types: [ml.p5e.48xlarge]}"),
    warning("price", "NOT SageMaker's", GPT, "placement: {instance_types: [ml.p6-b200.48xlarge]}"),
    Case("price", GPT),
    error("budget", "8 h can cost 33.60 USD; budget_usd allows 10.00", GPT, "lifecycle: {budget_usd: 10}"),
    error(
        "budget",
        "cannot check",
        CONTAINER,
        "placement: {instance_types: [ml.p5e.48xlarge]}\nlifecycle: {budget_usd: 10}",
    ),
    Case("budget", GPT, "lifecycle: {budget_usd: 33.60}"),
    Case("budget", CONTAINER, f"{_UNPRICED}\nlifecycle: {{budget_usd: 900, usd_per_hour: 100}}"),
    error(
        "budget",
        "8 h can cost 800.00 USD; budget_usd allows 700.00",
        CONTAINER,
        f"{_UNPRICED}\nlifecycle: {{budget_usd: 700, usd_per_hour: 100}}",
    ),
    error(
        "budget",
        "8 h can cost 1139.33 USD, an upper bound; budget_usd allows 1000.00",
        GPT,
        "placement: {instance_types: [ml.p6-b200.48xlarge]}\nlifecycle: {budget_usd: 1000}",
    ),
    Case("price", CONTAINER, f"{_UNPRICED}\nlifecycle: {{usd_per_hour: 100}}"),
    Case("price", CONTAINER, f"{_UNPRICED}\nlifecycle: {{budget_usd: 700}}"),
    warning(
        "price", "lifecycle.usd_per_hour: found 5; counted: 4.2 USD/hour", GPT, "lifecycle: {usd_per_hour: 5}"
    ),
    Case("price", GPT, "lifecycle: {usd_per_hour: 4.2}"),
    warning(
        "price",
        "found 100; EC2 alone costs 113.9328 USD/hour",
        GPT,
        "placement: {instance_types: [ml.p6-b200.48xlarge]}\nlifecycle: {usd_per_hour: 100}",
    ),
    warning("scale-to-zero", "until an instance runs", GPT, _TO_ZERO, STACK),
    error("scale-to-zero", "found several", GPT, f"{_TO_ZERO}{_TWO_TYPES}", STACK),
    error("scale-to-zero", "GPUs of ml.inf2.xlarge is not known", GPT, f"{_TO_ZERO}{_NEURON}", STACK),
    warning("scale-to-zero", "billed at zero instances, too", GPT, f"{_TO_ZERO}\n{_RESERVED}", STACK),
    Case("scale-to-zero", GPT, context=STACK),
    info("second-fleet", "1 x ml.g7e.2xlarge beside the first, for 4.20 USD/hour more", GPT, context=STACK),
    warning("second-fleet", "runs a second fleet", GPT, _RESERVED, STACK),
    Case("second-fleet", GPT, "update: off-update-on", STACK),
]
