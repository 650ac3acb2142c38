"""An error as AWS answers it."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

Params = dict[str, Any]


def client_error(operation: str, code: str, message: str, status: int = 400) -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "RequestId": "req-1"},
    }
    return ClientError(answer, operation)
