"""`bench --managed` on the local SageMaker: the real AIPerf, its transport from this package, one job."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.benchmark.endpoint_arm import describe_endpoint
from peagle_bench.benchmark.managed import ManagedDependencies, run_managed
from peagle_bench.benchmark.managed_files import find_job_resources
from peagle_bench.benchmark.plan import BenchPlan
from peagle_bench.results.records import Load
from peagle_bench.workloads import load_workload
from peagle_sm.aws.session.session import LocalTarget, make_session
from peagle_sm.service.progress import Pacing
from tests.local.serving import Server

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
CHUNKS = 6


def body(number: int, **script: str) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": f"Question {number}?"}], "max_tokens": CHUNKS}
    return {**asked, "temperature": 0, **({"script": script} if script else {})}


def test_a_job_measures_the_endpoint_and_counts_what_breaks(server: Server, tmp_path: Path) -> None:
    name = server.deploy(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=str(CHUNKS), SCRIPT_CHUNK_DELAY="0.01")
    bodies = [body(number) for number in range(10)]
    bodies[3] = body(3, SCRIPT_INVOKE="cut", SCRIPT_CHUNKS="2")
    bodies[7] = body(7, SCRIPT_INVOKE="status:500")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(one) + "\n" for one in bodies))
    session = make_session(local=LocalTarget.from_status(server.status.to_dict()))
    described = describe_endpoint(session, name)
    told: list[str] = []
    around = ManagedDependencies(
        progress=lambda event: told.append(event.message),
        pacing=Pacing(poll_s=0.2),
        provenance=dict,
        now=lambda: datetime.now(UTC),
        token=lambda: "0123456789",
    )
    outcome = run_managed(
        session,
        described,
        load_workload(str(prompts)),
        BenchPlan((Load("closed", concurrency=2),), warm_up_requests=0),
        find_job_resources(session, name, stand_in_weights=described.stand_in_weights),
        tmp_path / "results.jsonl",
        around,
    )
    (point,) = outcome.results.points
    assert (point.requests, point.errors) == (10, {"StreamError": 1, "ModelError": 1})
    assert point.output_tokens == 8 * CHUNKS
    assert point.otps > 0
    good = [record for record in outcome.results.requests if record.error is None]
    assert {record.chunks for record in good} == {CHUNKS}
    assert point.itl_ms is not None
    assert point.itl_ms.count == 8 * (CHUNKS - 1)
    (cut,) = (record for record in outcome.results.requests if record.error == "StreamError")
    assert "StreamBroken" in (cut.error_message or "")
    assert any("error rate 20.00% is above 1%" in note for note in outcome.notes)
    assert any("INFO" in line for line in told), "AIPerf's own log is shown"
    sagemaker = server.client("sagemaker")
    assert sagemaker.list_ai_workload_configs()["AIWorkloadConfigs"] == []
    bucket = f"sagemaker-us-east-1-{server.status.account}"
    (kept,) = server.client("s3").list_objects_v2(Bucket=bucket)["Contents"]
    assert kept["Key"].endswith("/output/output.tar.gz")
