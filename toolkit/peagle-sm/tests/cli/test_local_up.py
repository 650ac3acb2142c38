"""`peagle-sm local up`: as a process that stays, and in the foreground until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sagemaker_local.process.spawn import free_port

pytestmark = pytest.mark.slow
PEAGLE = [sys.executable, "-m", "peagle_sm"]
KEYS = {"endpoint_url", "region", "role_arn", "image_uris", "artifacts"}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    # No endpoint is made here, so no engine runs: any Python will do.
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PEAGLE_SM_ENGINE_PYTHON": sys.executable}


def _peagle(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PEAGLE, *words], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def _runs(pid: int) -> bool:
    # A process that ended stays listed, as a zombie, until whoever inherited it asks for its exit code.
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_detached_it_stays_says_what_a_script_needs_and_down_ends_it(environment: dict[str, str]) -> None:
    started = _peagle(environment, "local", "up", "--detach", "--format", "json")
    try:
        assert started.returncode == 0, started.stderr
        document = json.loads(started.stdout)
        assert document.keys() >= KEYS
        assert _runs(document["pid"])
        again = json.loads(_peagle(environment, "local", "status", "--format", "json").stdout)
        assert {key: again[key] for key in KEYS} == {key: document[key] for key in KEYS}
        assert document["endpoint_url"] in _peagle(environment, "local", "logs").stdout
        taken = _peagle(environment, "local", "up", "--port", str(document["port"]))
        assert taken.returncode == 7
        assert "already runs at port" in taken.stderr
    finally:
        ended = _peagle(environment, "local", "down", "--format", "json")
    assert [each["pid"] for each in json.loads(ended.stdout)["ended"]] == [document["pid"]]
    assert not _runs(document["pid"])
    assert _peagle(environment, "local", "status").returncode == 4


def test_a_pipe_behind_a_detached_server_ends_while_the_server_runs(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [*PEAGLE, "local", "up", "-d", "--format", "json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as started:
        try:
            text, _ = started.communicate(timeout=300)  # until nobody has the pipe open
            status = json.loads(_peagle(environment, "local", "status", "--format", "json").stdout)
            assert f'"pid": {status["pid"]}' in text.decode()
            assert _runs(status["pid"])
        finally:
            started.kill()
            _peagle(environment, "local", "down")


def test_a_server_that_runs_already_is_reported_and_a_port_starts_another(
    environment: dict[str, str],
) -> None:
    try:
        first = json.loads(_peagle(environment, "local", "up", "-d", "--format", "json").stdout)
        again = _peagle(environment, "local", "up", "-d", "--format", "json")
        assert json.loads(again.stdout)["pid"] == first["pid"]
        assert f"a local SageMaker is already running at port {first['port']}: using it" in again.stderr
        assert _peagle(environment, "list", "--local").returncode == 0
        foreground = _peagle(environment, "local", "up")
        assert foreground.returncode != 0
        assert f"already runs at port {first['port']}" in foreground.stderr
        second = _peagle(environment, "local", "up", "-d", "--port", str(free_port()))
        assert second.returncode == 0, second.stderr
        assert f"is already running at port {first['port']} (process {first['pid']})" in second.stderr
        assert "use --local-port " in second.stderr
    finally:
        _peagle(environment, "local", "down")


def test_in_the_foreground_ctrl_c_ends_it(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [*PEAGLE, "local", "up"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("Ctrl-C stops it"):
                break
        os.kill(process.pid, signal.SIGINT)
        stdout, rest = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert stdout.startswith("endpoint URL  http://localhost:")
    assert "Traceback" not in rest
    assert _peagle(environment, "local", "status").returncode == 4
