"""The mode ngram on the real engine: the target's own token ids, and drafts where the text repeats itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from peagle_sm.core.spec.modes import Mode
from peagle_sm.service import Endpoint
from scripts.bench.local_stack import LocalStack
from tests.e2e.tiny_code import spec_of

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

MODES: tuple[Mode, ...] = ("none", "ngram")
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
_FUNCTION = "def total(values):\n    result = 0\n    for value in values:\n        result += value\n"
REPEATING = [f"{_FUNCTION}\n\n{_FUNCTION}\n\ndef {name}(values):\n" for name in ("total", "summed", "added")]


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        stack.deploy({mode: spec_of(mode) for mode in MODES})
        yield stack
        assert stack.delete_all() == []


def answers(stack: LocalStack, mode: Mode) -> list[dict[str, Any]]:
    runtime = stack.session.client("sagemaker-runtime")
    given = []
    for prompt in REPEATING:
        body = {"prompt": prompt, "max_tokens": 48, "temperature": 0, "return_token_ids": True}
        answer = runtime.invoke_endpoint(
            EndpointName=f"tiny-{mode}", ContentType="application/json", Body=json.dumps(body).encode()
        )
        given.append(json.loads(answer["Body"].read()))
    return given


def test_the_token_ids_are_the_targets_and_drafts_are_accepted(stack: LocalStack) -> None:
    plain, drafted = answers(stack, "none"), answers(stack, "ngram")
    assert [each["choices"][0]["token_ids"] for each in drafted] == [
        each["choices"][0]["token_ids"] for each in plain
    ]
    page = Endpoint("tiny-ngram", stack.session).metrics(None)
    lines = [line for line in page.splitlines() if line.startswith(_ACCEPTED)]
    assert sum(float(line.rpartition(" ")[2]) for line in lines) > 0
