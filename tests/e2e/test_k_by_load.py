"""K by load on the real engine: a deployed table drafts with the K of its row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peagle_sm.service import connect
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run
from tests.e2e.draft_counts import draft_counts

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        yield stack
        assert stack.delete_all() == []
    assert stack.left == []


def test_one_request_drafts_with_the_first_row(stack: LocalStack, tmp_path: Path) -> None:
    port = (stack.session.local_url or "").rpartition(":")[2]
    spec = tmp_path / "peagle.yaml"
    spec.write_text(
        "name: by-load\nmodel: tiny-code\nspeculation: {mode: p-eagle, num_speculative_tokens: 7, "
        "num_speculative_tokens_per_batch_size: [[1, 2, 3], [3, 1024, 7]]}\n"
    )
    deployed = run("deploy", spec, "--unguarded", "--yes", "--local-port", port)
    assert deployed.exit_code == 0, deployed.output
    endpoint = connect("by-load", session=stack.session)
    before = draft_counts(endpoint)
    for _ in endpoint.stream({"prompt": "def total(values):\n    ", "max_tokens": 24, "ignore_eos": True}):
        pass
    counts = {name: value - before.get(name, 0.0) for name, value in draft_counts(endpoint).items()}
    assert counts["drafts"] > 0
    assert counts["draft_tokens"] == 3 * counts["drafts"]
    stack.delete(["by-load"])
