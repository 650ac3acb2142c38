"""Processes, resources, progress and the way a job ends."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from peagle_sm.core.errors import EngineError
from scripts.bench import remaining
from scripts.bench.job import run_job, write_json
from scripts.bench.progress import Reporter

#: A parent with a child of its own, as a server with an engine.
CHILD = "import time; time.sleep(60)"
PARENT = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {CHILD!r}]); time.sleep(60)"


def has_child(pid: int) -> bool:
    """Say whether the child runs its own program: until then it shows its parent's command."""
    return any(child.cmdline()[-1:] == [CHILD] for child in psutil.Process(pid).children())


@contextlib.contextmanager
def family() -> Iterator[subprocess.Popen[bytes]]:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], start_new_session=True)
    try:
        deadline = time.monotonic() + 20
        while not has_child(parent.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield parent
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


def gone(records: set[remaining.ProcessRecord]) -> bool:
    deadline = time.monotonic() + 10
    while remaining.survivors(records) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not remaining.survivors(records)


def test_a_process_and_its_descendants_are_seen_and_their_end_too() -> None:
    with family() as parent:
        records = remaining.processes_of(parent.pid)
        assert len(records) == 2
        assert len(remaining.survivors(records)) == 2
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        assert gone(records)


def test_an_orphan_is_found_by_its_group_and_named_as_left() -> None:
    with family() as parent:
        before = remaining.processes_of(parent.pid)
        parent.kill()
        parent.wait()
        orphan = next(record for record in before if record.pid != parent.pid)
        assert remaining.survivors(before) == [f"process/{orphan.pid} {orphan.command}"]
        assert orphan in remaining.processes_of(orphan.pid)


def test_this_process_group_is_never_taken_for_an_engines() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert os.getpid() not in {record.pid for record in remaining.processes_of(child.pid)}
    finally:
        child.kill()
        child.wait()


def test_a_process_that_is_gone_has_no_family() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert remaining.processes_of(child.pid) == set()


class Pages:
    """A boto3 client that lists what it was given, two pages of it."""

    def __init__(self, items: dict[str, list[dict[str, Any]]]) -> None:
        self.items = items

    def get_paginator(self, operation: str) -> Pages:
        self.operation = operation
        return self

    def paginate(self) -> Iterator[dict[str, Any]]:
        for key, rows in self.items.items():
            if re.sub(r"(?<!^)(?=[A-Z])", "_", f"List{key}").lower() == self.operation:
                yield {key: rows[:1]}
                yield {key: rows[1:]}


def test_every_kind_of_resource_on_every_page_is_listed() -> None:
    clients = {
        "sagemaker": Pages(
            {
                "Endpoints": [{"EndpointName": "a"}, {"EndpointName": "b"}],
                "EndpointConfigs": [{"EndpointConfigName": "a-1"}],
                "Models": [{"ModelName": "a-1"}],
            }
        ),
        "scheduler": Pages({"Schedules": [{"Name": "peagle-a-lifetime"}]}),
    }
    assert remaining.list_resources(clients.__getitem__) == [
        "endpoint/a",
        "endpoint/b",
        "endpoint-config/a-1",
        "model/a-1",
        "schedule/peagle-a-lifetime",
    ]


def test_phases_are_timed_also_when_they_fail() -> None:
    ticks = iter([0.0, 2.0, 10.0, 11.5])
    stream = io.StringIO()
    reporter = Reporter(stream, monotonic=lambda: next(ticks))
    with reporter.phase("one"):
        pass
    with pytest.raises(ValueError, match="no"), reporter.phase("two"):
        raise ValueError("no")
    assert reporter.seconds == {"one": 2.0, "two": 1.5}
    assert reporter.times().splitlines()[-1] == "   total      3.5 s"


def ended(job: Any) -> tuple[int, str]:
    stream = io.StringIO()
    return run_job(job, Reporter(stream)), stream.getvalue()


def test_an_error_becomes_its_exit_code_with_the_next_step() -> None:
    def job(reporter: Reporter) -> int:
        raise EngineError("it did not start", next_step="look", details={"log_tail": ["last words"]})

    code, text = ended(job)
    assert code == 7
    assert text.splitlines()[:3] == ["error: it did not start", "   | last words", "next: look"]


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_let_the_clean_up_run(signal_number: int) -> None:
    cleaned = []

    def job(reporter: Reporter) -> int:
        try:
            os.kill(os.getpid(), signal_number)
            time.sleep(5)
        finally:
            cleaned.append(True)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    code, text = ended(job)
    assert (code, cleaned) == (130, [True])
    assert "interrupted" in text
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_job_that_ends_well_gives_its_own_code() -> None:
    assert ended(lambda reporter: 1)[0] == 1


def test_results_make_their_folder(tmp_path: Path) -> None:
    write_json(tmp_path / "results" / "one.json", {"a": 1})
    assert json.loads((tmp_path / "results" / "one.json").read_text()) == {"a": 1}
