"""A command that a message suggests reaches the place that the message is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from peagle_sm.aws.control.guard_resources import RegisterEntry
from peagle_sm.cli.base import Settings, State
from peagle_sm.cli.commands.guard import render_guard_status, render_installed, render_sweep
from peagle_sm.core.guard import guard_price
from peagle_sm.service.guard.installation import InstallPlan, InstallReport
from peagle_sm.service.guard.status import GuardStatus, SweepReport
from tests.cli.running import run
from tests.cli.samples import NOW

OLD_GUARD = GuardStatus(
    region="us-east-1",
    stack_status="CREATE_COMPLETE",
    version="0.0.9",
    available="0.1.0",
    package="0a1b2c3d",
    current=False,
    renewal="peagle-sm guard install --local-port 7070",
    last_sweep_at=None,
    alarms=(),
    dead_letters=0,
    notices=(),
    endpoints=(),
    warnings=(),
)


@pytest.mark.parametrize(
    ("typed", "environ", "flags"),
    [
        ({}, {}, ""),
        ({"local": True}, {}, " --local"),
        ({}, {"PEAGLE_SM_LOCAL": "1"}, " --local"),
        ({}, {"PEAGLE_SM_LOCAL_PORT": "7070"}, " --local"),
        ({}, {"PEAGLE_SM_LOCAL_PORT": "7070", "PEAGLE_SM_LOCAL": "0"}, ""),
        ({"local": False}, {"PEAGLE_SM_LOCAL_PORT": "7070"}, ""),
        ({"local": True, "local_port": 7070}, {}, " --local-port 7070"),
        ({"profile": "lab", "region": "eu-west-1"}, {}, " --profile lab --region eu-west-1"),
    ],
)
def test_the_options_that_were_typed_stay(typed: dict[str, Any], environ: dict[str, str], flags: str) -> None:
    assert State(Settings(**typed), environ=environ).flags == flags


@pytest.mark.parametrize(
    ("words", "look"),
    [
        (("guard", "install"), "peagle-sm guard status --local"),
        (("guard", "uninstall"), "peagle-sm guard status --local"),
        (("pause", "demo"), "peagle-sm status demo --local"),
        (("resume", "demo"), "peagle-sm status demo --local"),
    ],
)
def test_without_a_terminal_the_command_that_only_looks_keeps_the_place(
    words: tuple[str, ...], look: str
) -> None:
    result = run(*words, "--local")
    assert result.exit_code == 2
    assert f"`{look}`" in result.stderr


def test_the_guards_times_are_relative_and_a_column_of_dashes_is_left_out() -> None:
    endpoints = (
        RegisterEntry(name="gpt-oss-20b-p-eagle", quiet_since=NOW - timedelta(minutes=7)),
        RegisterEntry(name="gpt-oss-120b-p-eagle", keep_until=NOW + timedelta(hours=20)),
    )
    status = replace(OLD_GUARD, last_sweep_at=NOW - timedelta(minutes=3), endpoints=endpoints)
    shown = render_guard_status(status, NOW)
    assert shown.endswith(
        "ENDPOINT              STATE    IDLE SINCE  KEPT UNTIL\n"
        "gpt-oss-20b-p-eagle   watched  7 min ago   -\n"
        "gpt-oss-120b-p-eagle  watched  -           in 20 h"
    )
    assert "(3 min ago)" in shown


def test_what_the_guards_commands_suggest_keeps_the_place() -> None:
    plan = InstallPlan("123456789012", "us-east-1", "bucket", "0.1.0", False, guard_price(), None, local=True)
    installed = render_installed(InstallReport("created", plan, "0a1b2c3d"), " --local-port 7070")
    assert "`peagle-sm guard status --local-port 7070`" in installed
    shown = render_guard_status(OLD_GUARD, NOW)
    assert "run `peagle-sm guard install --local-port 7070`" in shown


def test_a_sweep_shows_the_jobs_that_it_stops() -> None:
    jobs = ({"name": "team-a-0123", "action": "stop", "reason": "its deadline passed"},)
    shown = render_sweep(SweepReport("2026-11-20T08:00:00+00:00", True, (), {}, jobs=jobs))
    assert "JOB          ACTION  REASON\nteam-a-0123  stop    its deadline passed" in shown
