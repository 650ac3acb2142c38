"""No process of a training job outlives the server, however the server ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sagemaker_local.process.status import LocalStatus
from tests.local.serving import Server, eventually
from tests.local.test_training_jobs import Account

SERVER = """
import asyncio, json, sys
from pathlib import Path
from sagemaker_local.assembly import Options
from sagemaker_local.process import spawn
from sagemaker_local.server import run
from tests.local.scripted_trainer import scripted_trainer

options = Options(port=spawn.free_port(), weights=Path(sys.argv[1]), trainer=scripted_trainer)
asyncio.run(run(options, lambda status: print(json.dumps(status.to_dict()), flush=True)))
"""


@pytest.mark.parametrize(
    ("how", "on_term"), [(signal.SIGTERM, "ignore"), (signal.SIGKILL, "{}")], ids=["sigterm", "sigkill"]
)
def test_a_server_that_ends_takes_its_training_jobs_along(
    how: signal.Signals, on_term: str, tmp_path: Path, root: Path
) -> None:
    """Two instances, each with a process in a session of its own; once such that ignore SIGTERM."""
    command = [sys.executable, "-c", SERVER, str(tmp_path)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            aws = Account(Server(LocalStatus.from_dict(json.loads(process.stdout.readline()))))
            script = {"hold": "always", "on_term": on_term, "detach": "1"}
            name = aws.create(script, resources={"InstanceCount": 2})

            def started() -> list[str]:
                matches = re.findall(r"(?:holding|detached) (\d+)", "\n".join(aws.lines(name)))
                return matches if len(matches) == 4 else []

            pids = [int(pid) for pid in eventually(started)]
            assert all(psutil.pid_exists(pid) for pid in pids)
            process.send_signal(how)
            process.wait(timeout=30)
        finally:
            process.kill()
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids))
