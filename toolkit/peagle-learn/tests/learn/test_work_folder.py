"""One process at a time works in the folder beside learn.yaml."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from peagle_learn.work_folder import only_one
from peagle_sm.aws.files import CannotWrite
from peagle_sm.core.errors import PlanRefused

HOLDS = """
import sys, time
from pathlib import Path
from peagle_learn.work_folder import only_one
with only_one(Path(sys.argv[1]), "peagle-sm learn run"):
    print("holds", flush=True)
    time.sleep(120)
"""


def test_a_second_process_is_refused_and_told_of_the_first_and_a_kill_ends_that(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    other = subprocess.Popen([sys.executable, "-c", HOLDS, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "holds\n"
        with pytest.raises(PlanRefused) as no, only_one(folder, "peagle-sm learn prove"):
            raise AssertionError("two at once")
        assert no.value.message.startswith(f"process {other.pid} on ")
        assert f"(peagle-sm learn run) works in {folder}" in no.value.message
    finally:
        other.kill()
        other.communicate()
    for _ in range(2):
        with only_one(folder, "peagle-sm learn prove"):
            pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_a_disk_without_locks_is_named_with_what_to_copy(tmp_path: Path, code: int) -> None:
    def refuse(_: int, __: int) -> None:
        raise OSError(code, os.strerror(code))

    with (
        pytest.raises(CannotWrite, match=f"lock: cannot be locked: {os.strerror(code)}") as refused,
        only_one(tmp_path / ".peagle-learn" / "team", "peagle-sm learn run", refuse),
    ):
        raise AssertionError("not locked")
    step = str(refused.value.next_step)
    assert "Copy learn.yaml, the files that it names and the folder .peagle-learn to a disk" in step
    assert "another path" not in step
