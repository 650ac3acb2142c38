"""`Peagle-<name>`: one endpoint with what watches it, and a switch that turns it off without drift."""

from __future__ import annotations

from aws_cdk import (
    Annotations,
    CfnCondition,
    CfnOutput,
    CfnParameter,
    CfnResource,
    DefaultStackSynthesizer,
    Environment,
    Fn,
    Stack,
    Tags,
)
from constructs import Construct

from peagle_sm.core.guard import names as guard_names
from peagle_sm.core.plan.plan import Plan
from stacks import dashboard, observability
from stacks.acceptance import add_filters
from stacks.alarms import watches
from stacks.endpoint import (
    add_component,
    add_config,
    add_endpoint,
    add_lifetime,
    add_model,
    stack_tags,
)
from stacks.scaling import add_scaling
from stacks.watched import watched
from stacks.wording import advice, outputs

SWITCH = "EndpointState"


class EndpointStack(Stack):
    """The stack of one endpoint. It holds no IAM role, so it deploys without capabilities.

    With the parameter `EndpointState` off, what bills by the hour is gone and the rest stays.
    """

    def __init__(
        self, scope: Construct, plan: Plan, email: str | None = None, env: Environment | None = None
    ) -> None:
        """Make the stack from a plan that is not refused; its alarms write to ``email``."""
        name = guard_names.endpoint_stack(plan.names.endpoint)
        super().__init__(
            scope,
            name,
            stack_name=name,
            description=f"peagle-sm: endpoint {plan.names.endpoint} ({plan.spec.model})",
            env=env,
            # without the rule the template has one parameter, and the switch has one to pass
            synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
            analytics_reporting=False,
        )
        self._plan = plan
        self._endpoint = watched(plan)
        self._is_on = self._add_switch()
        logs = observability.add_log_group(self, self._endpoint)
        created = self._add_endpoint(logs)
        add_filters(self, self._endpoint, logs)
        self._add_watchers(created, email)
        for output, value in outputs(plan).items():
            CfnOutput(self, output, value=Fn.sub(value) if "${" in value else value)
        for key, text in stack_tags(plan).items():
            Tags.of(self).add(key, text)
        self._tell()

    def _add_switch(self) -> CfnCondition:
        state = CfnParameter(
            self,
            SWITCH,
            allowed_values=["on", "off"],
            default="on",
            description="off deletes the endpoint and keeps everything else; on creates it again.",
        )
        return CfnCondition(self, "EndpointIsOn", expression=Fn.condition_equals(state.value_as_string, "on"))

    def _add_endpoint(self, logs: CfnResource) -> CfnResource:
        config = add_config(self, self._plan, add_model(self, self._plan))
        lifetime = add_lifetime(self, self._plan, self._is_on)
        endpoint = add_endpoint(self, self._plan, [config, lifetime, logs], self._is_on)
        component = add_component(self, self._plan, endpoint, self._is_on)
        add_scaling(self, self._plan, self._endpoint, component or endpoint, self._is_on)
        return endpoint

    def _add_watchers(self, created: CfnResource, email: str | None) -> None:
        topic = observability.add_topic(self, self._endpoint, email)
        looked_at = watches(self._endpoint)
        observability.add_alarms(self, self._endpoint, looked_at, topic, (self._is_on, created))
        keys = [watch.key for watch in looked_at if not watch.only_on]
        text = advice(self._plan)
        observability.add_dashboard(self, self._endpoint, dashboard.body(self._endpoint, keys, text))

    def _tell(self) -> None:
        """Say at synth what the plan has to say; its errors have stopped the synth before."""
        for finding in self._plan.findings:
            if finding.severity == "warning":
                Annotations.of(self).add_warning_v2(
                    f"peagle-sm:{finding.check}", f"{finding.message} {finding.next_step}"
                )
            else:
                Annotations.of(self).add_info_v2(f"peagle-sm:{finding.check}", finding.message)
