"""What a person sees at 80 and 120 columns, in colour; and that pipes get plain text."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.cli.terminal import fit, paint, render_table

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_HEADS = ("name", "status", "mode", "instance", "age", "why")
_ROWS = (
    (
        "gpt-oss-20b-p-eagle",
        "InService",
        "p-eagle K=7",
        "ml.p6-b200.48xlarge",
        "3h02m",
        "kept until 2026-11-22 18:00 UTC by the timetable of the spec",
    ),
    ("demo", "Failed", "none", "ml.g7e.2xlarge", "2m", "the container did not pass the ping health check"),
)


def test_a_table_that_is_too_wide_wraps_its_widest_columns() -> None:
    text = render_table(_HEADS, _ROWS, right=("age",), width=80)
    assert text.splitlines()[0].split() == [head.upper() for head in _HEADS]
    assert max(map(len, text.splitlines())) <= 80
    for word in (word for row in _ROWS for cell in row for word in cell.split()):
        assert word in text  # no name, type or id is broken


def test_spare_columns_are_left_out_before_a_row_becomes_a_block() -> None:
    name = "a-name-of-sixty-three-characters-which-is-the-longest-allowed-x"
    heads, row = ("name", "status", "age", "instance"), (name, "InService", "3h02m", "ml.g7e.2xlarge")
    everything = render_table(heads, [row], width=120, spare=("age", "instance"))
    assert everything.split() == [*(head.upper() for head in heads), *row]
    narrow = render_table(heads, [row], width=80, spare=("age", "instance"))
    assert narrow.split() == ["NAME", "STATUS", name, "InService"]
    assert max(map(len, narrow.splitlines())) <= 80
    assert "3h02m" in render_table(heads, [row], width=40, spare=("age", "instance"))  # a block has all


@given(
    st.lists(st.lists(st.text("ab-. ", max_size=30), min_size=4, max_size=4), min_size=1, max_size=4),
    st.integers(20, 100),
)
def test_no_word_of_a_table_is_broken(rows: list[list[str]], width: int) -> None:
    text = render_table(tuple("ABCD"), rows, right=("D",), width=width)
    for word in {word for row in rows for cell in row for word in cell.split()}:
        assert word in text.split()


def test_a_table_that_fits_is_left_alone() -> None:
    assert render_table(_HEADS, _ROWS, width=200) == render_table(_HEADS, _ROWS)


def test_a_table_with_too_many_columns_becomes_blocks() -> None:
    heads = tuple(f"figure {n}" for n in range(12))
    row = tuple("123456.7" for _ in heads)
    text = render_table(heads, [row, row], right=heads, width=80)
    assert text.startswith("figure 0   123456.7\nfigure 1   123456.7\n")
    assert text.count("\n\n") == 1


@given(
    st.lists(st.lists(st.text("abc de-f", max_size=40), min_size=5, max_size=5), min_size=1, max_size=5),
    st.integers(40, 130),
)
def test_no_line_of_a_table_is_wider_than_the_terminal(rows: list[list[str]], width: int) -> None:
    text = render_table(tuple("ABCDE"), rows, right=("E",), width=width)
    if not text.startswith("A "):
        return
    if max(len(row[4]) for row in rows) > width - 4 * 12:
        return  # a column of figures is never broken
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [40, 80, 120])
# No word of these letters is a command, such as cd: commands are kept whole.
@given(text=st.lists(st.text("abefghij", min_size=1, max_size=15), min_size=1, max_size=60).map(" ".join))
def test_sentences_break_between_words_and_lose_nothing(text: str, width: int) -> None:
    fitted = fit(text, width)
    assert fitted.split() == text.split()
    assert max(map(len, fitted.splitlines())) <= width


def test_labels_hang_and_commands_stay_whole() -> None:
    command = "  next: peagle-sm deploy " + "x" * 90 + " --local"
    assert fit(command, 80) == command
    for label in ("try it:     ", "delete it:  ", "use it:  "):
        assert fit(label + command.strip().removeprefix("next: "), 80) == label + command[8:]
    assert fit("  memory    " + "nine gigabytes " * 8, 80) == (
        "  memory    nine gigabytes nine gigabytes nine gigabytes nine gigabytes nine\n"
        "            gigabytes nine gigabytes nine gigabytes nine gigabytes"
    )
    assert fit("error: " + "what was found is wrong " * 5, 80).splitlines()[1].startswith("       ")
    name = f"/aws/sagemaker/Endpoints/{'n' * 29}"
    assert fit("  logs.create_log_group             " + name, 80) == f"  logs.create_log_group\n    {name}"


def test_statuses_warnings_and_errors_have_their_colours() -> None:
    painted = paint("error: demo is Failed\n  next: peagle-sm list\nwarning: demo-Failed is InService")
    assert painted == (
        "\x1b[31m\x1b[1merror:\x1b[0m demo is \x1b[31mFailed\x1b[0m\n"
        "\x1b[36m\x1b[1m  next:\x1b[0m peagle-sm list\n"
        "\x1b[33m\x1b[1mwarning:\x1b[0m demo-Failed is \x1b[32mInService\x1b[0m"
    )


def on_a_terminal(*words: str, columns: int = 80, cwd: Path, **environ: str) -> str:
    """Run the real command on a real pseudo-terminal and return what it printed."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    clean = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "peagle_sm", *words],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=cwd,
        env={**clean, "TERM": "xterm-256color", **environ},
    )
    os.close(follower)
    printed = b""
    while True:
        try:
            chunk = os.read(leader, 65_536)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        printed += chunk
    process.wait()
    os.close(leader)
    return printed.decode().replace("\r\n", "\n")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", [("models",), ("heads", "list")])
def test_tables_on_a_terminal_fit_it(words: tuple[str, ...], columns: int, tmp_path: Path) -> None:
    text = _ANSI.sub("", on_a_terminal(*words, columns=columns, cwd=tmp_path))
    assert text.strip()
    assert [line for line in text.splitlines() if len(line) > columns] == []


@pytest.mark.slow
def test_errors_are_coloured_unless_no_color_is_set(tmp_path: Path) -> None:
    coloured = on_a_terminal("plan", "absent.yaml", cwd=tmp_path)
    assert "\x1b[31m\x1b[1merror:\x1b[0m" in coloured
    plain = on_a_terminal("plan", "absent.yaml", cwd=tmp_path, NO_COLOR="1")
    assert "\x1b" not in plain
    assert plain == _ANSI.sub("", coloured)
