"""An account with one stack and one bucket: what the guard's installation touches, and faults on demand."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from tests.service.fakes import ACCOUNT, Clock, client_error

Params = dict[str, Any]
STACK_ID = f"arn:aws:cloudformation:us-east-1:{ACCOUNT}:stack/PeagleGuard/1"
TOPIC = f"arn:aws:sns:us-east-1:{ACCOUNT}:peagle-guard-notices"


class FakeGuardAws:
    """A boto3 session and its clients in one. ``calls`` names what was sent, in order."""

    region_name = "us-east-1"
    profile_name = None

    def __init__(self) -> None:
        self.clock = Clock()
        self.calls: list[str] = []
        self.sent: list[Params] = []
        self.stack: Params | None = None
        self.outcome = ""
        self.done_at = 0.0
        self.failures: list[tuple[str, str]] = []
        self.events: list[Params] = []
        self.bucket: dict[str, str] | None = None
        self.objects: dict[str, bytes] = {}
        self.bucket_is_foreign = False
        self.endpoints: dict[str, dict[str, str]] = {}
        self.importers: list[str] = []
        self.lose_answers = 0
        self.items: list[Params] = []
        self.alarm_state = "OK"
        self.letters = 0
        self.subscribers: list[Params] = []
        self.answers: list[Callable[[], Params]] = []

    def client(self, service: str, **more: Any) -> Any:
        return self

    def get_paginator(self, operation: str) -> Any:
        return _Pages(getattr(self, operation))

    # --- CloudFormation ---------------------------------------------------------------------------

    def describe_stacks(self, StackName: str) -> Params:
        if self.lose_answers:
            self.lose_answers -= 1
            raise client_error("DescribeStacks", "ServiceUnavailable", "try again", 503)
        self._advance()
        if self.stack is None:
            raise client_error(
                "DescribeStacks", "ValidationError", f"Stack with id {StackName} does not exist"
            )
        return {"Stacks": [self.stack]}

    def describe_stack_events(self, StackName: str) -> Params:
        return {"StackEvents": list(reversed(self.events))}

    def create_stack(self, **request: Any) -> Params:
        self._note("create_stack", request)
        self.stack = {
            "StackName": request["StackName"],
            "StackId": STACK_ID,
            "StackStatus": "CREATE_IN_PROGRESS",
        }
        self._take(request)
        self._go("CREATE_COMPLETE" if not self.failures else "ROLLBACK_COMPLETE")
        return {"StackId": STACK_ID}

    def update_stack(self, **request: Any) -> Params:
        assert self.stack is not None
        self._note("update_stack", request)
        before = dict(self.stack)
        self._take(request)
        if self.stack["Parameters"] == before["Parameters"]:
            raise client_error("UpdateStack", "ValidationError", "No updates are to be performed.")
        self.stack["StackStatus"] = "UPDATE_IN_PROGRESS"
        self._go("UPDATE_COMPLETE" if not self.failures else "UPDATE_ROLLBACK_COMPLETE")
        return {"StackId": STACK_ID}

    def delete_stack(self, StackName: str) -> Params:
        self._note("delete_stack", {})
        assert self.stack is not None
        self.stack["StackStatus"] = "DELETE_IN_PROGRESS"
        self._go("DELETE_COMPLETE")
        return {}

    def list_imports(self, ExportName: str) -> Params:
        if not self.importers:
            words = f"Export '{ExportName}' is not imported by any stack."
            raise client_error("ListImports", "ValidationError", words)
        return {"Imports": self.importers}

    def _take(self, request: Params) -> None:
        assert self.stack is not None
        known = {one["ParameterKey"]: one["ParameterValue"] for one in self.stack.get("Parameters", [])}
        defaults = json.loads(request["TemplateBody"])["Parameters"]
        values = {name: declared.get("Default", "") for name, declared in defaults.items()}
        for one in request["Parameters"]:
            name = one["ParameterKey"]
            values[name] = known[name] if one.get("UsePreviousValue") else one["ParameterValue"]
        self.stack["Parameters"] = [
            {"ParameterKey": name, "ParameterValue": value} for name, value in sorted(values.items())
        ]
        self.stack["Outputs"] = [
            {"OutputKey": "Version", "OutputValue": "1.0"},
            {"OutputKey": "NoticesTopicArn", "OutputValue": TOPIC},
        ]

    def _go(self, outcome: str) -> None:
        self.outcome, self.done_at = outcome, self.clock.seconds + 20
        for logical_id, reason in self.failures:
            self._event(logical_id, "CREATE_FAILED", reason)
        self.failures = []

    def _advance(self) -> None:
        if self.outcome and self.clock.seconds >= self.done_at and self.stack is not None:
            self.stack["StackStatus"] = self.outcome
            self._event("PeagleGuard", self.outcome, None)
            if self.outcome == "DELETE_COMPLETE":
                self.stack = None
            self.outcome = ""

    def _event(self, logical_id: str, status: str, reason: str | None) -> None:
        row = {
            "EventId": str(len(self.events)),
            "Timestamp": self.clock.now(),
            "LogicalResourceId": logical_id,
            "ResourceType": "AWS::Lambda::Function",
            "ResourceStatus": status,
        }
        self.events.append({**row, "ResourceStatusReason": reason} if reason else row)

    # --- S3 ---------------------------------------------------------------------------------------

    def head_bucket(self, Bucket: str, ExpectedBucketOwner: str) -> Params:
        if self.bucket_is_foreign:
            raise client_error("HeadBucket", "403", "Forbidden", 403)
        if self.bucket is None:
            raise client_error("HeadBucket", "404", "Not Found", 404)
        return {}

    def create_bucket(self, **request: Any) -> Params:
        self._note("create_bucket", request)
        self.bucket = {}
        return {}

    def put_public_access_block(self, **request: Any) -> Params:
        return self._secure("put_public_access_block", request)

    def put_bucket_encryption(self, **request: Any) -> Params:
        return self._secure("put_bucket_encryption", request)

    def put_bucket_versioning(self, **request: Any) -> Params:
        return self._secure("put_bucket_versioning", request)

    def put_bucket_policy(self, **request: Any) -> Params:
        return self._secure("put_bucket_policy", request)

    def head_object(self, Bucket: str, Key: str, ExpectedBucketOwner: str) -> Params:
        if Key not in self.objects:
            raise client_error("HeadObject", "404", "Not Found", 404)
        return {}

    def put_object(self, **request: Any) -> Params:
        self._note("put_object", request)
        self.objects[request["Key"]] = request["Body"]
        return {}

    def list_object_versions(self, Bucket: str) -> Params:
        return {"Versions": [{"Key": key, "VersionId": "1"} for key in self.objects]}

    def delete_objects(self, Bucket: str, Delete: Params) -> Params:
        for one in Delete["Objects"]:
            del self.objects[one["Key"]]
        return {}

    def delete_bucket(self, Bucket: str) -> Params:
        assert not self.objects
        self._note("delete_bucket", {})
        self.bucket = None
        return {}

    def _secure(self, call: str, request: Params) -> Params:
        self._note(call, request)
        assert self.bucket is not None
        self.bucket[call] = json.dumps(request)
        return {}

    # --- the rest ---------------------------------------------------------------------------------

    def get_caller_identity(self) -> Params:
        return {"Account": ACCOUNT}

    def list_endpoints(self, **request: Any) -> Params:
        rows = [
            {"EndpointName": name, "EndpointArn": f"arn:{name}", "EndpointStatus": "InService"}
            for name in self.endpoints
        ]
        return {"Endpoints": rows}

    def list_tags(self, ResourceArn: str) -> Params:
        tags = self.endpoints[ResourceArn.removeprefix("arn:")]
        return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}

    def invoke(self, **request: Any) -> Params:
        self._note("invoke", request)
        return self.answers.pop(0)()

    def scan(self, TableName: str) -> Params:
        return {"Items": self.items}

    def describe_alarms(self, AlarmNames: list[str]) -> Params:
        rows = [
            {"AlarmName": name, "StateValue": self.alarm_state, "StateReason": "why"} for name in AlarmNames
        ]
        return {"MetricAlarms": rows}

    def get_queue_url(self, QueueName: str) -> Params:
        return {"QueueUrl": f"https://sqs/{QueueName}"}

    def get_queue_attributes(self, QueueUrl: str, AttributeNames: list[str]) -> Params:
        return {"Attributes": {"ApproximateNumberOfMessages": str(self.letters)}}

    def list_subscriptions_by_topic(self, TopicArn: str) -> Params:
        assert TopicArn == TOPIC
        return {"Subscriptions": self.subscribers}

    def _note(self, call: str, request: Params) -> None:
        self.calls.append(call)
        self.sent.append(request)

    def request(self, call: str) -> Params:
        """The last request of that name."""
        return self.sent[len(self.calls) - 1 - self.calls[::-1].index(call)]

    def swept(self, minutes_ago: float) -> None:
        """Put an ended sweep into the register."""
        moment: datetime = self.clock.now() - timedelta(minutes=minutes_ago)
        self.items.append({"pk": {"S": "sweep"}, "last_sweep_at": {"S": moment.isoformat()}})


class _Pages:
    def __init__(self, call: Callable[..., Params]) -> None:
        self._call = call

    def paginate(self, **request: Any) -> Iterator[Params]:
        yield self._call(**request)


def answered(document: Any, error: str | None = None) -> Callable[[], Params]:
    """What Invoke gives when the function answered, or failed with ``error``."""
    body = {"Payload": io.BytesIO(json.dumps(document).encode())}
    return lambda: {**body, "FunctionError": error} if error else dict(body)


def throttled() -> Params:
    """What Invoke raises while a function that runs alone is running."""
    error: ClientError = client_error("Invoke", "TooManyRequestsException", "Rate Exceeded.", 429)
    raise error
