"""An AWS account on the local SageMaker: a boto3 whose calls a test sees, stops or answers itself.

Time passes only in `Account.sleep`, for the server too. Engines come up and go when their time has come, so
nothing depends on how busy the machine is. What a test creates is deleted at its end.
"""

from __future__ import annotations

import io
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from peagle_sm.aws.session.session import Session
from peagle_sm.core.guard import GUARD_STACK, TABLE
from peagle_sm.service import Pacing
from tests.local.gated_engine import opened
from tests.local.serving import IMAGE, AsOnAws, Server
from tests.service.setting import ACCOUNT, BUCKET, EXECUTION_ROLE, GUARDS_ROLE, ROLE

Params = dict[str, Any]
CREATE_S, DELETE_S = 60.0, 20.0
MOVING = ("Creating", "Updating", "RollingBack", "Deleting", "SystemUpdating")
_LONGEST_S = 60.0
#: Rows of an answer: the call that lists them all, their kind, and the field with the name.
LISTS = {
    "Endpoints": ("list_endpoints", "endpoint", "EndpointName"),
    "EndpointConfigs": ("list_endpoint_configs", "endpoint-config", "EndpointConfigName"),
    "Models": ("list_models", "model", "ModelName"),
}
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "scheduler.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}


class WatchedBoto3(AsOnAws):
    """A session of boto3 whose clients are made once for a file, and report to the account of the test."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.account: Account | None = None
        self._clients: dict[tuple[str, int], Any] = {}

    def client(self, service: str, **options: Any) -> Any:
        key = service, options["config"].retries["total_max_attempts"]
        if key not in self._clients:
            client = self._clients[key] = super().client(service, **options)
            client.meta.events.register("before-parameter-build", self._begin)
            client.meta.events.register("before-call", self._send)
            client.meta.events.register("after-call", self._end)
        return self._clients[key]

    def _begin(self, params: Params, model: Any, **_: Any) -> None:
        if self.account is not None:
            self.account.sent[model.name] = params

    def _send(self, model: Any, **_: Any) -> tuple[AWSResponse, Params] | None:
        answer = self.account.begin(model.name) if self.account else None
        if answer is None:
            return None
        http = AWSResponse("", 200, {}, io.BytesIO())  # type: ignore[arg-type]
        return http, {"ResponseMetadata": {"HTTPHeaders": {}}, **answer}

    def _end(self, model: Any, parsed: Params, **_: Any) -> None:
        if self.account is not None and parsed.get("ResponseMetadata", {}).get("HTTPStatusCode", 200) < 300:
            self.account.end(model.name)
            self.account.hide_older(parsed)


class Account:
    """What a test has of AWS.

    ``before`` sees each call: it returns None, an error to raise in its place, or an answer in AWS's place.
    ``after`` sees each call that was carried out, and may return an error in place of its answer.
    ``stacks`` has the status of stacks that CloudFormation here does not know, or knows in another status.
    ``switch`` answers for the guard's switch.
    ``held`` has the second at which an endpoint that is moving arrives, where that is not as usual.
    """

    def __init__(self, server: Server, boto3: WatchedBoto3) -> None:
        self.server = server
        self.boto3 = boto3
        self.boto3.account = self
        self.calls: list[str] = []
        self.sent: dict[str, Params] = {}
        self.before: Callable[[str], BaseException | Params | None] = lambda operation: None
        self.after: Callable[[str], BaseException | None] = lambda operation: None
        self.switch: Callable[[Params], Params] | None = None
        self.stacks: dict[str, str] = {}
        self.held: dict[str, float] = {}
        self.late: list[tuple[float, Callable[[], object]]] = []
        self.seconds = 0.0
        self.sagemaker = server.client("sagemaker")
        self.scheduler = server.client("scheduler")
        self.dynamodb = server.client("dynamodb")
        self.start = self.clock().replace(microsecond=0)
        self._kept: list[str] = []
        self._kept = self.everything()

    # --- time and calls ---------------------------------------------------------------------------

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds)

    def clock(self) -> datetime:
        """The server's time: that of `now`, and the seconds that the test has really taken."""
        return datetime.fromisoformat(self._admin("GET", "status")["clock"])

    def session(self, **options: Any) -> Session:
        return Session.from_boto3(self.boto3, clock=self.now, **options)

    def pacing(self, poll_s: float = 15.0) -> Pacing:
        return Pacing(self.now, lambda: self.seconds, self.sleep, poll_s, delete_timeout_s=600)

    def sleep(self, seconds: float) -> None:
        """Let time pass, and happen what is due."""
        began = self.seconds
        self.seconds += seconds
        self._admin("POST", "clock", {"advance_seconds": seconds})
        for due in [each for each in self.late if each[0] <= self.seconds]:
            self.late.remove(due)
            with suppress(ClientError):
                due[1]()
        moving = self.moving()
        for name, status in moving.items():
            self.held.setdefault(name, began + (CREATE_S if status == "Creating" else DELETE_S))
        self.settle(*(name for name in moving if self.held[name] <= self.seconds))

    def settle(self, *names: str) -> None:
        """Let endpoints arrive where they are going."""
        deadline = time.monotonic() + _LONGEST_S
        with ExitStack() as gates:
            for name in names:
                gates.enter_context(opened(name))
                self.held.pop(name, None)
            while moving := self.moving().keys() & set(names):
                assert time.monotonic() < deadline, f"{moving} do not arrive"
                time.sleep(0.01)

    def moving(self) -> dict[str, str]:
        rows = self._rows("list_endpoints", "Endpoints")
        return {row["EndpointName"]: row["EndpointStatus"] for row in rows if row["EndpointStatus"] in MOVING}

    def begin(self, operation: str) -> Params | None:
        self.calls.append(operation)
        answer = self.before(operation)
        if isinstance(answer, BaseException):
            raise answer
        stack = self.sent[operation]["StackName"] if operation == "DescribeStacks" else None
        if answer is None and stack in self.stacks:
            return {"Stacks": [{"StackName": stack, "StackId": stack, "StackStatus": self.stacks[stack]}]}
        if answer is None and operation == "Invoke" and self.switch is not None:
            sent = json.loads(self.sent["Invoke"]["Payload"])
            return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(self.switch(sent)).encode())}
        return answer

    def end(self, operation: str) -> None:
        error = self.after(operation)
        if error is not None:
            raise error

    def _admin(self, method: str, path: str, body: Params | None = None) -> Params:
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(f"{self.server.url}/_peagle/{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return dict(json.loads(answer.read()))

    # --- what there is ----------------------------------------------------------------------------

    def everything(self) -> list[str]:
        """What the tests deploy: endpoints, configs, models and lifetime schedules."""
        rows = [
            f"{kind}/{row[name]}"
            for listed, (operation, kind, name) in LISTS.items()
            for row in self._rows(operation, listed)
        ]
        rows += [f"schedule/{name}" for name in self.schedules()]
        return [row for row in rows if row not in self._kept]

    def hide_older(self, answer: Params) -> None:
        """Leave out of an answer what tests of other files have left: it is not of this account."""
        for listed, (_, kind, name) in LISTS.items():
            if listed in answer:
                answer[listed] = [row for row in answer[listed] if f"{kind}/{row[name]}" not in self._kept]
        if "ResourceTagMappingList" in answer:
            answer["ResourceTagMappingList"] = [
                row
                for row in answer["ResourceTagMappingList"]
                if row["ResourceARN"].rpartition(":")[2] not in self._kept
            ]

    def _rows(self, operation: str, key: str) -> list[Params]:
        pages = self.sagemaker.get_paginator(operation).paginate(SortBy="Name", MaxResults=100)
        return [row for page in pages for row in page[key]]

    def kinds(self) -> list[str]:
        return [each.partition("/")[0] for each in self.everything()]

    def names(self, kind: str) -> list[str]:
        return [each.partition("/")[2] for each in self.everything() if each.startswith(f"{kind}/")]

    def endpoint(self, name: str = "demo") -> Params | None:
        try:
            return dict(self.sagemaker.describe_endpoint(EndpointName=name))
        except ClientError:
            return None

    def status(self, name: str = "demo") -> str | None:
        endpoint = self.endpoint(name)
        return endpoint["EndpointStatus"] if endpoint else None

    def created(self, name: str = "demo") -> datetime:
        """When an endpoint was created, by the server's clock."""
        created: datetime = self.sagemaker.describe_endpoint(EndpointName=name)["CreationTime"]
        return created

    def schedules(self) -> list[str]:
        rows = self.scheduler.list_schedules(NamePrefix="peagle-")["Schedules"]
        return sorted(row["Name"] for row in rows)

    def schedule(self, name: str = "demo") -> Params:
        return dict(self.scheduler.get_schedule(Name=f"peagle-{name}-lifetime"))

    def tags(self, kind: str, name: str) -> dict[str, str]:
        rows = self.sagemaker.list_tags(ResourceArn=arn_of(kind, name))["Tags"]
        return {row["Key"]: row["Value"] for row in rows}

    def tag(self, tags: dict[str, str]) -> None:
        """Add tags to every endpoint, config and model."""
        rows = [{"Key": key, "Value": value} for key, value in tags.items()]
        for resource in self.everything():
            kind, _, name = resource.partition("/")
            if kind != "schedule":
                self.sagemaker.add_tags(ResourceArn=arn_of(kind, name), Tags=rows)

    def item(self, name: str = "demo") -> Params:
        """What the guard's register has of an endpoint."""
        key = {"pk": {"S": f"endpoint#{name}"}}
        return dict(self.dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True).get("Item", {}))

    def note(self, name: str = "demo", **values: Params) -> None:
        """Write an item of an endpoint into the guard's register."""
        item = {"pk": {"S": f"endpoint#{name}"}, "version": {"N": "1"}, **values}
        self.dynamodb.put_item(TableName=TABLE, Item=item)

    @contextmanager
    def no_guard(self) -> Iterator[None]:
        """While this is open, the guard's stack, role and table do not exist."""
        remove_guard(self.server)
        try:
            yield
        finally:
            install_guard(self.server)

    # --- what others do ---------------------------------------------------------------------------

    def foreign(self, name: str) -> None:
        """Create an endpoint that is not peagle-sm's, with a config that is not listed as the test's."""
        client = self.sagemaker
        container = {"Image": IMAGE, "Environment": {"SCRIPT_GATE": name}}
        client.create_model(
            ModelName=f"{name}-theirs", ExecutionRoleArn=EXECUTION_ROLE, PrimaryContainer=container
        )
        variant = {"VariantName": "AllTraffic", "ModelName": f"{name}-theirs", "InitialInstanceCount": 1}
        variants = [{**variant, "InstanceType": "ml.g7e.2xlarge"}]
        client.create_endpoint_config(EndpointConfigName=f"{name}-theirs", ProductionVariants=variants)
        client.create_endpoint(EndpointName=name, EndpointConfigName=f"{name}-theirs")
        self.settle(name)
        client.delete_endpoint_config(EndpointConfigName=f"{name}-theirs")
        client.delete_model(ModelName=f"{name}-theirs")

    def remove_endpoint(self, name: str = "demo") -> None:
        """Delete an endpoint behind peagle-sm's back, at once."""
        self.settle(name)
        with suppress(ClientError):
            self.sagemaker.delete_endpoint(EndpointName=name)
        self.settle(name)

    def put_schedule(self, name: str, target: str, event: Params, **more: Any) -> None:
        """Create a schedule that has not ended yet, as a stack or an earlier deploy does."""
        fields = {
            "ScheduleExpression": "rate(10 minutes)",
            "StartDate": self.now() + timedelta(hours=8),
            "EndDate": self.now() + timedelta(hours=32),
            "FlexibleTimeWindow": {"Mode": "OFF"},
            **more,
        }
        goal = {"Arn": target, "RoleArn": ROLE, "Input": json.dumps(event)}
        self.scheduler.create_schedule(Name=name, Target=goal, **fields)

    def instances(self, instance_type: str, number: int | None) -> None:
        """Let there be so many instances of a type; None: as many as anybody wants."""
        self._admin("POST", "capacity", {"instance_type": instance_type, "instances": number})

    def write_log(self, *lines: str, name: str = "demo") -> None:
        """Write lines as an endpoint's engine does."""
        client, group = self.server.client("logs"), f"/aws/sagemaker/Endpoints/{name}"
        place = {"logGroupName": group, "logStreamName": "AllTraffic/i-1"}
        with suppress(ClientError):
            client.create_log_stream(**place)
        now_ms = int(self.clock().timestamp() * 1000)
        client.put_log_events(**place, logEvents=[{"timestamp": now_ms, "message": line} for line in lines])

    def remove_schedules(self) -> None:
        for name in self.schedules():
            self.scheduler.delete_schedule(Name=name)

    def clear(self) -> None:
        """Delete what the test has left."""
        self.boto3.account = None
        self.settle(*self.moving())
        left = self.everything()
        for resource in left:
            kind, _, name = resource.partition("/")
            if kind == "endpoint":
                self.remove_endpoint(name)
            elif kind == "endpoint-config":
                self.sagemaker.delete_endpoint_config(EndpointConfigName=name)
            elif kind == "model":
                self.sagemaker.delete_model(ModelName=name)
            elif kind == "schedule":
                self.scheduler.delete_schedule(Name=name)
        self.instances("ml.g7e.2xlarge", None)
        logs = self.server.client("logs")
        for row in logs.describe_log_groups(logGroupNamePrefix="/aws/sagemaker/")["logGroups"]:
            logs.delete_log_group(logGroupName=row["logGroupName"])
        cloudwatch = self.server.client("cloudwatch")
        if alarms := [row["AlarmName"] for row in cloudwatch.describe_alarms()["MetricAlarms"]]:
            cloudwatch.delete_alarms(AlarmNames=alarms)
        with suppress(ClientError):  # without a guard there is no table
            for item in self.dynamodb.scan(TableName=TABLE)["Items"]:
                self.dynamodb.delete_item(TableName=TABLE, Key={"pk": item["pk"]})


