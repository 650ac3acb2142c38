"""up, status and down with real server processes; what they start ends with them, however they end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from sagemaker_local import lifecycle
from sagemaker_local.errors import EngineError, InvalidRequest, NotFound
from sagemaker_local.process import spawn, state
from sagemaker_local.process.state import Process, ServerState
from sagemaker_local.process.status import LocalStatus
from tests.local import stand_in_server
from tests.local.serving import Server, client_at, eventually


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """State of the test's own, in which every server is ended afterwards."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path
    lifecycle.down()


def start() -> LocalStatus:
    """A server whose engines are stand-ins for vLLM, started by this very Python."""
    return lifecycle.up(engine_python=Path(sys.executable))


def deploy(server: LocalStatus, home: Path, name: str = "e") -> list[psutil.Process]:
    """An endpoint InService; returns the processes of its engine, two at least."""
    Server(server).create(name, **stand_in_server.install(home / "package"))
    Server(server).until(name, "InService")
    known = state.read(server.port)
    assert known is not None
    members = [process for engine in known.engines for process in state.group_members(engine)]
    assert len(members) >= 2
    return members


def all_gone(processes: list[psutil.Process]) -> bool:
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


@pytest.mark.slow
def test_two_servers_live_side_by_side_and_down_leaves_nothing(home: Path) -> None:
    first, second = start(), start()
    assert {first.port, second.port} == {found.port for found in lifecycle.status()}
    with pytest.raises(InvalidRequest, match="2 local SageMakers run"):
        lifecycle.find_server()
    engine = deploy(first, home)
    assert client_at(second.endpoint_url, "sagemaker").list_endpoints()["Endpoints"] == []
    ended = lifecycle.down(first.port)
    assert [(e.kind, e.how) for e in ended] == [("server", "shut down"), ("engine", "shut down")]
    assert all_gone(engine)
    assert lifecycle.find_server().port == second.port
    assert not state.work_dir(first.port).exists()


@pytest.mark.slow
def test_what_a_killed_server_leaves_is_found_and_ended(home: Path) -> None:
    server = start()
    engine = deploy(server, home)
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: lifecycle.status() == [])
    with pytest.raises(NotFound) as raised:
        lifecycle.find_server()
    assert f"The server at port {server.port} (process {server.pid}) ended unexpectedly" in str(raised.value)
    assert "it served: e-AllTraffic" in str(raised.value)
    assert str(state.log_path(server.port)) in str(raised.value)
    assert lifecycle.down()[0].how == "already gone"
    assert all_gone(engine)
    assert list(state.read_all()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_good_order(home: Path, number: signal.Signals) -> None:
    server = start()
    engine = deploy(server, home)
    os.kill(server.pid, number)
    eventually(lambda: state.read(server.port) is None)
    eventually(lambda: all_gone(engine))


@pytest.mark.slow
def test_status_repeats_what_up_said_and_shows_the_engine(home: Path) -> None:
    message = start()
    deploy(message, home, "shown")
    (found,) = lifecycle.status(message.port)
    volatile = {"clock", "clock_ahead_s", "engines"}
    plain: Any = json.loads(json.dumps(found.to_dict()))
    assert {k: v for k, v in plain.items() if k not in volatile} == {
        k: v for k, v in message.to_dict().items() if k not in volatile
    }
    (row,) = plain["engines"]
    assert (row["endpoint"], row["status"], row["running"]) == ("shown", "InService", True)


def test_the_same_port_twice_is_refused(home: Path) -> None:
    server = start()
    with pytest.raises(EngineError, match="already runs at port"):
        lifecycle.up(server.port)


@pytest.mark.slow
def test_ctrl_c_while_a_detached_server_starts_leaves_no_server(home: Path) -> None:
    code = (
        "from sagemaker_local import lifecycle; lifecycle.up(progress=lambda line: print(line, flush=True))"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as starter:
        assert starter.stdout is not None
        starter.stdout.readline()
        # The server is a child until it says that it is ready; only then is it in a state file.
        eventually(lambda: bool(psutil.Process(starter.pid).children()))
        (server,) = psutil.Process(starter.pid).children()
        os.kill(starter.pid, signal.SIGINT)
        assert starter.wait() != 0
    eventually(lambda: all_gone([server]))
    assert list(state.read_all()) == []


def test_a_port_of_another_program_is_refused(home: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(EngineError, match="used by another program"):
            lifecycle.up(other.getsockname()[1])


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_what_is_not_a_port_is_refused(home: Path, port: int) -> None:
    with pytest.raises(InvalidRequest, match="allowed: 1 to 65535"):
        lifecycle.up(port)


def test_a_missing_engine_python_is_refused(home: Path) -> None:
    with pytest.raises(InvalidRequest, match="no Python found at"):
        lifecycle.up(engine_python=home / "nowhere" / "python")


def test_without_a_server_one_is_told_how_to_start_one(home: Path) -> None:
    with pytest.raises(NotFound) as raised:
        lifecycle.find_server()
    assert raised.value.next_step == "start one: peagle-sm local up --detach"
    assert lifecycle.status() == []
    assert lifecycle.down() == []


def test_a_state_file_of_a_process_that_was_replaced_by_another_is_stale(home: Path) -> None:
    me = Process.of(os.getpid())
    assert me is not None
    stranger = Process(me.pid, me.started - 1000)
    state.write(ServerState(1, stranger, "log", engines=(stranger,)))
    assert lifecycle.status() == []
    assert [ended.how for ended in lifecycle.down()] == ["already gone"]
    assert state.read(1) is None


def test_a_full_disk_is_reported_with_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(
        EngineError, match=r"the disk of .* is full: 12 MB are free, 200 MB are required"
    ) as raised:
        spawn.require_space(tmp_path, lambda at: 12_000_000)
    assert "XDG_STATE_HOME" in str(raised.value.next_step)


@pytest.mark.slow
def test_a_server_that_dies_without_a_word_says_how_to_see_why(home: Path) -> None:
    silent = home / "python"
    silent.write_text("#!/bin/sh\nexit 3\n")
    silent.chmod(0o755)
    with pytest.raises(EngineError, match="exit status 3, no output") as raised:
        spawn.detached(spawn.free_port(), None, lambda _: None, python=str(silent))
    assert "in the foreground" in str(raised.value.next_step)


@pytest.mark.slow
def test_moving_the_clock_by_hours_reports_what_has_passed(home: Path) -> None:
    server = start()
    before = datetime.fromisoformat(lifecycle.find_server(server.port).clock)
    passed: list[float] = []
    now = datetime.fromisoformat(lifecycle.advance_clock(server.port, 4000, passed.append))
    assert passed == [1800, 3600, 4000]
    assert timedelta(seconds=4000) <= now - before < timedelta(seconds=4000) + timedelta(minutes=5)
    for seconds in (-1.0, 4e7):
        with pytest.raises(InvalidRequest, match="only goes forward, by at most a year"):
            lifecycle.advance_clock(server.port, seconds)


def test_an_unreadable_state_file_is_passed_over(home: Path) -> None:
    state.state_path(7).write_text("{")
    assert lifecycle.status() == []


def test_in_the_foreground_it_runs_until_interrupted(home: Path) -> None:
    code = (
        "from sagemaker_local import lifecycle\n"
        "lifecycle.up(detach=False, on_ready=lambda s: print(s.port, flush=True))\n"
        "print('over')\n"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    assert lifecycle.find_server().port == port
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == "over\n"
    assert process.wait(timeout=60) == 0
    assert lifecycle.status() == []
