"""Cases of the checks in `peagle_sm.core.checks.account`: credentials, rights, roles and the guard."""

from __future__ import annotations

from dataclasses import replace

from peagle_sm.core.checks.base import Guard, Identity, Rights, Role, Taken
from peagle_sm.core.plan.resolve import PLACEHOLDER_ACCOUNT
from tests.core.checks.cases import Case, error, warning
from tests.core.support import CONTAINER, GPT, ROLE, STACK

_USER = "arn:aws:iam::123456789012:user/me"
_ME = Identity("123456789012", _USER, skew_s=0.4)
_EXECUTION = Role(ROLE, True, ("sagemaker.amazonaws.com",), ("ReadModels",))
_SCHEDULER = Role(ROLE, True, ("scheduler.amazonaws.com",))
_OWN_ROLE = GPT.replace("role/peagle", "role/mine")

CASES = [
    error(
        "credentials",
        "No AWS credentials",
        fact=Identity(problem="No AWS credentials were found.", next_step="Log in."),
    ),
    Case("credentials", fact=_ME),
    warning(
        "region",
        "us-east-1",
        fact=Identity(problem="No AWS credentials were found.", assumed_region="us-east-1"),
    ),
    Case("region", fact=_ME),
    error(
        "account",
        "found account 123456789012; the plan is for account 999999999999",
        GPT,
        context=replace(STACK, account="999999999999"),
    ),
    error(
        "account",
        "allowed: one account",
        GPT.replace("123456789012:role/peagle-scheduler", "999999999999:role/peagle-scheduler"),
    ),
    Case("account", GPT, context=STACK),
    Case("account", GPT, context=replace(STACK, account=PLACEHOLDER_ACCOUNT)),
    error("clock-skew", "301 s behind AWS's", fact=Identity("1", _USER, skew_s=-301)),
    warning("clock-skew", "90 s ahead of AWS's", fact=Identity("1", _USER, skew_s=90)),
    Case("clock-skew", fact=_ME),
    error(
        "caller-rights",
        "may not iam:PassRole",
        GPT,
        fact=Rights(_USER, ("sagemaker:CreateModel",), ("iam:PassRole",)),
    ),
    Case("caller-rights", GPT, fact=Rights(_USER, ("sagemaker:CreateModel", "iam:PassRole"))),
    warning(
        "caller-rights",
        "a service control policy denies the caller",
        GPT,
        fact=Rights(_USER, by_organization=("sagemaker:CreateModel on m",)),
    ),
    warning(
        "caller-rights",
        "aws:SourceIp",
        GPT,
        fact=Rights(_USER, undecided=("sagemaker:CreateModel on m (aws:SourceIp)",)),
    ),
    warning(
        "caller-rights",
        "may not sagemaker:UpdateEndpoint on e",
        GPT,
        fact=Rights(_USER, denied_later=("sagemaker:UpdateEndpoint on e",)),
    ),
    error("role-trust", "does not exist", GPT, fact=Role(ROLE, False)),
    error("role-trust", "it trusts ec2.amazonaws.com", GPT, fact=Role(ROLE, True, ("ec2.amazonaws.com",))),
    Case("role-trust", GPT, fact=_EXECUTION),
    error(
        "role-rights",
        "may not ecr:BatchGetImage, s3:GetObject",
        GPT,
        fact=Rights(ROLE, (), ("ecr:BatchGetImage", "s3:GetObject")),
    ),
    Case("role-rights", GPT, fact=Rights(ROLE, ("ecr:BatchGetImage", "s3:GetObject"))),
    warning(
        "role-too-broad",
        "has the broad policy AmazonSageMakerFullAccess",
        GPT,
        fact=Role(ROLE, True, (), ("AmazonSageMakerFullAccess",)),
    ),
    Case("role-too-broad", GPT, fact=_EXECUTION),
    error("scheduler-role-trust", "scheduler.amazonaws.com may not assume", GPT, fact=Role(ROLE, True)),
    Case("scheduler-role-trust", GPT, fact=_SCHEDULER),
    error(
        "scheduler-role-rights",
        "may not sagemaker:DeleteEndpoint",
        GPT,
        fact=Rights(ROLE, (), ("sagemaker:DeleteEndpoint",)),
    ),
    Case("scheduler-role-rights", GPT, fact=Rights(ROLE, ("sagemaker:DeleteEndpoint",))),
    error("guard-installed", "is not installed", fact=Guard(None)),
    error("guard-installed", "ROLLBACK_COMPLETE", fact=Guard("ROLLBACK_COMPLETE")),
    Case("guard-installed", fact=Guard("CREATE_COMPLETE", "1", "1", works=True)),
    warning(
        "guard-current",
        "the guard has version 0.1.0; this peagle-sm has 0.2.0",
        fact=Guard("CREATE_COMPLETE", "0.1.0", "0.2.0", works=True),
    ),
    Case("guard-current", fact=Guard("CREATE_COMPLETE", "0.2.0", "0.2.0", works=True)),
    error("name-taken", "peagle-sm did not create it", GPT, fact=Taken("InService")),
    error(
        "name-taken", "belongs to the stack Peagle-demo", GPT, fact=Taken("InService", True, "Peagle-demo")
    ),
    Case("name-taken", GPT, fact=Taken("InService", True)),
    Case("name-taken", GPT, fact=Taken()),
    error("stack-role", "the guard's role peagle-execution-us-east-1", _OWN_ROLE, context=STACK),
    error("stack-role", "only this role", CONTAINER.replace("role/peagle", "role/mine"), context=STACK),
    warning("stack-role", "named peagle-execution-*", _OWN_ROLE, "speculation: {mode: none}", STACK),
    Case("stack-role", GPT, context=STACK),
]
