"""AWS::CloudFormation::CustomResource and Custom::*: a request to the provider's Lambda, an answer by URL."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import Any

from botocore.exceptions import ClientError

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Properties,
    ResourceContext,
    ResourceFailure,
)
from sagemaker_local.cloudformation.resources.calls import gone_is_fine

# "The total size of the response body can't exceed 4096 bytes" (user guide, custom resource responses).
_LONGEST_ANSWER = 4096
# Real seconds. "The default value is 3600 seconds (1 hour)" (ServiceTimeout).
_DEFAULT_TIMEOUT_S = 3600.0
_POLL_S = 0.2
_THROTTLED = "TooManyRequestsException"


@dataclass(frozen=True)
class _Answer:
    """What a provider put at the ResponseURL."""

    succeeded: bool
    reason: str
    physical_id: str | None
    data: Mapping[str, Any]


class CustomResource:
    """One type of custom resource; ``type_name`` is sent to the provider."""

    def __init__(self, type_name: str) -> None:
        self._type_name = type_name

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Have the provider create it."""
        answer = self._ask(ctx, "Create", properties, {})
        if not answer.succeeded:
            # What the provider named may half exist, so a rollback asks it to delete that.
            raise ResourceFailure(answer.reason, physical_id=answer.physical_id)
        if not answer.physical_id:
            raise ResourceFailure("Invalid PhysicalResourceId: the provider's answer has none")
        return Created(answer.physical_id, dict(answer.data))

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Have the provider change it; another physical id in its answer replaces the resource."""
        if old.get("ServiceToken") != new.get("ServiceToken"):
            raise ResourceFailure("Modifying service token is not allowed.")
        more = {"PhysicalResourceId": physical_id, "OldResourceProperties": as_text(old)}
        answer = self._ask(ctx, "Update", new, more)
        if not answer.succeeded:
            raise ResourceFailure(answer.reason)
        return Created(answer.physical_id or physical_id, dict(answer.data))

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Have the provider delete it."""
        answer = self._ask(ctx, "Delete", properties, {"PhysicalResourceId": physical_id})
        if not answer.succeeded:
            raise ResourceFailure(answer.reason)

    def _ask(
        self, ctx: ResourceContext, request_type: str, properties: Properties, more: Mapping[str, Any]
    ) -> _Answer:
        request_id = str(uuid.uuid4())
        mailbox = _Mailbox(ctx, request_id)
        event = {
            "RequestType": request_type,
            "RequestId": request_id,
            "ResponseURL": mailbox.url,
            "StackId": ctx.stack_id,
            "ResourceType": self._type_name,
            "LogicalResourceId": ctx.logical_id,
            "ServiceToken": properties["ServiceToken"],
            "ResourceProperties": as_text(properties),
            **more,
        }
        limit = monotonic() + float(properties.get("ServiceTimeout") or _DEFAULT_TIMEOUT_S)
        try:
            call = _in_thread(lambda: _call(ctx, str(properties["ServiceToken"]), event, limit))
            while True:
                # Read first: a function may answer and end after the mailbox was looked at.
                error = call.result() if call.done() else None
                answer = mailbox.read()
                if answer is not None:
                    return answer
                if error is not None or monotonic() >= limit:
                    raise ResourceFailure(_silence(request_id, error))
                ctx.pause(_POLL_S)
        finally:
            mailbox.close()


def _in_thread(work: Callable[[], str | None]) -> Future[str | None]:
    """Start the work; ServiceTimeout also ends the wait for a running function."""
    future: Future[str | None] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class _Mailbox:
    """The object in S3 that a provider writes its answer to, through a presigned URL."""

    def __init__(self, ctx: ResourceContext, request_id: str) -> None:
        self._s3 = ctx.client("s3")
        bucket = f"cloudformation-custom-resource-response-{ctx.region.replace('-', '')}"
        where = {} if ctx.region == "us-east-1" else {"LocationConstraint": ctx.region}
        with gone_is_fine("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
            self._s3.create_bucket(Bucket=bucket, **({"CreateBucketConfiguration": where} if where else {}))
        self._object = {"Bucket": bucket, "Key": request_id}
        self._request_id = request_id
        self.url = str(self._s3.generate_presigned_url("put_object", Params=self._object, ExpiresIn=7200))

    def read(self) -> _Answer | None:
        """Read the answer; None when there is none yet."""
        with gone_is_fine("NoSuchKey", "404"):
            body = bytes(self._s3.get_object(**self._object)["Body"].read())
            return _read(body, self._request_id)
        return None

    def close(self) -> None:
        """Forget the answer."""
        self._s3.delete_object(**self._object)


def _read(body: bytes, request_id: str) -> _Answer:
    if len(body) > _LONGEST_ANSWER:
        raise ResourceFailure(f"Response object is too long: {len(body)} bytes, at most {_LONGEST_ANSWER}.")
    try:
        response = json.loads(body)
        status = response["Status"]
    except (ValueError, KeyError, TypeError) as error:
        raise ResourceFailure("Invalid Response object: Value of property Status is missing") from error
    reason = (
        f"Received response status [{status}] from custom resource. "
        f"Message returned: {response.get('Reason', '')} (RequestId: {request_id})"
    )
    physical_id = response.get("PhysicalResourceId")
    return _Answer(
        status == "SUCCESS",
        reason,
        None if physical_id is None else str(physical_id),
        response.get("Data") or {},
    )


def _call(ctx: ResourceContext, token: str, event: Mapping[str, Any], limit: float) -> str | None:
    """Call the provider; return its error if it failed without a response."""
    if ":lambda:" not in token:
        raise ResourceFailure(f"ServiceToken: found {token}; only Lambda functions are supported locally")
    client = ctx.client("lambda")
    while True:
        try:
            answer = client.invoke(FunctionName=token, Payload=json.dumps(event).encode())
        except ClientError as error:
            if error.response["Error"]["Code"] != _THROTTLED or monotonic() >= limit:
                raise
            ctx.pause(_POLL_S)
            continue
        payload = answer["Payload"].read().decode(errors="replace")
        return payload if answer.get("FunctionError") else None


def _silence(request_id: str, error: str | None) -> str:
    message = (
        "CloudFormation did not receive a response from your Custom Resource. "
        f"Please check your logs for requestId [{request_id}]."
    )
    return message if error is None else f"{message} The function ended with an error: {error}"


def as_text(value: Any) -> Any:
    """Turn every number and boolean into text: that is how providers get a template's properties."""
    if isinstance(value, Mapping):
        return {str(key): as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_text(item) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value
