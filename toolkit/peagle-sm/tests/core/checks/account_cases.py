"""Cases of the checks in `peagle_sm.core.checks.account`: credentials, rights, roles and the guard."""

from __future__ import annotations

from dataclasses import replace

from peagle_sm.core.checks.base import Guard, Identity, Rights, Role, Taken
from peagle_sm.core.plan.resolve import PLACEHOLDER_ACCOUNT
from tests.core.checks.cases import Case
from tests.core.support import CONTAINER, GPT, ROLE, STACK

_USER = "arn:aws:iam::123456789012:user/me"
_ME = Identity("123456789012", _USER, skew_s=0.4)
_EXECUTION = Role(ROLE, True, ("sagemaker.amazonaws.com",), ("ReadModels",))
_SCHEDULER = Role(ROLE, True, ("scheduler.amazonaws.com",))
_OWN_ROLE = GPT.replace("role/peagle", "role/mine")

CASES = [
    Case(
        "credentials",
        fact=Identity(problem="No AWS credentials were found.", next_step="Log in."),
        severity="error",
        text="No AWS credentials",
    ),
    Case("credentials", fact=_ME),
    Case(
        "region",
        fact=Identity(problem="No AWS credentials were found.", assumed_region="us-east-1"),
        severity="warning",
        text="us-east-1",
    ),
    Case("region", fact=_ME),
    Case(
        "account",
        GPT,
        context=replace(STACK, account="999999999999"),
        severity="error",
        text="found account 123456789012; the plan is for account 999999999999",
    ),
    Case(
        "account",
        GPT.replace("123456789012:role/peagle-scheduler", "999999999999:role/peagle-scheduler"),
        severity="error",
        text="allowed: one account",
    ),
    Case("account", GPT, context=STACK),
    Case("account", GPT, context=replace(STACK, account=PLACEHOLDER_ACCOUNT)),
    Case("clock-skew", fact=Identity("1", _USER, skew_s=-301), severity="error", text="301 s behind AWS's"),
    Case("clock-skew", fact=Identity("1", _USER, skew_s=90), severity="warning", text="90 s ahead of AWS's"),
    Case("clock-skew", fact=_ME),
    Case(
        "caller-rights",
        GPT,
        fact=Rights(_USER, ("sagemaker:CreateModel",), ("iam:PassRole",)),
        severity="error",
        text="may not iam:PassRole",
    ),
    Case("caller-rights", GPT, fact=Rights(_USER, ("sagemaker:CreateModel", "iam:PassRole"))),
    Case(
        "caller-rights",
        GPT,
        fact=Rights(_USER, by_organization=("sagemaker:CreateModel on m",)),
        severity="warning",
        text="a service control policy denies the caller",
    ),
    Case(
        "caller-rights",
        GPT,
        fact=Rights(_USER, undecided=("sagemaker:CreateModel on m (aws:SourceIp)",)),
        severity="warning",
        text="aws:SourceIp",
    ),
    Case(
        "caller-rights",
        GPT,
        fact=Rights(_USER, denied_later=("sagemaker:UpdateEndpoint on e",)),
        severity="warning",
        text="may not sagemaker:UpdateEndpoint on e",
    ),
    Case("role-trust", GPT, fact=Role(ROLE, False), severity="error", text="does not exist"),
    Case(
        "role-trust",
        GPT,
        fact=Role(ROLE, True, ("ec2.amazonaws.com",)),
        severity="error",
        text="it trusts ec2.amazonaws.com",
    ),
    Case("role-trust", GPT, fact=_EXECUTION),
    Case(
        "role-rights",
        GPT,
        fact=Rights(ROLE, (), ("ecr:BatchGetImage", "s3:GetObject")),
        severity="error",
        text="may not ecr:BatchGetImage, s3:GetObject",
    ),
    Case("role-rights", GPT, fact=Rights(ROLE, ("ecr:BatchGetImage", "s3:GetObject"))),
    Case(
        "role-too-broad",
        GPT,
        fact=Role(ROLE, True, (), ("AmazonSageMakerFullAccess",)),
        severity="warning",
        text="has the broad policy AmazonSageMakerFullAccess",
    ),
    Case("role-too-broad", GPT, fact=_EXECUTION),
    Case(
        "scheduler-role-trust",
        GPT,
        fact=Role(ROLE, True),
        severity="error",
        text="scheduler.amazonaws.com may not assume",
    ),
    Case("scheduler-role-trust", GPT, fact=_SCHEDULER),
    Case(
        "scheduler-role-rights",
        GPT,
        fact=Rights(ROLE, (), ("sagemaker:DeleteEndpoint",)),
        severity="error",
        text="may not sagemaker:DeleteEndpoint",
    ),
    Case("scheduler-role-rights", GPT, fact=Rights(ROLE, ("sagemaker:DeleteEndpoint",))),
    Case("guard-installed", fact=Guard(None), severity="error", text="is not installed"),
    Case("guard-installed", fact=Guard("ROLLBACK_COMPLETE"), severity="error", text="ROLLBACK_COMPLETE"),
    Case("guard-installed", fact=Guard("CREATE_COMPLETE", "1", "1", works=True)),
    Case(
        "guard-current",
        fact=Guard("CREATE_COMPLETE", "0.1.0", "0.2.0", works=True),
        severity="warning",
        text="the guard has version 0.1.0; this peagle-sm has 0.2.0",
    ),
    Case("guard-current", fact=Guard("CREATE_COMPLETE", "0.2.0", "0.2.0", works=True)),
    Case("name-taken", GPT, fact=Taken("InService"), severity="error", text="peagle-sm did not create it"),
    Case(
        "name-taken",
        GPT,
        fact=Taken("InService", True, "Peagle-demo"),
        severity="error",
        text="belongs to the stack Peagle-demo",
    ),
    Case("name-taken", GPT, fact=Taken("InService", True)),
    Case("name-taken", GPT, fact=Taken()),
    Case(
        "stack-role",
        _OWN_ROLE,
        context=STACK,
        severity="error",
        text="the guard's role peagle-execution-us-east-1",
    ),
    Case(
        "stack-role",
        CONTAINER.replace("role/peagle", "role/mine"),
        context=STACK,
        severity="error",
        text="only this role",
    ),
    Case(
        "stack-role",
        _OWN_ROLE,
        "speculation: {mode: none}",
        STACK,
        severity="warning",
        text="named peagle-execution-*",
    ),
    Case("stack-role", GPT, context=STACK),
]
