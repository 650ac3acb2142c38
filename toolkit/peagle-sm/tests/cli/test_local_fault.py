"""`peagle-sm local fault` as people and scripts read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from peagle_sm.cli.commands.local_faults import add
from sagemaker_local.faults import KINDS
from sagemaker_local.process import client
from tests.cli.conftest import Run
from tests.cli.running import run
from tests.local.serving import Server
from tests.local.test_training_jobs import Account, transitions


@pytest.fixture
def fault(peagle: Run, server: Server) -> Iterator[Run]:
    """Runs `peagle-sm local fault …`; no fault is left."""
    yield lambda *words, **more: peagle("local", "fault", *words, **more)
    client.clear_faults(server.status.port)


def ids(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()[1:]]


def test_faults_are_added_listed_shown_and_cleared(fault: Run, peagle: Run) -> None:
    assert fault("list").stdout == "no fault is set\n"
    first = fault("add", "cut", "endpoint=tiny-*", "where=event", "clean=true", "times=2")
    assert first.exit_code == 0, first.output
    assert fault("add", "throttle", "probability=0.1", "seed=7").exit_code == 0
    assert fault("add", "model-error", "message=out of memory", "operation=invoke").exit_code == 0
    listed = fault("list").stdout
    rows = [line.split(maxsplit=1)[1] for line in listed.splitlines()]
    table = [" ".join(row.split()) for row in rows]
    assert table == [
        "KIND ENDPOINT OPERATION OPTIONS INJECTED REMAINING",
        "cut tiny-* all where=event clean=true after_events=1 0 2",
        "throttle * all status=400 probability=0.1 seed=7 0 ∞",
        "model-error * invoke status=500 message='out of memory' 0 ∞",
    ]
    status = peagle("local", "status").stdout
    assert "faults" in status
    assert "where=event clean=true after_events=1" in status
    assert len(json.loads(peagle("local", "status", "--format", "json").stdout)["faults"]) == 3
    one, *others = ids(listed)
    assert fault("clear", one, "--format", "quiet").stdout == f"{one}\n"
    gone = json.loads(fault("clear", "--format", "json").stdout)
    assert [each["id"] for each in gone] == others
    assert fault("list", "--format", "json").stdout == "[]\n"
    assert "faults" not in peagle("local", "status").stdout


def test_a_fault_that_is_not_acceptable(fault: Run) -> None:
    result = fault("add", "cut", "where=there")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: where has an invalid value: found 'there'; allowed: frame, part, event, start\n"
        "  next: peagle-sm local fault add cut 'endpoint=my-*' times=1\n"
    )
    assert "stall has no option 'where'" in fault("add", "stall", "where=frame").stderr
    unknown = fault("add", "cheese")
    assert unknown.exit_code == 2
    assert f"found 'cheese'; allowed: {', '.join(KINDS)}" in unknown.stderr


def test_clearing_what_is_not_set(fault: Run) -> None:
    result = fault("clear", "f0")
    assert (result.exit_code, result.stderr) == (
        4,
        "error: there is no fault 'f0'; existing faults: none\n  next: peagle-sm local fault list\n",
    )


def test_without_a_server(in_empty_folder: Path) -> None:
    assert run("local", "fault", "list", "--local-port", "1").exit_code == 4


def test_the_help_and_the_page_name_every_kind(root: Path) -> None:
    page = (root / "docs" / "how-to" / "faults.md").read_text()
    assert add.help is not None
    for kind in KINDS:
        assert f"      {kind} " in add.help
        assert f"| `{kind}" in page


def test_a_training_job_without_spot_instances_cannot_be_interrupted(peagle: Run) -> None:
    result = peagle("local", "interrupt", "no-such-job")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Requested resource not found." in result.stderr


def test_a_training_job_is_interrupted_by_the_command(peagle: Run, server: Server) -> None:
    aws = Account(server)
    name = aws.spot({"hold": "term", "write": '{"checkpoints/c": "1"}'})
    aws.holding(name)
    result = peagle("local", "interrupt", name)
    assert (result.exit_code, result.stdout) == (0, f"the Spot instances of {name} are being interrupted\n")
    assert "Interrupted" in transitions(aws.until(name, "Completed"))
