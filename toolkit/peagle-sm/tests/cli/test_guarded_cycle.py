"""The commands with the guard really installed on the local server: its table holds what they write."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from peagle_sm.core.resources.alarm import update_alarms
from tests.cli.conftest import Run
from tests.local.serving import Server, eventually

pytestmark = pytest.mark.slow


def test_a_guarded_endpoint_is_kept_paused_resumed_and_forgotten(
    peagle: Run, spec: Callable[..., str], server: Server
) -> None:
    cloudwatch = server.client("cloudwatch")
    try:
        deployed = peagle("deploy", spec(), "--yes")
        assert deployed.exit_code == 0, deployed.stderr
        assert (
            "note: no guard is installed; installing it (it costs nothing in the local SageMaker)"
            in deployed.stderr
        )
        assert peagle("guard", "status").exit_code == 0
        kept = peagle("keep", "demo", "1d", "--yes")
        assert kept.exit_code == 0, kept.stderr
        assert "demo is kept until" in kept.stdout
        (row,) = json.loads(peagle("list", "--format", "json").stdout)
        assert row["keep_until"] == row["expires_at"]
        swept = peagle("guard", "sweep", "--format", "json")
        assert swept.exit_code == 0, swept.stderr
        for alarm in update_alarms("demo", 2.0):  # as a killed promotion leaves them
            cloudwatch.put_metric_alarm(**(alarm.parameters or {}))
        assert peagle("guard", "sweep").exit_code == 0
        assert len(cloudwatch.describe_alarms(AlarmNamePrefix="peagle-demo-")["MetricAlarms"]) == 2
        paused = peagle("pause", "demo", "--yes")
        assert paused.exit_code == 0, paused.stderr
        settled = peagle("guard", "sweep", "--format", "json")
        assert settled.exit_code == 0, settled.stderr
        assert cloudwatch.describe_alarms(AlarmNamePrefix="peagle-demo-")["MetricAlarms"] == []
        assert json.loads(peagle("list", "--format", "json").stdout)[0]["off_why"] == "by hand"
        resumed = peagle("resume", "demo", "--yes", "--format", "quiet")
        assert resumed.exit_code == 0, resumed.stderr
        assert json.loads(peagle("list", "--format", "json").stdout)[0]["status"] == "InService"
        deleted = peagle("delete", "demo", "--yes")
        assert deleted.exit_code == 0, deleted.stderr
        assert peagle("list", "--format", "quiet").stdout == ""
    finally:
        peagle("delete", "*", "--yes", "--format", "quiet")
        removed = peagle("guard", "uninstall", "--yes", "--format", "quiet")
    assert removed.exit_code == 0, removed.stderr


@pytest.mark.parametrize(
    "field",
    ["lifecycle: {idle: scale-to-zero}", "autoscaling: {max_instances: 2}"],
    ids=["scale-to-zero", "autoscaling"],
)
def test_the_guard_turns_an_endpoint_off_that_scales_without_a_stack(
    peagle: Run, spec: Callable[..., str], server: Server, field: str
) -> None:
    sagemaker, scaling = server.client("sagemaker"), server.client("application-autoscaling")
    ids = ["inference-component/demo", "endpoint/demo/variant/AllTraffic"]

    def targets() -> int:
        scalable_targets = scaling.describe_scalable_targets(ServiceNamespace="sagemaker", ResourceIds=ids)
        return len(scalable_targets["ScalableTargets"])

    def switch() -> str:
        payload = json.dumps({"action": "off", "endpoint": "demo", **which}).encode()
        answer = server.client("lambda").invoke(FunctionName="peagle-guard-switch", Payload=payload)
        return str(json.loads(answer["Payload"].read())["state"])

    path = Path(spec())
    path.write_text(f"{path.read_text()}{field}\n")
    try:
        deployed = peagle("deploy", str(path), "--yes")
        assert deployed.exit_code == 0, deployed.stderr
        assert targets() == 1
        endpoint = sagemaker.describe_endpoint(EndpointName="demo")
        expires = endpoint["CreationTime"] + timedelta(days=2)  # by the server's clock
        which = {
            "arn": endpoint["EndpointArn"],
            "created_at": endpoint["CreationTime"].isoformat(),
            "expires_at": expires.isoformat(),
            "last_seen_at": expires.isoformat(),
        }
        eventually(lambda: switch() == "done")
        assert targets() == 0
        assert sagemaker.list_inference_components(EndpointNameEquals="demo")["InferenceComponents"] == []
        assert (
            server.client("cloudwatch").describe_alarms(AlarmNamePrefix="Peagle-demo")["MetricAlarms"] == []
        )
        assert server.client("scheduler").list_schedules(NamePrefix="peagle-demo-")["Schedules"] == []
    finally:
        peagle("delete", "*", "--yes", "--format", "quiet")
        removed = peagle("guard", "uninstall", "--yes", "--format", "quiet")
    assert removed.exit_code == 0, removed.stderr


def test_tune_offers_the_guard_as_deploy_does(peagle: Run, spec: Callable[..., str]) -> None:
    path = spec("demo", SCRIPT_INVOKE="chat", SCRIPT_CHUNK_DELAY="0.01", SCRIPT_CHUNKS="6")
    size = ("--requests", "4", "--concurrency", "1", "--max-k", "2")
    try:
        tuned = peagle("tune", path, *size, "--by", "deployments", "--yes", "--no-write", "--out", "r.jsonl")
        assert tuned.exit_code == 0, tuned.stderr
        assert "note: no guard is installed; installing it" in tuned.stderr
        assert peagle("guard", "status").exit_code == 0
        assert peagle("list", "--format", "quiet").stdout == ""
    finally:
        removed = peagle("guard", "uninstall", "--yes", "--format", "quiet")
    assert removed.exit_code == 0, removed.stderr
