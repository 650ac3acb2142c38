"""pause, resume and keep against a real local server with scripted engines, as a user types them."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.slow


def test_off_and_on_again(peagle: Run, deployed: str) -> None:
    result = peagle("pause", deployed, answers="y\n")
    assert result.exit_code == 0, result.stderr
    assert "demo is InService and costs 0.00 USD/hour" in result.stderr
    assert "Pause demo? It stops answering. [y/N]" in result.stderr
    assert result.stdout.startswith("demo is off: it costs nothing\nkept     endpoint-config/demo-")
    assert "resume   peagle-sm resume demo --local-port" in result.stdout
    (row,) = json.loads(peagle("list", "--format", "json").stdout)
    assert (row["status"], row["off_why"]) == ("Paused", "by hand")
    assert "off          by hand, since" in peagle("status", deployed).stdout
    assert peagle("invoke", deployed, "-p", "x").exit_code != 0
    result = peagle("resume", deployed, "--unguarded", answers="y\n")
    assert result.exit_code == 0, result.stderr
    assert "Resume demo for 0.00 USD/hour? [y/N]" in result.stderr
    assert "status       InService" in result.stdout
    assert peagle("invoke", deployed, "-p", "x").stdout.startswith("token0 ")
    again = peagle("resume", deployed, "--yes", "--format", "quiet")
    assert (again.exit_code, again.stdout) == (0, "demo\n")


def test_each_line_is_json_and_a_no_changes_nothing(peagle: Run, deployed: str) -> None:
    result = peagle("pause", deployed, answers="n\n")
    assert result.exit_code == 3
    assert result.stderr.endswith("Nothing was paused: it was not confirmed.\n")
    result = peagle("pause", deployed, "--yes", "--format", "json")
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert lines[0]["pausing"]["name"] == "demo"
    assert lines[-1]["progress"]["phase"] == "done"
    assert json.loads(result.stdout)["was_off"] is False
    result = peagle("resume", deployed, "--unguarded", "--yes", "--format", "json")
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert lines[0]["resume"]["usd_per_hour"] == 0.0
    assert lines[-1]["progress"]["phase"] == "ready"
    assert json.loads(result.stdout)["status"] == "InService"


def test_keeping_moves_the_end(peagle: Run, deployed: str) -> None:
    before = json.loads(peagle("status", deployed, "--format", "json").stdout)["expires_at"]
    result = peagle("keep", deployed, "1d", answers="y\n")
    assert result.exit_code == 0, result.stderr
    assert "no guard is installed: only the lifetime schedule deletes it" in result.stderr
    assert "Keep demo? [y/N]" in result.stderr
    after = json.loads(peagle("status", deployed, "--format", "json").stdout)["expires_at"]
    assert after > before
    lease = json.loads(peagle("keep", deployed, "2h", "--yes", "--format", "json").stdout)
    assert (lease["expires_at"], lease["expired_at"], lease["guarded"]) == (after, after, False)


@pytest.mark.parametrize("command", ["pause", "resume", "keep"])
def test_without_a_terminal_and_yes_nothing_happens(peagle: Run, deployed: str, command: str) -> None:
    result = peagle(command, deployed, *(["2h"] if command == "keep" else []))
    assert result.exit_code == 2
    assert "--yes was not given" in result.stderr
    assert json.loads(peagle("list", "--format", "json").stdout)[0]["status"] == "InService"
