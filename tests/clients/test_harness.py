"""The programs' harness: a reader without an end is a hang, whatever it catches, and the next one is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.clients.clients import PROGRAMS

READER = """
import time
from harness import serve

def read(job):
    yield "begun"
    print("a client that prints")
    if job["does"] == "fail":
        raise KeyError("choices")
    if job["does"] == "spin":
        while True:
            pass
    while job["does"] == "stay":
        try:
            time.sleep(60)
        except BaseException:
            pass
    yield ", done"

serve(read)
"""


def outcomes(folder: Path, *jobs: str) -> list[dict[str, Any]]:
    (folder / "reader.py").write_text(READER)
    lines = [
        json.dumps({"does": does, "cpu_s": 0.2, "wall_s": 0.5 if does == "stay" else 60}) for does in jobs
    ]
    done = subprocess.run(
        [sys.executable, folder / "reader.py"],
        input="\n".join(lines),
        env={"PYTHONPATH": str(PROGRAMS), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_came_of_each_job_is_told(tmp_path: Path) -> None:
    good, failed, spun, after = outcomes(tmp_path, "read", "fail", "spin", "read")
    assert good == after == {"text": "begun, done", "error": None, "hang": False}
    assert failed == {"text": "begun", "error": "KeyError", "said": "'choices'", "hang": False}
    assert spun == {"text": "begun", "error": None, "hang": True}


def test_one_that_no_interruption_ends_is_ended_with_its_process(tmp_path: Path) -> None:
    assert outcomes(tmp_path, "stay", "read") == [
        {"text": "begun", "error": None, "hang": True, "ended": True}
    ]
