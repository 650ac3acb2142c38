"""langchain-openai: ChatOpenAI, at the OpenAI route or at the proxy of `peagle-sm serve`."""

from collections.abc import Iterator

from harness import Job, serve  # type: ignore[import-not-found]
from langchain_openai import ChatOpenAI


def read(job: Job) -> Iterator[str]:
    chat = ChatOpenAI(
        base_url=job["openai_url"], api_key=job["api_key"], model=job["model"], **job["options"]
    )
    for part in chat.stream(job["prompt"]):
        yield part.text


if __name__ == "__main__":
    serve(read)
