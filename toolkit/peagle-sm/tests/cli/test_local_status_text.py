"""What `local status` says of the engines."""

from __future__ import annotations

from typing import Any

from peagle_sm.cli.commands.local import render_local
from sagemaker_local.process.status import LocalStatus

ENGINE: dict[str, Any] = {
    "endpoint": "arms",
    "status": "InService",
    "engine_version": "0.32.0",
    "image": "r/vllm:0.32.0-cpu",
    "pid": 7,
    "overrides": ["port"],
}


def _shown(*engines: dict[str, Any]) -> str:
    places = {"endpoint_url": "http://localhost:1", "region": "us-east-1", "account": "123456789012"}
    roles = {"role_arn": "role", "scheduler_role_arn": "scheduler-role", "image_uris": {}, "artifacts": {}}
    process = {"weights": "there", "run_id": "run", "pid": 1, "port": 1, "log_path": "log"}
    clock = {"clock": "2026-11-20T08:00:00+00:00", "clock_ahead_s": 0.0}
    status = LocalStatus(**places, **roles, **process, **clock, engines=list(engines))  # type: ignore[arg-type]
    return render_local(status).partition("engines")[2]


def test_an_engine_names_its_endpoint_and_the_component_that_it_runs() -> None:
    lines = _shown(
        ENGINE, {**ENGINE, "component": "arm-p-eagle"}, {"endpoint": "bare", "status": "Creating"}
    ).splitlines()
    assert [line.strip() for line in lines] == [
        "arms: InService, vLLM 0.32.0 (image: 0.32.0-cpu), process 7",
        "port",
        "arms, component arm-p-eagle: InService, vLLM 0.32.0 (image: 0.32.0-cpu), process 7",
        "port",
        "bare: Creating, vLLM not running yet (image: unknown), process none",
    ]
