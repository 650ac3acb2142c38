"""`Peagle-<name>`: one endpoint with what watches it, and a switch that turns it off without drift."""

from __future__ import annotations

from aws_cdk import (
    CfnCondition,
    CfnOutput,
    CfnParameter,
    DefaultStackSynthesizer,
    Environment,
    Fn,
    Stack,
    Tags,
)
from constructs import Construct

from peagle_sm.core import guard_names
from peagle_sm.core.records import Plan
from stacks.endpoint import add_config, add_endpoint, add_lifetime, add_model, stack_tags

SWITCH = "EndpointState"


class EndpointStack(Stack):
    """The stack of one endpoint. It holds no IAM role, so it deploys without capabilities.

    With the parameter `EndpointState` off, what bills is gone and the rest stays.
    """

    def __init__(self, scope: Construct, plan: Plan) -> None:
        """Make the stack from a plan that is not refused."""
        name = guard_names.endpoint_stack(plan.names.endpoint)
        super().__init__(
            scope,
            name,
            stack_name=name,
            description=f"peagle-sm: endpoint {plan.names.endpoint} ({plan.spec.model})",
            env=Environment(region=plan.spec.placement.region),
            # without it the template has one parameter, and the switch has one to pass
            synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
            analytics_reporting=False,
        )
        self.plan = plan
        self._is_on = self._add_switch()
        self._add_endpoint()
        for key, value in stack_tags(plan).items():
            Tags.of(self).add(key, value)

    def _add_switch(self) -> CfnCondition:
        state = CfnParameter(
            self,
            SWITCH,
            allowed_values=["on", "off"],
            default="on",
            description="off deletes the endpoint and keeps everything else; on creates it again.",
        )
        return CfnCondition(self, "EndpointIsOn", expression=Fn.condition_equals(state.value_as_string, "on"))

    def _add_endpoint(self) -> None:
        config = add_config(self, self.plan, add_model(self, self.plan))
        lifetime = add_lifetime(self, self.plan, self._is_on)
        add_endpoint(self, self.plan, [config, lifetime], self._is_on)
        CfnOutput(self, "EndpointName", value=self.plan.names.endpoint)
