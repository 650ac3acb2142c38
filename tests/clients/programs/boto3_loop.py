"""boto3 alone, in the loop that aws-samples/llm_model_hub shows (backend/examples/invoke_endpoint.py)."""

import contextlib
import json
import re
from collections.abc import Iterator

from boto3_answer import events  # type: ignore[import-not-found]
from harness import Job, serve  # type: ignore[import-not-found]


def read(job: Job) -> Iterator[str]:
    buffer = ""
    for event in events(job):
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
