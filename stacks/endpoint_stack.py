"""Stack `Peagle-<name>`: one endpoint, its observability, and a parameter that turns it off without drift.

Its outputs give the commands to invoke the endpoint and to turn it off, and its price. ``${AWS::Region}`` in
them is replaced by CloudFormation (Fn::Sub).
"""

from __future__ import annotations

import json

from aws_cdk import (
    Annotations,
    CfnCondition,
    CfnOutput,
    CfnParameter,
    Environment,
    Fn,
    Tags,
)
from aws_cdk.aws_cloudwatch import CfnDashboard
from constructs import Construct

from peagle_sm.core import guard as guard_names
from peagle_sm.core.planning import Plan
from stacks import observability
from stacks.alarms import watches
from stacks.endpoint import add_resources, stack_tags
from stacks.metrics import add_filters, watched
from stacks.observability import dashboard_body
from stacks.stack import PeagleStack

_REGION = "${AWS::Region}"


def outputs(plan: Plan) -> dict[str, str]:
    """Return the stack's outputs by name."""
    name, stack = plan.names.endpoint, guard_names.endpoint_stack(plan.names.endpoint)
    return {
        "EndpointName": name,
        "UsdPerHour": _price(plan),
        "Invoke": _invoke(plan),
        "Update": _update(plan, stack),
        "TurnOff": f"peagle-sm pause {name}",
        "TurnOn": f"peagle-sm resume {name}",
        "TurnOffByAwsCli": (
            f"aws cloudformation update-stack --region {_REGION} --stack-name {stack} "
            "--use-previous-template --parameters ParameterKey=EndpointState,ParameterValue=off"
        ),
        "Destroy": f"aws cloudformation delete-stack --region {_REGION} --stack-name {stack}",
        "DashboardUrl": f"https://console.aws.amazon.com/cloudwatch/home?region={_REGION}#dashboards:name={stack}",
    }


def advice(plan: Plan) -> str:
    """Return the dashboard's text, in Markdown."""
    name, lifecycle = plan.names.endpoint, plan.spec.lifecycle
    mode = plan.spec.speculation.mode
    lines = [
        f"## {name}: {plan.spec.model_name}, {mode}, {_price(plan)}",
        f"Invoke it: `{_invoke(plan)}`",
        f"Turn it off and on again: `peagle-sm pause {name}`, `peagle-sm resume {name}`. "
        f"Delete it: `cdk destroy {guard_names.endpoint_stack(name)} -c spec=FILE`.",
        f"The guard turns it off after {lifecycle.idle_minutes} minutes without requests and "
        f"{lifecycle.grace_minutes} minutes of grace, and always {lifecycle.max_lifetime_hours:g} hours"
        " after its creation.",
    ]
    return "\n\n".join(lines)


def _update(plan: Plan, stack: str) -> str:
    deploy = f"cdk deploy {stack} -c spec=FILE"
    if plan.spec.update == "off-update-on":
        switched = [f"{deploy} --parameters {stack}:EndpointState={state}" for state in ("off", "on")]
        return " && ".join(switched) + " (no second fleet; the endpoint is off during the update)"
    extra = "" if plan.update_usd_per_hour is None else f", {plan.update_usd_per_hour:g} USD/hour more"
    return f"{deploy} (a second fleet runs in parallel during the update{extra})"


def _price(plan: Plan) -> str:
    if plan.usd_per_hour is None:
        return f"price unknown: {plan.price_source}"
    bound = "at most " if plan.price_at_most else ""
    return f"{bound}{plan.usd_per_hour:g} USD/hour ({plan.price_source})"


def _invoke(plan: Plan) -> str:
    return f"peagle-sm invoke {plan.names.endpoint} --prompt '{plan.target.example}'"


SWITCH = "EndpointState"


class EndpointStack(PeagleStack):
    """Stack of one endpoint. It has no IAM role, so it deploys without capabilities.

    With the parameter `EndpointState` off, everything that is billed by the hour is deleted, the rest stays.
    """

    def __init__(
        self,
        scope: Construct,
        plan: Plan,
        email: str | None = None,
        env: Environment | None = None,
    ) -> None:
        """Make the stack from a plan without errors; its alarms send mail to ``email``."""
        name = guard_names.endpoint_stack(plan.names.endpoint)
        super().__init__(
            scope,
            name,
            f"peagle-sm: endpoint {plan.names.endpoint} ({plan.spec.model_name})",
            stack_name=name,
            env=env,
        )
        endpoint, is_on, tags = watched(plan), self._add_switch(), stack_tags(plan)
        resources = add_resources(self, plan, is_on)
        add_filters(self, endpoint, resources["log-group"])
        topic, rules = observability.add_topic(self, endpoint, email), watches(endpoint)
        observability.add_alarms(self, endpoint, rules, topic, (is_on, resources["endpoint"]), tags)
        lasting = [rule.key for rule in rules if not rule.only_on]
        body = json.dumps(dashboard_body(endpoint, lasting, advice(plan)))
        CfnDashboard(self, "Dashboard", dashboard_name=name, dashboard_body=Fn.sub(body))
        for output, value in outputs(plan).items():
            CfnOutput(self, output, value=Fn.sub(value) if "${" in value else value)
        for key, text in tags.items():
            Tags.of(self).add(key, text)
        for finding in plan.findings:  # no errors: they have already stopped the synthesis
            check_id = f"peagle-sm:{finding.check}"
            if finding.severity == "warning":
                Annotations.of(self).add_warning_v2(check_id, f"{finding.message} {finding.next_step}")
            else:
                Annotations.of(self).add_info_v2(check_id, finding.message)

    def _add_switch(self) -> CfnCondition:
        state = CfnParameter(
            self,
            SWITCH,
            allowed_values=["on", "off"],
            default="on",
            description="off deletes the endpoint and keeps everything else; on creates it again.",
        )
        return CfnCondition(self, "EndpointIsOn", expression=Fn.condition_equals(state.value_as_string, "on"))
