"""The errors of boto3 with which a test stands in for AWS's answer."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError


def client_error(operation: str, code: str, message: str, status: int = 400) -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "RequestId": "req-1"},
    }
    return ClientError(answer, operation)


def lost(operation: str) -> BaseException:
    """The connection broke: whether the call was carried out is unknown to the caller."""
    return ConnectionClosedError(endpoint_url=f"https://aws/{operation}")


def denied(operation: str) -> BaseException:
    return client_error(operation, "AccessDeniedException", f"not authorized to perform: {operation}")


def broken(operation: str) -> BaseException:
    return client_error(operation, "InternalFailure", "internal", 500)


def throttled(operation: str) -> ClientError:
    return client_error(operation, "ThrottlingException", "Rate exceeded")
