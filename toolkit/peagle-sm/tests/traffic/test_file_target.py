"""A file as a target: one writer, a full disk leaves no half line, only old recordings are deleted."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.traffic.file_target import FileTarget
from peagle_sm.traffic.reading import read
from tests.disks import file_limit
from tests.traffic.samples import line

DAY = 24 * 3600.0


def test_the_file_is_its_owner_s_only_and_grows_by_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    target = FileTarget(path, keep_days=None)
    target.write([line(1)])
    target.write([line(2)])
    target.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.id[-1] for one in read(path).records] == ["1", "2"]


def test_paths_that_cannot_be_used_say_what_to_do(tmp_path: Path) -> None:
    foreign, open_to_all, link = tmp_path / "notes.txt", tmp_path / "open.jsonl", tmp_path / "link.jsonl"
    foreign.write_text("mine")
    foreign.chmod(0o600)
    open_to_all.write_bytes(line())
    open_to_all.chmod(0o644)
    link.symlink_to(foreign)
    shared_notes = tmp_path / "shared.txt"
    shared_notes.write_text("not a recording: nobody is told to change its mode")
    shared_notes.chmod(0o644)
    for path, says, step in (
        (tmp_path, "is a folder; allowed: a file", "traffic.jsonl"),
        (tmp_path / "gone" / "t.jsonl", "cannot be written", "existing folder"),
        (foreign, "is not recorded traffic; it was not changed", "another file"),
        (shared_notes, "is not recorded traffic; it was not changed", "another file"),
        (open_to_all, "can be read by other users (mode 644)", "chmod 600"),
        (link, "is not a regular file", "another path"),
        (Path("/dev/null"), "is not a regular file", "another path"),
    ):
        with pytest.raises(SpecError) as raised:
            FileTarget(path, keep_days=None)
        assert says in raised.value.message
        assert step in (raised.value.next_step or "")
    assert foreign.read_text() == "mine"


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    target = FileTarget(path, keep_days=None)
    target.write([line(1)])
    with file_limit(path.stat().st_size + 20), pytest.raises(OSError, match="File too large"):
        target.write([line(2)])
    target.write([line(3)])
    target.close()
    assert [one.id[-1] for one in read(path).records] == ["1", "3"]
    assert read(path).notes == ()


def test_a_killed_writer_s_half_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line(1) + line(2)[:40])
    path.chmod(0o600)
    target = FileTarget(path, keep_days=None)
    target.write([line(3)])
    with path.open("ab") as other:
        other.write(line(4)[:40])
    target.write([line(5)])
    target.write([line(6)])
    target.close()
    result = read(path)
    assert [one.id[-1] for one in result.records] == ["1", "3", "5", "6"]
    assert "line 2" in result.notes[0]
    assert b"\n\n" not in path.read_bytes()


def test_a_folder_that_was_removed_loses_lines_and_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "t.jsonl"
    path.parent.mkdir()
    target = FileTarget(path, keep_days=None)
    path.unlink()
    path.parent.rmdir()
    for _ in range(2):
        with pytest.raises((OSError, PeagleError)):
            target.write([line(1)])
        ours, theirs = socket.socketpair()  # they get a number that is free
        ours.send(b"x")
        assert theirs.recv(1) == b"x"
        ours.close()
        theirs.close()
    path.parent.mkdir()
    target.write([line(2)])
    target.close()
    assert path.read_bytes() == line(2)


def test_a_file_that_was_emptied_or_removed_meanwhile_is_written_on(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    target = FileTarget(path, keep_days=None)
    target.write([line(1)])
    os.truncate(path, 0)
    target.write([line(2)])
    path.unlink()
    target.write([line(3)])
    target.close()
    assert path.read_bytes() == line(3)


def test_a_second_writer_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    first = FileTarget(path, keep_days=None)
    with pytest.raises(SpecError, match=f"another process records to {path}"):
        FileTarget(path, keep_days=None)
    first.close()
    FileTarget(path, keep_days=None).close()


def test_a_large_or_old_file_is_renamed(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    now = [1.0e9]
    target = FileTarget(path, keep_days=None, rotate_bytes=len(line(1)) + 1, clock=lambda: now[0])
    for number in (1, 2):
        target.write([line(number)])
    target.tick()
    target.write([line(3)])
    now[0] += DAY + 1
    target.tick()
    target.write([line(4)])
    target.close()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert len(names) == 3
    assert names[0].startswith("t-20010909T014640Z-")
    assert [one.id[-1] for one in read(path).records] == ["4"]


def test_a_quiet_file_is_not_checked_each_second(tmp_path: Path) -> None:
    """A large file is renamed at the next second; only age waits, for ten minutes."""
    path = tmp_path / "t.jsonl"
    now = [1.0e9]
    target = FileTarget(path, keep_days=None, rotate_bytes=1000, clock=lambda: now[0])
    target.tick()
    target.write([line(1)])
    path.unlink()
    target.tick()
    assert not path.exists()  # it did not look
    now[0] += 600
    target.tick()
    assert path.exists()
    target.write([line(2) * 20])
    target.tick()
    assert len(list(tmp_path.iterdir())) == 1  # renamed at once
    target.close()


def test_only_old_files_of_this_recording_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    names = {
        "t-20260101T000000Z-abcdef.jsonl": (line(1), 40, True),
        "t-20260102T000000Z-abcdef.jsonl": (line(1), 3, False),  # young
        "t-20260103T000000Z-abcdef.jsonl": (b"my own notes\n", 40, False),  # not a recording
        "t-2026.jsonl": (line(1), 40, False),  # not a name of ours
        "other-20260101T000000Z-abcdef.jsonl": (line(1), 40, False),  # of another recording
    }
    now = 2.0e9
    for name, (content, days, _) in names.items():
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, (now - days * DAY,) * 2)
    link = tmp_path / "t-20260104T000000Z-abcdef.jsonl"
    link.symlink_to(tmp_path / "t-2026.jsonl")
    target = FileTarget(path, keep_days=30, clock=lambda: now)
    target.tick()
    target.close()
    gone = {name for name in names if not (tmp_path / name).exists()}
    assert gone == {name for name, (_, _, goes) in names.items() if goes}
    assert link.is_symlink()
