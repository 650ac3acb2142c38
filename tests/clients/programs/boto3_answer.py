"""The request of every client that reads boto3's stream itself."""

from functools import cache
from typing import Any

import boto3
from harness import Job, body  # type: ignore[import-not-found]


@cache
def _client() -> Any:
    return boto3.client("sagemaker-runtime")


def events(job: Job) -> Any:
    """Send the job's request; return boto3's stream of its answer."""
    answer = _client().invoke_endpoint_with_response_stream(
        EndpointName=job["endpoint"], ContentType="application/json", Body=body(job)
    )
    return answer["Body"]
