"""`peagle-sm update` against a real local server with scripted engines, as a user types it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.local.serving import Server

Spec = Callable[..., str]
pytestmark = pytest.mark.slow


def _plain(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"demo-[0-9a-f]{8}", "demo-HASH", text)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TIME", text)


def test_an_update_in_place_is_shown_asked_and_followed(peagle: Run, spec: Spec, deployed: str) -> None:
    changed = spec(SCRIPT_CHUNKS="2")
    tried = peagle("update", changed, "--dry-run", "--format", "quiet")
    assert (tried.exit_code, tried.stdout) == (0, "PrimaryContainer.Environment.SCRIPT_CHUNKS\n")
    document = json.loads(peagle("update", changed, "--dry-run", "--format", "json").stdout)
    assert (document["strategy"], document["changes"][0]["after"]) == ("in-place", "2")
    declined = peagle("update", changed, "--unguarded", answers="n\n")
    assert declined.exit_code == 3
    assert "was not updated" in declined.stderr
    result = peagle("update", changed, "--unguarded", answers="y\n")
    assert result.exit_code == 0, result.stderr
    shown = _plain(result.stderr)
    assert (
        "update       demo: config demo-HASH -> demo-HASH\n"
        "changes      PrimaryContainer.Environment.SCRIPT_CHUNKS: (none) -> 2\n"
        "how          in-place: a second fleet starts; the first one serves until the second is in service\n"
        "price        0.00 USD/hour afterwards (local: nothing is billed)\n"
        "meanwhile    0.00 USD/hour extra while both fleets run (at most 4 h or 0.00 USD)\n"
        "rollback on  alarm peagle-demo-update (the execution role needs cloudwatch:DescribeAlarms; "
        "the guard's role has it)\n"
        "lifetime     deleted at TIME even if in use (before: TIME)\n"
    ) in shown
    assert "Update demo in-place? [y/N]" in shown
    assert "status       InService" in result.stdout
    assert peagle("invoke", deployed, "-p", "x").stdout == "token0 token1 \n"
    (row,) = json.loads(peagle("list", "--format", "json").stdout)
    assert len(row["resources"]) == 4
    again = peagle("update", changed, "--unguarded", "--yes", "--format", "quiet")
    assert (again.exit_code, again.stdout) == (0, "demo\n")


def test_a_rollback_is_a_failure_and_the_old_config_serves(peagle: Run, spec: Spec, deployed: str) -> None:
    broken = spec(SCRIPT_PING="never", SCRIPT_EXIT_AFTER="0.1", SCRIPT_EXIT_LINE="ValueError: no such head")
    result = peagle("update", broken, "--unguarded", "--yes", "--format", "json")
    assert result.exit_code == 7
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert _plain(error["message"]) == (
        "The update of endpoint demo failed: SageMaker rolled back. Endpoint demo still runs its old config "
        "demo-HASH (InService)."
    )
    assert any("no such head" in line for line in error["details"]["log_tail"])
    assert peagle("invoke", deployed, "-p", "x").stdout.startswith("token0 ")
    (row,) = json.loads(peagle("list", "--format", "json").stdout)
    assert (row["status"], len(row["resources"])) == ("InService", 4)


def test_off_update_on_and_back_to_the_old_one_when_it_fails(peagle: Run, spec: Spec, deployed: str) -> None:
    broken = spec(SCRIPT_PING="never", SCRIPT_EXIT_AFTER="0.1", SCRIPT_EXIT_LINE="ValueError: no such head")
    options = ("--strategy", "off-update-on", "--unguarded", "--yes")
    failed = peagle("update", broken, *options)
    assert failed.exit_code == 7
    assert "`peagle-sm resume demo --local-port" in failed.stderr
    refused = peagle("update", broken, "--unguarded", "--yes")
    assert refused.exit_code == 3
    assert "endpoint demo is off" in refused.stderr
    assert peagle("update", spec(SCRIPT_CHUNKS="1"), *options).exit_code == 0
    assert peagle("invoke", deployed, "-p", "x").stdout == "token0 \n"
    (row,) = json.loads(peagle("list", "--format", "json").stdout)
    assert (row["status"], len(row["resources"])) == ("InService", 4)


def test_where_only_tags_differ_nothing_is_started(peagle: Run, spec: Spec, deployed: str) -> None:
    path = spec()
    with open(path, "a", encoding="utf-8") as file:
        file.write("lifecycle:\n  idle_minutes: 25\n  max_lifetime_hours: 2\n")
    created = json.loads(peagle("status", deployed, "--format", "json").stdout)["created_at"]
    result = peagle("update", path, "--unguarded", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "Tags.peagle-sm:idle-minutes: 60 -> 25" in result.stderr
    assert "nothing is started" in result.stderr
    document = json.loads(peagle("status", deployed, "--format", "json").stdout)
    assert (document["idle_minutes"], document["created_at"]) == (25, created)


def test_what_is_not_there_is_not_updated(peagle: Run, spec: Spec) -> None:
    result = peagle("update", spec(), "--unguarded", "--yes")
    assert result.exit_code == 4
    assert "there is nothing to update" in result.stderr


VARIANT = "endpoint/demo/variant/AllTraffic"


def _with_type(path: str, instance_type: str) -> str:
    file = Path(path)
    file.write_text(f"{file.read_text()}placement: {{instance_types: [{instance_type}]}}\n")
    return path


def test_an_update_keeps_the_instance_count_that_runs_unless_the_spec_changes_it(
    peagle: Run, spec: Spec, deployed: str, server: Server
) -> None:
    sagemaker = server.client("sagemaker")
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName=deployed,
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 2}],
    )
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=deployed, WaiterConfig={"Delay": 1})
    result = peagle("update", spec(SCRIPT_CHUNKS="2"), "--unguarded", "--yes", "--format", "quiet")
    assert result.exit_code == 0, result.stderr
    (variant,) = sagemaker.describe_endpoint(EndpointName=deployed)["ProductionVariants"]
    assert variant["DesiredInstanceCount"] == 2
    fewer = Path(spec(SCRIPT_CHUNKS="3"))
    fewer.write_text(f"{fewer.read_text()}placement: {{instance_count: 3}}\n")
    result = peagle("update", str(fewer), "--unguarded", "--yes", "--format", "quiet")
    assert result.exit_code == 0, result.stderr
    (variant,) = sagemaker.describe_endpoint(EndpointName=deployed)["ProductionVariants"]
    assert variant["DesiredInstanceCount"] == 3


def test_another_instance_type_is_refused_while_application_auto_scaling_has_the_endpoint(
    peagle: Run, spec: Spec, deployed: str, server: Server
) -> None:
    scaling = server.client("application-autoscaling")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": VARIANT,
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=2)
    changed = _with_type(spec(), "ml.c7i.4xlarge")
    refused = peagle("update", changed, "--unguarded", "--yes")
    assert refused.exit_code == 3, refused.stderr
    message = " ".join(refused.stderr.split())
    assert "endpoint demo is a target of Application Auto Scaling" in message
    assert f"--resource-id {VARIANT}" in message
    scaling.deregister_scalable_target(**target)
    result = peagle("update", changed, "--unguarded", "--yes", "--format", "quiet")
    assert result.exit_code == 0, result.stderr
