"""What installing and watching the guard needs beside `FakeAws`: its stack, its bucket, its health."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from tests.service.fakes import ACCOUNT, FakeAws, Params, client_error

STACK_ID = f"arn:aws:cloudformation:us-east-1:{ACCOUNT}:stack/PeagleGuard/1"
TOPIC = f"arn:aws:sns:us-east-1:{ACCOUNT}:peagle-guard-notices"
CHANGING = ("Create", "Put", "Update", "Delete")


class FakeGuardAws(FakeAws):
    """An account whose only stack is the guard's, if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: Params | None = None
        self.outcome = ""
        self.done_at = 0.0
        self.failures: list[tuple[str, str]] = []
        self.events: list[Params] = []
        self.bucket: dict[str, str] | None = None
        self.objects: dict[str, bytes] = {}
        self.bucket_is_foreign = False
        self.importers: list[str] = []
        self.alarm_state = "OK"
        self.letters = 0
        self.subscribers: list[Params] = []
        self.answers: list[Callable[[], Params]] = []

    @property
    def changes(self) -> list[str]:
        """The calls that change something, in order."""
        return [call for call in self.calls if call.startswith(CHANGING)]

    def write(self, key: str, **values: Params) -> None:
        """Put an item into the guard's table."""
        self._items[key] = {"pk": {"S": key}, **values}

    def swept(self, minutes_ago: float) -> None:
        """Put an ended sweep into the register."""
        moment: datetime = self.clock.now() - timedelta(minutes=minutes_ago)
        self.write("sweep", last_sweep_at={"S": moment.isoformat()})

    # --- CloudFormation ---------------------------------------------------------------------------

    def describe_stacks(self, StackName: str) -> Params:
        if self.outcome and self.clock.seconds >= self.done_at and self.stack is not None:
            self.stack["StackStatus"] = self.outcome
            self._event("PeagleGuard", self.outcome)
            if self.outcome == "DELETE_COMPLETE":
                self.stack = None
            self.outcome = ""
        if self.stack is None:
            message = f"Stack with id {StackName} does not exist"
            raise client_error("DescribeStacks", "ValidationError", message)
        return {"Stacks": [self.stack]}

    def describe_stack_events(self, StackName: str) -> Params:
        return {"StackEvents": list(reversed(self.events))}

    def create_stack(self, **request: Any) -> Params:
        self.stack = {
            "StackName": request["StackName"],
            "StackId": STACK_ID,
            "StackStatus": "CREATE_IN_PROGRESS",
        }
        self._take(request)
        return self._go("CREATE_COMPLETE" if not self.failures else "ROLLBACK_COMPLETE")

    def update_stack(self, **request: Any) -> Params:
        assert self.stack is not None
        before = self.stack["Parameters"]
        self._take(request)
        if self.stack["Parameters"] == before:
            raise client_error("UpdateStack", "ValidationError", "No updates are to be performed.")
        self.stack["StackStatus"] = "UPDATE_IN_PROGRESS"
        return self._go("UPDATE_COMPLETE" if not self.failures else "UPDATE_ROLLBACK_COMPLETE")

    def delete_stack(self, StackName: str) -> None:
        assert self.stack is not None
        self.stack["StackStatus"] = "DELETE_IN_PROGRESS"
        self._go("DELETE_COMPLETE")

    def list_imports(self, ExportName: str) -> Params:
        if not self.importers:
            message = f"Export '{ExportName}' is not imported by any stack."
            raise client_error("ListImports", "ValidationError", message)
        return {"Imports": self.importers}

    def _take(self, request: Params) -> None:
        assert self.stack is not None
        known = {one["ParameterKey"]: one["ParameterValue"] for one in self.stack.get("Parameters", [])}
        declared = json.loads(request["TemplateBody"])["Parameters"]
        values = {name: parameter.get("Default", "") for name, parameter in declared.items()}
        for one in request["Parameters"]:
            name = one["ParameterKey"]
            values[name] = known[name] if one.get("UsePreviousValue") else one["ParameterValue"]
        self.stack["Parameters"] = [
            {"ParameterKey": name, "ParameterValue": value} for name, value in sorted(values.items())
        ]
        outputs = {"Version": "1.0", "NoticesTopicArn": TOPIC}
        self.stack["Outputs"] = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]

    def _go(self, outcome: str) -> Params:
        self.outcome, self.done_at = outcome, self.clock.seconds + 20
        for logical_id, reason in self.failures:
            self._event(logical_id, "CREATE_FAILED", ResourceStatusReason=reason)
        self.failures = []
        return {"StackId": STACK_ID}

    def _event(self, logical_id: str, status: str, **more: str) -> None:
        self.events.append(
            {
                "EventId": str(len(self.events)),
                "Timestamp": self.clock.now(),
                "LogicalResourceId": logical_id,
                "ResourceType": "AWS::Lambda::Function",
                "ResourceStatus": status,
                **more,
            }
        )

    # --- S3 ---------------------------------------------------------------------------------------

    def head_bucket(self, **_: Any) -> None:
        if self.bucket_is_foreign:
            raise client_error("HeadBucket", "403", "Forbidden", 403)
        if self.bucket is None:
            raise client_error("HeadBucket", "404", "Not Found", 404)

    def create_bucket(self, **_: Any) -> None:
        self.bucket = {}

    def put_public_access_block(self, **request: Any) -> None:
        self._secure("PutPublicAccessBlock", request)

    def put_bucket_encryption(self, **request: Any) -> None:
        self._secure("PutBucketEncryption", request)

    def put_bucket_versioning(self, **request: Any) -> None:
        self._secure("PutBucketVersioning", request)

    def put_bucket_policy(self, **request: Any) -> None:
        self._secure("PutBucketPolicy", request)

    def _secure(self, operation: str, request: Params) -> None:
        assert self.bucket is not None
        self.bucket[operation] = json.dumps(request)

    def head_object(self, Key: str, **_: Any) -> None:
        if Key not in self.objects:
            raise client_error("HeadObject", "404", "Not Found", 404)

    def put_object(self, Key: str, Body: bytes, **_: Any) -> None:
        self.objects[Key] = Body

    def list_object_versions(self, Bucket: str, Prefix: str = "") -> Params:
        return {
            "Versions": [{"Key": key, "VersionId": "1"} for key in self.objects if key.startswith(Prefix)]
        }

    def delete_objects(self, Bucket: str, Delete: Params) -> None:
        for one in Delete["Objects"]:
            del self.objects[one["Key"]]

    def delete_bucket(self, Bucket: str) -> None:
        assert not self.objects
        self.bucket = None

    # --- its health -------------------------------------------------------------------------------

    def invoke(self, FunctionName: str, Payload: bytes, **_: Any) -> Params:
        return self.answers.pop(0)()

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


def answered(document: Any, error: str | None = None) -> Callable[[], Params]:
    """What Invoke gives when the function answered, or failed with ``error``."""
    body = {"Payload": io.BytesIO(json.dumps(document).encode())}
    return lambda: {**body, "FunctionError": error} if error else dict(body)


def throttled() -> Params:
    """What Invoke raises while a function that runs alone is running."""
    raise client_error("Invoke", "TooManyRequestsException", "Rate Exceeded.", 429)
