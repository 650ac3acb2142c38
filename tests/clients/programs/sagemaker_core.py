"""sagemaker-core's LineIterator around boto3's stream."""

from collections.abc import Iterator

from boto3_answer import events  # type: ignore[import-not-found]
from harness import Job, serve, text_of  # type: ignore[import-not-found]
from sagemaker.core.iterators import LineIterator


def read(job: Job) -> Iterator[str]:
    for line in LineIterator(events(job)):
        yield text_of(line)


if __name__ == "__main__":
    serve(read)
