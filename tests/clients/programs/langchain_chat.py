"""langchain-aws: ChatSagemakerEndpoint, whose stream goes through its ChatLineIterator."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from harness import Job, serve, text_of  # type: ignore[import-not-found]
from langchain_aws.chat_models.sagemaker_endpoint import ChatModelContentHandler, ChatSagemakerEndpoint
from langchain_core.messages import AIMessageChunk


class Handler(ChatModelContentHandler):  # type: ignore[misc]
    """What its documentation leaves to the user."""

    content_type = "application/json"
    accepts = "application/json"

    def transform_input(self, prompt: Any, model_kwargs: dict[str, Any]) -> bytes:
        return json.dumps({"messages": prompt, **model_kwargs}).encode()

    def transform_output(self, output: Any) -> AIMessageChunk:
        return AIMessageChunk(content=text_of(output))


@cache
def model(endpoint: str) -> ChatSagemakerEndpoint:
    return ChatSagemakerEndpoint(endpoint_name=endpoint, region_name="us-east-1", content_handler=Handler())


def read(job: Job) -> Iterator[str]:
    for chunk in model(job["endpoint"]).stream(job["prompt"], stream=True, **job["options"]):
        yield str(chunk.content)


if __name__ == "__main__":
    serve(read)
