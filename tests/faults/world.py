"""One cell's world: a name on the local server, a clock that only sleeps move, and an inventory."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from peagle_sm.aws.session.session import Session
from peagle_sm.core.guard import TABLE
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Pacing, plan_for
from tests.faults.wire import Script, Wire
from tests.local.gated_engine import opened
from tests.local.serving import IMAGE, Server
from tests.service.account import install_guard, remove_guard

MOVING = ("Creating", "Updating", "RollingBack", "Deleting", "SystemUpdating")
_SETTLES_S = 30.0


class Place:
    """The local server, the wire to it, and a second wire that no fault touches."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.wire = Wire(server.url)
        self.sagemaker = server.client("sagemaker")
        self.scheduler = server.client("scheduler")
        self.dynamodb = server.client("dynamodb")

    def short(self, instance_type: str, instances: int | None) -> None:
        """Let there be so many instances of a type; None: as many as anybody likes."""
        body = json.dumps({"instance_type": instance_type, "instances": instances}).encode()
        with urllib.request.urlopen(f"{self.server.url}/_peagle/capacity", body, timeout=10):
            pass

    def now(self) -> datetime:
        """The server's time, which tests before this one may have advanced."""
        with urllib.request.urlopen(f"{self.server.url}/_peagle/status", timeout=10) as answer:
            return datetime.fromisoformat(json.loads(answer.read())["clock"])


@contextmanager
def guarded(place: Place) -> Iterator[None]:
    """While this is open, the use cases find a guard's stack and table; its Lambdas have their own tests."""
    install_guard(place.server)
    try:
        yield
    finally:
        remove_guard(place.server)


@dataclass(frozen=True)
class Found:
    """What there is of one name."""

    status: str | None
    config: str | None
    armed_until: datetime | None
    configs: tuple[str, ...]
    models: tuple[str, ...]
    paused_configs: tuple[str, ...]
    paused: bool
    registered: bool

    @property
    def nothing(self) -> bool:
        return self.status is None and self.armed_until is None and not (self.configs or self.models)


class World:
    """One cell: everything in it is called ``name``."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.name = name
        self.seconds = 0.0
        self.at_once = False
        """Whether an endpoint has arrived where it is going when CreateEndpoint answers."""
        self._start = place.now()
        self.pacing = Pacing(clock=self.now, monotonic=lambda: self.seconds, sleep=self.sleep)

    def spec(self, **changes: Any) -> EndpointSpec:
        """A spec whose engine comes up when virtual time passes."""
        status = self.place.server.status
        environment = {"SCRIPT_GATE": self.name, **changes.pop("env", {})}
        fields: dict[str, Any] = {
            "name": self.name,
            "model": "tiny-code",
            "source": "container",
            "image": IMAGE,
            "model_uri": status.artifacts["target"],
            "head_uri": status.artifacts["p-eagle"],
            "speculation": {"mode": "p-eagle", "num_speculative_tokens": 3},
            "placement": {"instance_types": ["ml.g7e.2xlarge"]},
            "lifecycle": {"max_lifetime_hours": 8},
            "serving": {"env": environment},
            "execution_role_arn": status.role_arn,
            "scheduler_role_arn": status.scheduler_role_arn,
        }
        return EndpointSpec(**{**fields, **changes})

    def session(self, script: Script) -> Session:
        """A session as on AWS, whose wire follows the script."""
        script.elapse, script.reached = self.elapse, self._reached
        self.place.wire.script = script
        return Session.from_boto3(self.place.wire, clock=self.now)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.seconds)

    def elapse(self, seconds: float) -> None:
        """Time passes, and the server does not notice."""
        self.seconds += seconds

    def sleep(self, seconds: float) -> None:
        """Time passes, and what was on its way has arrived."""
        script = self.place.wire.script
        if script.dead:
            script.begins("sleep")
        self.elapse(seconds)
        self.settle()

    def _reached(self, call: str) -> None:
        if self.at_once and call == "sagemaker:CreateEndpoint":
            self.settle()

    def settle(self) -> str | None:
        """Let the endpoint arrive where it is going."""
        deadline = time.monotonic() + _SETTLES_S
        with opened(self.name):
            while (status := self.status()) in MOVING:
                assert time.monotonic() < deadline, f"{self.name} is still {status}"
                time.sleep(0.02)
        return status

    def status(self) -> str | None:
        described = self._asked(lambda: self.place.sagemaker.describe_endpoint(EndpointName=self.name))
        return str(described["EndpointStatus"]) if described else None

    def plan(self, spec: EndpointSpec) -> Plan:
        return plan_for(spec, self.session(Script()))

    def create(self, spec: EndpointSpec) -> Plan:
        """Bring the endpoint up without the code under test."""
        plan = self.plan(spec)
        for request in plan.requests:
            client = self.place.server.client(request.service)
            getattr(client, request.operation)(**request.parameters)
        assert self.settle() == "InService"
        return plan

    def register(self, **values: dict[str, Any]) -> None:
        """Write what the guard's sweep would have."""
        item = {"pk": {"S": f"endpoint#{self.name}"}, "version": {"N": "1"}, **values}
        self.place.dynamodb.put_item(TableName=TABLE, Item=item)

    def found(self) -> Found:
        """Look, by a wire that no fault touches."""
        sagemaker = self.place.sagemaker
        endpoint = self._asked(lambda: sagemaker.describe_endpoint(EndpointName=self.name))
        schedule = self._asked(lambda: self.place.scheduler.get_schedule(Name=f"peagle-{self.name}-lifetime"))
        configs = sagemaker.list_endpoint_configs(NameContains=self.name)["EndpointConfigs"]
        models = sagemaker.list_models(NameContains=self.name)["Models"]
        key = {"pk": {"S": f"endpoint#{self.name}"}}
        row = self._asked(lambda: self.place.dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True))
        item = (row or {}).get("Item")
        return Found(
            status=endpoint["EndpointStatus"] if endpoint else None,
            config=endpoint["EndpointConfigName"] if endpoint else None,
            armed_until=schedule["StartDate"] if schedule and schedule["State"] == "ENABLED" else None,
            configs=tuple(sorted(one["EndpointConfigName"] for one in configs)),
            models=tuple(sorted(one["ModelName"] for one in models)),
            paused_configs=tuple(
                one["EndpointConfigName"]
                for one in configs
                if "peagle-sm:paused" in self._tags(one["EndpointConfigArn"])
            ),
            paused=bool(item and item.get("paused", {}).get("BOOL")),
            registered=item is not None,
        )

    def clear(self) -> None:
        """Take everything of the name away, whatever state it is in."""
        sagemaker = self.place.sagemaker
        self.settle()
        left = self.found()
        if left.nothing:
            return
        with opened(self.name):
            if left.status is not None:
                sagemaker.delete_endpoint(EndpointName=self.name)
            for name in left.configs:
                sagemaker.delete_endpoint_config(EndpointConfigName=name)
            for name in left.models:
                sagemaker.delete_model(ModelName=name)
            with suppress(ClientError):
                self.place.scheduler.delete_schedule(Name=f"peagle-{self.name}-lifetime")
            self.settle()

    def _tags(self, arn: str) -> set[str]:
        return {tag["Key"] for tag in self.place.sagemaker.list_tags(ResourceArn=arn)["Tags"]}

    @staticmethod
    def _asked(ask: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        try:
            return ask()
        except ClientError as error:
            words = str(error).lower()
            if "not find" in words or "not exist" in words or "not found" in words:
                return None
            raise
