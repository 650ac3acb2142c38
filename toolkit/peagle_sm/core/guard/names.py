"""The names that the guard's stack, its Lambdas, the endpoint stacks and the command line agree on.

One guard stands in an account and region, so its names are fixed; roles carry the region, because IAM is
the same in all regions. Endpoint stacks import what they need from it by export: no guard, no endpoint.
"""

from __future__ import annotations

GUARD_STACK = "PeagleGuard"
ENDPOINT_STACK_PREFIX = "Peagle-"
EXECUTION_ROLE_PREFIX = "peagle-execution-"

SWEEPER = "peagle-guard-sweeper"
SWITCH = "peagle-guard-switch"
MODEL_PROVIDER = "peagle-guard-model"
LIFETIME_PROVIDER = "peagle-guard-lifetime"
FUNCTIONS = (SWEEPER, SWITCH, MODEL_PROVIDER, LIFETIME_PROVIDER)

TABLE = "peagle-guard"
TOPIC = "peagle-guard-notices"
DEAD_LETTERS = "peagle-guard-dead-letters"
SWEEP_SCHEDULE = "peagle-guard-sweep"
SWEEP_MINUTES = 5

ALARM_ERRORS = "peagle-guard-errors"
ALARM_NO_SWEEP = "peagle-guard-no-sweep"
ALARM_DEAD_LETTERS = "peagle-guard-dead-letters"
ALARMS = (ALARM_ERRORS, ALARM_NO_SWEEP, ALARM_DEAD_LETTERS)

EXPORT_MODEL_PROVIDER = "PeagleGuard-ModelProviderArn"
EXPORT_LIFETIME_PROVIDER = "PeagleGuard-LifetimeProviderArn"
EXPORT_EXECUTION_ROLE = "PeagleGuard-ExecutionRoleArn"
EXPORT_SCHEDULER_ROLE = "PeagleGuard-SchedulerRoleArn"
EXPORT_NOTICES_TOPIC = "PeagleGuard-NoticesTopicArn"
EXPORT_DEAD_LETTERS = "PeagleGuard-DeadLettersArn"
EXPORT_SWITCH = "PeagleGuard-SwitchArn"


def endpoint_stack(endpoint: str) -> str:
    """Return the name of the stack that owns an endpoint."""
    return f"{ENDPOINT_STACK_PREFIX}{endpoint}"


def scheduler_role(region: str) -> str:
    """Return the name of the role by which the dead-man's switch deletes."""
    return f"peagle-scheduler-{region}"


def execution_role(region: str) -> str:
    """Return the name of the role that the endpoints' containers run under."""
    return f"{EXECUTION_ROLE_PREFIX}{region}"


def asset_bucket(account: str, region: str) -> str:
    """Return the name of the bucket that `peagle-sm guard install` uploads to."""
    return f"peagle-guard-{account}-{region}"
