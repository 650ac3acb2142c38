"""strands-agents: SageMakerAIModel, which its agents read through; for ``instead``, its OpenAIModel."""

from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any

import openai
from harness import Job, drained, serve  # type: ignore[import-not-found]
from strands.models.openai import OpenAIModel
from strands.models.sagemaker import SageMakerAIModel


@cache
def model(endpoint: str, options: tuple[tuple[str, object], ...]) -> SageMakerAIModel:
    return SageMakerAIModel(
        endpoint_config={"endpoint_name": endpoint, "region_name": "us-east-1"}, payload_config=dict(options)
    )


def openai_model(job: Job) -> OpenAIModel:
    # Without tools it sends an empty list of them, which vLLM refuses.
    params = {"tools": openai.omit, **job["options"]}
    place = {"base_url": job["openai_url"], "api_key": job["api_key"]}
    return OpenAIModel(client_args=place, model_id=job["model"], params=params)


async def _texts(job: Job) -> AsyncIterator[str]:
    request: Any = openai_model(job) if job.get("instead") else None
    request = request or model(job["endpoint"], tuple(job["options"].items()))
    async for event in request.stream([{"role": "user", "content": [{"text": job["prompt"]}]}]):
        yield event.get("contentBlockDelta", {}).get("delta", {}).get("text", "")


def read(job: Job) -> Iterator[str]:
    yield from drained(_texts(job))


if __name__ == "__main__":
    serve(read)
