"""What the guard's switch sees of a simulated account (``peagle_guard.switch.SwitchAws``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from peagle_guard.aws import Register
from peagle_guard.records import Endpoint
from peagle_guard.switch import NoUpdates, Stack
from tests.guard.simulator.fake_services.errors import NoSuchEndpoint, NoSuchStack, NothingToUpdate
from tests.guard.simulator.fake_services.fake_aws import described, moment
from tests.guard.simulator.people import GuardedAccount

DEFAULT_STATE = "on"
"""What the parameter EndpointState falls back to where an update leaves it out."""


@dataclass(slots=True)
class FakeSwitch:
    """One method per call; each is counted, and each may fail."""

    account: GuardedAccount

    @property
    def register(self) -> Register:
        """The guard's table."""
        return self.account.register

    @property
    def now(self) -> datetime:
        """The present moment by the Lambda's clock."""
        return moment(self.account.events.now + self.account.world.lambdas.clock_s)

    def describe_stack(self, name: str) -> Stack | None:
        """DescribeStacks."""
        now = self.account.call("DescribeStacks")
        try:
            stack = self.account.cloudformation.describe(name, now)
        except NoSuchStack:
            return None
        return Stack(name, stack.status_at(now), {"BootstrapVersion": "21", "EndpointState": stack.state})

    def update_stack(self, name: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        """UpdateStack with the previous template; a parameter that is left out falls back to its default."""
        now = self.account.call("UpdateStack")
        stack = self.account.cloudformation.describe(name, now)
        given = {each["ParameterKey"]: each for each in parameters}
        row = given.get("EndpointState", {"ParameterValue": DEFAULT_STATE})
        state = stack.state if row.get("UsePreviousValue") else row["ParameterValue"]
        try:
            self.account.cloudformation.update(name, state, now)
            stack.by = self.account.actor
        except NothingToUpdate as error:
            raise NoUpdates from error

    def describe_endpoint(self, name: str) -> Endpoint | None:
        """DescribeEndpoint."""
        now = self.account.call("DescribeEndpoint")
        life = self.account.sagemaker.live.get(name)
        return None if life is None else described(life, now)

    def endpoint_tags(self, arn: str) -> Mapping[str, str]:
        """ListTags."""
        self.account.call("ListTags")
        for life in self.account.sagemaker.live.values():
            if life.arn == arn:
                return life.tags
        raise NoSuchEndpoint(f"Could not find {arn}")

    def components(self, endpoint: str) -> Sequence[str]:
        """ListInferenceComponents of one endpoint."""
        self.account.call("ListInferenceComponents")
        life = self.account.sagemaker.live.get(endpoint)
        return [] if life is None else list(life.components)

    def scalable_targets(self, resource_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
        """DescribeScalableTargets: resource id and dimension of each."""
        self.account.call("DescribeScalableTargets")
        known = {
            key: value for life in self.account.sagemaker.live.values() for key, value in life.targets.items()
        }
        return [(each, known[each]) for each in resource_ids if each in known]

    def deregister(self, resource_id: str, dimension: str) -> None:
        """DeregisterScalableTarget."""
        now = self.account.call("DeregisterScalableTarget")
        self.account.sagemaker.deregister(resource_id, now)

    def delete_component(self, name: str) -> None:
        """DeleteInferenceComponent."""
        now = self.account.call("DeleteInferenceComponent")
        self.account.sagemaker.delete_component(name, now, self.account.actor)

    def stop_job(self, kind: str, name: str) -> None:
        """StopTrainingJob: these worlds have endpoints alone."""
        self.account.call("StopTrainingJob")

    def delete_endpoint(self, name: str) -> None:
        """DeleteEndpoint, under the tag condition of the switch's role."""
        now = self.account.call("DeleteEndpoint")
        self.account.may_delete(name)
        self.account.sagemaker.delete(name, now, self.account.actor)

    def schedule_times(self, name: str) -> tuple[datetime | None, datetime | None] | None:
        """StartDate and LastModificationDate of a schedule."""
        self.account.call("GetSchedule")
        schedule = self.account.scheduler.armed.get(name)
        return None if schedule is None else (moment(schedule.start), moment(schedule.armed_at))

    def delete_schedule(self, name: str) -> None:
        """DeleteSchedule; none of that name is fine."""
        self.account.call("DeleteSchedule")
        self.account.scheduler.remove(name)

    def delete_alarms(self, names: Sequence[str]) -> None:
        """DeleteAlarms; those that do not exist are fine."""
        self.account.call("DeleteAlarms")
