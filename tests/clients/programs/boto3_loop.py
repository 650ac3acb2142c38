"""boto3 alone, in the loop that aws-samples/llm_model_hub shows (backend/examples/invoke_endpoint.py)."""

import contextlib
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import boto3
from harness import Job, body, serve  # type: ignore[import-not-found]


@cache
def client() -> Any:
    return boto3.client("sagemaker-runtime")


def read(job: Job) -> Iterator[str]:
    answer = client().invoke_endpoint_with_response_stream(
        EndpointName=job["endpoint"], ContentType="application/json", Body=body(job)
    )
    buffer = ""
    for event in answer["Body"]:
        buffer += event["PayloadPart"]["Bytes"].decode()
        read_until = 0
        # As there: `^` without MULTILINE, so one event a part; what cannot be read is passed over.
        for match in re.finditer(r"^data:\s*(.+?)(\n\n)", buffer):
            with contextlib.suppress(json.JSONDecodeError, KeyError, IndexError):
                data = json.loads(match[1].strip())
                read_until = match.end()
                yield data["choices"][0]["delta"]["content"]
        buffer = buffer[read_until:]


if __name__ == "__main__":
    serve(read)
