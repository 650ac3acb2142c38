"""`peagle-sm guard` on the local server: its real stack and Lambda code, installed, run and removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.running import run
from tests.local.serving import Server

pytestmark = pytest.mark.slow


def _json(result: Any) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_from_installation_to_nothing_left(peagle: Run, server: Server, spec: Callable[..., str]) -> None:
    assert peagle("guard", "status").exit_code == 4

    created = _json(peagle("guard", "install", "--yes", "--email", "ops@example.com", "--format", "json"))
    assert created["action"] == "created"
    assert created["outputs"]["SwitchArn"].endswith(":function:peagle-guard-switch")
    assert _json(peagle("guard", "install", "--yes", "--format", "json"))["action"] == "unchanged"

    swept = _json(peagle("guard", "sweep", "--format", "json"))
    assert (swept["dry_run"], swept["endpoints"]) == (False, [])
    # One page, and one answer for the time.
    assert swept["calls"]["ListEndpoints"] == 2
    status = _json(peagle("guard", "status", "--format", "json"))
    assert status["current"]
    assert status["last_sweep_at"] is not None
    assert {alarm["name"] for alarm in status["alarms"]} == {
        "peagle-guard-errors",
        "peagle-guard-no-sweep",
        "peagle-guard-dead-letters",
    }

    deployed = peagle("deploy", spec("watched"), "--yes", "--format", "quiet")
    assert deployed.exit_code == 0, deployed.stderr
    dry = _json(peagle("guard", "sweep", "--dry-run", "--format", "json"))
    assert [(row["name"], row["owner"]) for row in dry["endpoints"]] == [("watched", "direct")], dry
    shown = peagle("guard", "sweep")
    assert (shown.exit_code, "watched" in shown.stdout) == (0, True)
    known = _json(peagle("guard", "status", "--format", "json"))
    assert [row["name"] for row in known["endpoints"]] == ["watched"]
    assert known["dead_letters"] == 0

    refused = peagle("guard", "uninstall", "--yes")
    assert refused.exit_code == 3
    assert "watched" in refused.stderr
    assert peagle("delete", "watched", "--yes").exit_code == 0
    assert _json(peagle("guard", "uninstall", "--yes", "--format", "json"))["bucket_removed"]

    assert not [
        one["FunctionName"]
        for one in server.client("lambda").list_functions()["Functions"]
        if one["FunctionName"].startswith("peagle-guard")
    ]
    assert "peagle-guard" not in server.client("dynamodb").list_tables()["TableNames"]
    roles = [one["RoleName"] for one in server.client("iam").list_roles()["Roles"]]
    assert not [
        name for name in roles if name.startswith(("peagle-guard", "peagle-execution", "peagle-scheduler"))
    ]
    assert not [
        one["Name"]
        for one in server.client("s3").list_buckets()["Buckets"]
        if one["Name"].startswith("peagle-guard")
    ]


def test_declining_changes_nothing(server: Server) -> None:
    port = str(server.status.port)
    result = run("guard", "install", "--local-port", port, answers="n\n")
    assert result.exit_code == 3
    assert "Nothing was changed" in result.stderr
    assert run("guard", "status", "--local-port", port).exit_code == 4
