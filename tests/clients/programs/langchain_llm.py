"""langchain-aws: SagemakerEndpoint, whose stream goes through its LineIterator."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from harness import Job, messages, serve, text_of  # type: ignore[import-not-found]
from langchain_aws.llms.sagemaker_endpoint import LLMContentHandler, SagemakerEndpoint


class Handler(LLMContentHandler):  # type: ignore[misc]
    """What its documentation leaves to the user."""

    content_type = "application/json"
    accepts = "application/json"

    def transform_input(self, prompt: str, model_kwargs: dict[str, Any]) -> bytes:
        return json.dumps({"messages": messages({"prompt": prompt}), **model_kwargs}).encode()

    def transform_output(self, output: Any) -> str:
        return str(text_of(output))


@cache
def model(endpoint: str) -> SagemakerEndpoint:
    return SagemakerEndpoint(endpoint_name=endpoint, region_name="us-east-1", content_handler=Handler())


def read(job: Job) -> Iterator[str]:
    yield from model(job["endpoint"]).stream(job["prompt"], stream=True, **job["options"])


if __name__ == "__main__":
    serve(read)
