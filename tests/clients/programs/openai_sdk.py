"""The OpenAI SDK: at the endpoint's OpenAI route, or at the proxy of `peagle-sm serve`."""

from collections.abc import Iterator
from functools import cache

import openai
from harness import Job, messages, serve  # type: ignore[import-not-found]


@cache
def client(base_url: str, api_key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=base_url, api_key=api_key)


def read(job: Job) -> Iterator[str]:
    chat = client(job["openai_url"], job["api_key"]).chat.completions
    stream = chat.create(model=job["model"], messages=messages(job), stream=True, **job["options"])
    for chunk in stream:
        if chunk.choices:
            yield chunk.choices[0].delta.content or ""


if __name__ == "__main__":
    serve(read)
