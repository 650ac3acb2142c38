"""The words that a stack leaves behind: how to call its endpoint, what it costs, how to turn it off. Pure.

``${AWS::Region}`` is CloudFormation's, for Fn::Sub.
"""

from __future__ import annotations

import json

from peagle_sm.core.guard import names as guard_names
from peagle_sm.core.plan.plan import Plan

_REGION = "${AWS::Region}"
_BODY = {"messages": [{"role": "user", "content": "Write a haiku about the sea."}], "max_tokens": 64}


def outputs(plan: Plan) -> dict[str, str]:
    """Return the stack's outputs by name."""
    name, stack = plan.names.endpoint, guard_names.endpoint_stack(plan.names.endpoint)
    return {
        "EndpointName": name,
        "UsdPerHour": _price(plan),
        "Invoke": _invoke(plan),
        "InvokeByAwsCli": _invoke_by_aws_cli(plan),
        "Update": _update(plan, stack),
        "TurnOff": f"peagle-sm pause {name}",
        "TurnOn": f"peagle-sm resume {name}",
        "TurnOffByAwsCli": (
            f"aws cloudformation update-stack --region {_REGION} --stack-name {stack} "
            "--use-previous-template --parameters ParameterKey=EndpointState,ParameterValue=off"
        ),
        "Destroy": f"aws cloudformation delete-stack --region {_REGION} --stack-name {stack}",
        "DashboardUrl": _dashboard(stack),
    }


def advice(plan: Plan) -> str:
    """Return the dashboard's text, in Markdown."""
    name, lifecycle = plan.names.endpoint, plan.spec.lifecycle
    mode = plan.spec.speculation.mode
    lines = [
        f"## {name}: {plan.spec.model}, {mode}, {_price(plan)}",
        f"Call it: `{_invoke(plan)}`",
        f"Turn it off and on, the rest kept: `peagle-sm pause {name}`, `peagle-sm resume {name}`. "
        f"Remove it: `cdk destroy {guard_names.endpoint_stack(name)} -c spec=FILE`.",
        f"The guard turns it off after {lifecycle.idle_minutes} quiet minutes and {lifecycle.grace_minutes} "
        f"minutes of grace, and in any case {lifecycle.max_lifetime_hours:g} hours after it was created.",
    ]
    return "\n\n".join(lines)


def _update(plan: Plan, stack: str) -> str:
    deploy = f"cdk deploy {stack} -c spec=FILE"
    if plan.spec.update == "off-update-on":
        switched = [f"{deploy} --parameters {stack}:EndpointState={state}" for state in ("off", "on")]
        return " && ".join(switched) + " (no second fleet; not in service meanwhile)"
    extra = "" if plan.update_usd_per_hour is None else f", {plan.update_usd_per_hour:g} USD/hour more"
    return f"{deploy} (a second fleet runs beside the first until it serves{extra})"


def _price(plan: Plan) -> str:
    if plan.usd_per_hour is None:
        return f"price not known: {plan.price_source}"
    return f"{plan.usd_per_hour:g} USD/hour ({plan.price_source})"


def _invoke(plan: Plan) -> str:
    return f"peagle-sm invoke {plan.names.endpoint} --prompt 'Write a haiku about the sea.'"


def _invoke_by_aws_cli(plan: Plan) -> str:
    component = plan.names.component
    chosen = f"--inference-component-name {component} " if component else ""
    return (
        f"aws sagemaker-runtime invoke-endpoint --region {_REGION} --endpoint-name {plan.names.endpoint} "
        f"{chosen}--content-type application/json --cli-binary-format raw-in-base64-out "
        f"--body '{json.dumps(_BODY)}' /dev/stdout"
    )


def _dashboard(stack: str) -> str:
    return f"https://console.aws.amazon.com/cloudwatch/home?region={_REGION}#dashboards:name={stack}"
