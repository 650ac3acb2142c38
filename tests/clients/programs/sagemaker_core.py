"""sagemaker-core's LineIterator around boto3's stream."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import boto3
from harness import Job, body, serve, text_of  # type: ignore[import-not-found]
from sagemaker.core.iterators import LineIterator


@cache
def client() -> Any:
    return boto3.client("sagemaker-runtime")


def read(job: Job) -> Iterator[str]:
    answer = client().invoke_endpoint_with_response_stream(
        EndpointName=job["endpoint"], ContentType="application/json", Body=body(job)
    )
    for line in LineIterator(answer["Body"]):
        yield text_of(line)


if __name__ == "__main__":
    serve(read)
