"""boto3's clients, as far as the guard's functions call them, over a simulated account."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.guard.simulator.fake_services.account import ACCOUNT, REGION, Account
from tests.guard.simulator.fake_services.errors import AwsFault
from tests.guard.simulator.fake_services.fake_aws import moment, seconds

Functions = Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]
UNIVERSAL = "aws-sdk:sagemaker:"


@dataclass(slots=True)
class SageMakerClient:
    """boto3's client of SageMaker, for waking."""

    account: Account

    def describe_endpoint(self, **request: Any) -> dict[str, Any]:
        now = self.account.call("DescribeEndpoint")
        name: str = request["EndpointName"]
        life = self.account.sagemaker.live.get(name)
        if life is None:
            message = f"Could not find endpoint {self.account.sagemaker.arn(name)}."
            raise AwsFault(message, "ValidationException")
        return {
            "EndpointName": name,
            "EndpointArn": life.arn,
            "EndpointConfigName": life.config_name,
            "CreationTime": moment(life.created_at),
            "LastModifiedTime": moment(life.modified_at(now)),
            "EndpointStatus": life.status(now),
        }

    def create_endpoint(self, **request: Any) -> dict[str, Any]:
        """CreateEndpoint of an endpoint that was there before, with its kept config."""
        now = self.account.call("CreateEndpoint")
        plan = self.account.plans[request["EndpointName"]]
        tags = {each["Key"]: each["Value"] for each in request["Tags"]}
        life = self.account.sagemaker.create(plan, now, tags, request["EndpointConfigName"])
        self.account.deeds.append((now, "create", plan.name))
        return {"EndpointArn": life.arn}


@dataclass(slots=True)
class SchedulerClient:
    """boto3's client of EventBridge Scheduler; what is armed here really fires."""

    account: Account
    functions: Functions
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The request of each schedule that exists, by name."""

    def create_schedule(self, **request: Any) -> dict[str, Any]:
        self.account.call("CreateSchedule")
        if request["Name"] in self.account.scheduler.armed:
            raise AwsFault(f"Schedule {request['Name']} already exists.", "ConflictException")
        return self._arm(request)

    def update_schedule(self, **request: Any) -> dict[str, Any]:
        self._called("UpdateSchedule", request["Name"])
        return self._arm(request)

    def get_schedule(self, **request: Any) -> dict[str, Any]:
        self._called("GetSchedule", request["Name"])
        return self.schedules[request["Name"]]

    def delete_schedule(self, **request: Any) -> dict[str, Any]:
        self._called("DeleteSchedule", request["Name"])
        self.account.scheduler.remove(request["Name"])
        del self.schedules[request["Name"]]
        return {}

    def _called(self, operation: str, name: str) -> None:
        self.account.call(operation)
        if name not in self.account.scheduler.armed:
            raise AwsFault(f"Schedule {name} does not exist.", "ResourceNotFoundException")

    def _arm(self, request: dict[str, Any]) -> dict[str, Any]:
        name, target = request["Name"], request["Target"]
        self.schedules[name] = request
        start, end = seconds(_aware(request["StartDate"])), seconds(_aware(request["EndDate"]))
        if request["ScheduleExpression"] != "rate(10 minutes)":
            raise ValueError(
                f"the simulator knows rate(10 minutes) only, found {request['ScheduleExpression']}"
            )
        event = json.loads(target["Input"])
        self.account.scheduler.arm(name, start, end, lambda now: self._fire(target["Arn"], event, now))
        return {"ScheduleArn": f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/{name}"}

    def _fire(self, arn: str, event: dict[str, Any], now: int) -> None:
        """What a schedule calls: SageMaker itself, or a function of the guard if it runs at all."""
        account = self.account
        if UNIVERSAL in arn:
            operation = arn.rpartition(":")[2]
            if operation == "deleteEndpoint":
                account.may_delete(event["EndpointName"])
                account.sagemaker.delete(event["EndpointName"], now, "schedule")
            elif operation == "deleteInferenceComponent":
                account.sagemaker.delete_component(event["InferenceComponentName"], now, "schedule")
            else:
                raise ValueError(f"the simulator knows no universal target {operation}")
            return
        if account.functions_run(now):
            account.actor = "schedule"
            try:
                self.functions[arn.rpartition(":")[2]](event)
            finally:
                account.actor = "guard"


def _aware(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError(f"a schedule's date without a time zone: {at}")
    return at
