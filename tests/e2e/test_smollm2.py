"""SmolLM2-135M-Instruct on the real engine: the first deploy passes its preflight; it answers in words."""

from __future__ import annotations

import sys

import pytest

from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from scripts.bench.local_stack import LocalStack

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_it_is_fetched_for_its_first_deploy_and_answers() -> None:
    spec = EndpointSpec(name="smollm2", model="smollm2-135m-instruct", speculation={"mode": "none"})
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        endpoint = stack.deploy({"smollm2": spec})["smollm2"]
        # Far from a tie; the capital of France is one: -1.76 against -2.01 for another first token.
        question = [{"role": "user", "content": "Write a Python function that reverses a string."}]
        completion = endpoint.invoke(messages=question, max_tokens=40, temperature=0)
        assert "[::-1]" in completion.text
        assert stack.delete_all() == []
