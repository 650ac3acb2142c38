"""K by load on the real engine: from `tune` to a deployed table.

What is deterministic is asserted: the table in force, every request answered, identical outputs, an interval.
How fast anything was is not: that decides whether `tune` writes a table or one K, so both are followed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.results.result_file import read
from peagle_sm.core.spec.endpoint_spec import k_at
from peagle_sm.service import connect
from peagle_sm.service.spec_to_plan import load_spec
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


def test_from_tune_to_a_deployed_table_in_two_commands(stack: LocalStack, tmp_path: Path) -> None:
    port = (stack.session.local_url or "").rpartition(":")[2]
    spec, out = tmp_path / "peagle.yaml", tmp_path / "tune.jsonl"

    def peagle(*arguments: str | Path) -> Any:
        result = run(*arguments, "--local-port", port, "--format", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    run("init", "tiny-code", "--output", spec)
    size = ("--max-k", "3", "--requests", "4", "--max-tokens", "16")
    told = peagle("tune", spec, "--loads", "1,4", *size, "--out", out, "--unguarded", "--yes")
    peagle("deploy", spec, "--unguarded", "--yes")

    (table,) = told["tables"]
    (record,) = read(out).tables
    written = load_spec(spec)
    rows = written.speculation.num_speculative_tokens_per_batch_size
    if table["accepted"]:
        assert rows == record.rows
        k_alone = k_at(record.rows, 1)
        assert len(table["checks"]) == 3  # the steps, c=1 and c=4
        assert all(check["verdict"] == "as fast" for check in table["checks"])
    else:
        assert rows is None
        k_alone = table["fixed_k"]
        assert written.speculation.num_speculative_tokens == k_alone
    for check in table["checks"]:
        assert check["low"] <= check["value"] <= check["high"]
        assert 0 < check["identical_outputs"] <= check["compared_outputs"]
    assert {one["mode"] for one in table["alternatives"]} == {"none"}

    endpoint = connect(written.name, session=stack.session)
    assert endpoint.status().summary.status == "InService"
    before = draft_counts(endpoint)
    for _ in endpoint.stream({"prompt": "def total(values):\n    ", "max_tokens": 24, "ignore_eos": True}):
        pass
    found = {name: value - before.get(name, 0.0) for name, value in draft_counts(endpoint).items()}
    assert (found.get("drafts", 0.0) > 0) == (k_alone > 0)
    assert found.get("draft_tokens", 0.0) == k_alone * found.get("drafts", 0.0)
    stack.delete([written.name])
