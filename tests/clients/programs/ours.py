"""peagle_sm: Endpoint.stream, or Endpoint.astream for a job that says `asynchronous`."""

from collections.abc import AsyncIterator, Iterator
from functools import cache

from harness import Job, drained, messages, serve  # type: ignore[import-not-found]

import peagle_sm


@cache
def endpoint(name: str, url: str) -> peagle_sm.Endpoint:
    return peagle_sm.connect(name, session=peagle_sm.make_session(local=peagle_sm.LocalTarget(url)))


def read_sync(job: Job) -> Iterator[str]:
    client = endpoint(job["endpoint"], job["url"])
    with client.stream(messages=messages(job), **job["options"]) as stream:
        for chunk in stream:
            yield chunk.text


async def _texts(job: Job) -> AsyncIterator[str]:
    client = endpoint(job["endpoint"], job["url"])
    async with client.astream(messages=messages(job), **job["options"]) as stream:
        async for chunk in stream:
            yield chunk.text


def read(job: Job) -> Iterator[str]:
    yield from drained(_texts(job)) if job["asynchronous"] else read_sync(job)


if __name__ == "__main__":
    serve(read)
