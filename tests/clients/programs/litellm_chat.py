"""litellm's provider `sagemaker_chat`; for `asynchronous` jobs the half that its proxy uses.

With ``instead``, what works in its place: ``whole`` asks for no stream, ``openai`` goes to the OpenAI route.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import litellm
from harness import Job, drained, messages, serve  # type: ignore[import-not-found]


def request(job: Job, call: str = "invocations-response-stream") -> dict[str, Any]:
    return {
        "model": f"sagemaker_chat/{job['endpoint']}",
        "messages": messages(job),
        "stream": call != "invocations",
        "aws_region_name": "us-east-1",
        "sagemaker_base_url": f"{job['url']}/endpoints/{job['endpoint']}/{call}",
        **job["options"],
    }


def request_openai(job: Job) -> dict[str, Any]:
    place = {"api_base": job["openai_url"], "api_key": job["api_key"], "model": f"openai/{job['model']}"}
    return {"messages": messages(job), "stream": True, **place, **job["options"]}


def read_sync(job: Job) -> Iterator[str]:
    if job.get("instead") == "whole":
        yield litellm.completion(**request(job, "invocations")).choices[0].message.content
        return
    for chunk in litellm.completion(**request_openai(job) if job.get("instead") else request(job)):
        yield chunk.choices[0].delta.content or ""


async def _texts(job: Job) -> AsyncIterator[str]:
    async for chunk in await litellm.acompletion(
        **request_openai(job) if job.get("instead") else request(job)
    ):
        yield chunk.choices[0].delta.content or ""


def read(job: Job) -> Iterator[str]:
    yield from drained(_texts(job)) if job["asynchronous"] else read_sync(job)


if __name__ == "__main__":
    serve(read)
