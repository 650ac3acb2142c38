"""K by load on the real engine: a table beside its fixed K on a trace, and from `tune` to a deployed table.

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
from peagle_bench.tune.arms import arm_spec, table_spec
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Row, ServingSpec, k_at
from peagle_sm.service import connect
from peagle_sm.service.spec_to_plan import load_spec
from sagemaker_local.engine.settings import DTYPE_SWITCH
from scripts.bench.comparison import human_eval, spec_of
from scripts.bench.loads.trace import document, draft_counts, run_trace, text
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

ROWS: tuple[Row, ...] = ((1, 2, 7), (3, 1024, 3))
STEPS = (1, 2, 4, 8, 4, 2, 1)


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        yield stack
        assert stack.delete_all() == []
    assert stack.left == []


def exact(spec: EndpointSpec) -> EndpointSpec:
    """In float32: in bfloat16 the shape of a batch may decide between two tokens that are all but equal."""
    return spec.model_copy(update={"serving": ServingSpec(env={**spec.serving.env, DTYPE_SWITCH: "float32"})})


def test_a_table_beside_its_fixed_k_on_a_trace(stack: LocalStack, tmp_path: Path) -> None:
    base = spec_of("p-eagle")
    specs = {"table": exact(table_spec(base, "p-eagle", ROWS)), "fixed": exact(arm_spec(base, "p-eagle", 5))}
    endpoints = stack.deploy(specs)
    workload = human_eval(16, max_tokens=32, seed=0)
    path = tmp_path / "trace.jsonl"
    # One request in each step for each in flight.
    trace = run_trace(stack, endpoints, workload, path, say=print, steps=STEPS, blocks=2, requests=sum(STEPS))
    stack.delete([endpoint.name for endpoint in endpoints.values()])

    assert trace.sent == 2 * 4 * sum(STEPS)
    assert trace.failed == 0, text(trace, ("table", "fixed"))
    assert trace.identical == trace.compared == 2 * 2 * sum(STEPS), text(trace, ("table", "fixed"))
    assert trace.is_sound
    # The engine's own counters: the fixed K in every step, and both rows of the table.
    assert trace.drafted["fixed"] == 5
    assert trace.drafted["table"] is not None
    assert 3 < trace.drafted["table"] < 7
    for ratio in (trace.ratio, *trace.by_load.values()):
        assert 0 < ratio.low <= ratio.value <= ratio.high
    assert set(trace.by_load) == set(STEPS)
    assert (trace.blocks, trace.verdict in ("holds", "does not hold", "not decided")) == (2, True)

    told = json.loads(json.dumps(document(trace, specs)))
    assert told["arms"]["table"]["table"] == [list(row) for row in ROWS]
    assert told["provenance"]["engine"][0]["engine_version"]
    assert told["provenance"]["machine"]["processor"]
    assert read(path).comparisons[0].load.label == "c=1 to 2 to 4 to 8 to 4 to 2 to 1"


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