def arn_of(kind: str, name: str) -> str:
    return f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:{kind}/{name}"


@contextmanager
def guard_of(server: Server) -> Iterator[None]:
    """While this is open, there are a guard and the weights that the specs name."""
    s3 = server.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    for part in ("target", "head"):
        s3.put_object(Bucket=BUCKET, Key=f"{part}/config.json", Body=b"{}")
    install_guard(server)
    try:
        yield
    finally:
        remove_guard(server)
        for part in ("target", "head"):
            s3.delete_object(Bucket=BUCKET, Key=f"{part}/config.json")
        s3.delete_bucket(Bucket=BUCKET)


def install_guard(server: Server) -> None:
    """Create the guard's stack, role and table: what commands look at."""
    template = {"Resources": {"Notices": {"Type": "AWS::SNS::Topic", "Properties": {}}}}
    cloudformation = server.client("cloudformation")
    cloudformation.create_stack(StackName=GUARD_STACK, TemplateBody=json.dumps(template))
    _reach(server, "stack_create_complete")
    role = GUARDS_ROLE.rpartition("/")[2]
    server.client("iam").create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(TRUST))
    server.client("dynamodb").create_table(
        TableName=TABLE,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )


def remove_guard(server: Server) -> None:
    server.client("dynamodb").delete_table(TableName=TABLE)
    server.client("iam").delete_role(RoleName=GUARDS_ROLE.rpartition("/")[2])
    server.client("cloudformation").delete_stack(StackName=GUARD_STACK)
    _reach(server, "stack_delete_complete")


def _reach(server: Server, waiter: str) -> None:
    config = {"Delay": 0.02, "MaxAttempts": 1000}
    server.client("cloudformation").get_waiter(waiter).wait(StackName=GUARD_STACK, WaiterConfig=config)
