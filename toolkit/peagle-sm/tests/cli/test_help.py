from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from peagle_sm import __version__
from peagle_sm.cli.app import app
from peagle_sm.cli.base import LazyGroup
from tests.cli.running import run

HEAVY = (
    "boto3",
    "rich",
    "pydantic",
    "yaml",
    "moto",
    "aiohttp",
    "cryptography",
    "peagle_sm.service",
    "peagle_sm.core.spec.endpoint_spec",
)


def _groups() -> Iterator[tuple[str, LazyGroup]]:
    waiting: list[tuple[str, click.Command | None]] = [("peagle-sm", app)]
    while waiting:
        path, command = waiting.pop()
        if isinstance(command, LazyGroup):
            yield path, command
            context = click.Context(command)
            waiting += [(f"{path} {name}", command.get_command(context, name)) for name in command.entries]


def _rows(text: str) -> dict[str, str]:
    """The indented rows `name  text` of a help page."""
    return dict(re.findall(r"^  (\S.*?)  +(\S.*)$", text, re.MULTILINE))


def test_the_first_screen_describes_ten_commands_and_names_the_others() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    commands, _, more = result.stdout.partition("\nOptions:")[0].partition("\nMore commands")
    described = {name for name, text in _rows(commands).items() if name in app.entries}
    assert len(described) == 10
    named = set(re.findall(r"[a-z]+", more))
    assert described | named >= app.entries.keys()
    assert not described & {name for line in _rows(more).values() for name in line.split(", ")}


def test_help_all_describes_every_command() -> None:
    rows = _rows(run("help", "all").stdout)
    for name, entry in app.entries.items():
        assert entry.help.startswith(rows[name].removesuffix(".")), name


def test_no_command_shows_the_help_page_on_stderr() -> None:
    result = run()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Write a commented peagle.yaml" in result.stderr


def test_the_version() -> None:
    assert run("--version").stdout == f"peagle-sm {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["deploy", "--help"], ["local", "--help"], ["plna"], ["keep", "--help"]]
)
def test_help_pages_and_mistakes_import_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import json, sys\n"
        "from peagle_sm.cli.app import app\n"
        "app.main(standalone_mode=False)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.parametrize(
    ("path", "group"), list(_groups()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_group_lists_its_commands_in_their_own_words(path: str, group: LazyGroup) -> None:
    for name, entry in group.entries.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None
        assert command.get_short_help_str(limit=200).rstrip(".") == entry.help.rstrip("."), f"{path} {name}"


def test_completion_offers_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "peagle_sm"],
        env={"_PEAGLE_SM_COMPLETE": "bash_complete", "COMP_WORDS": "peagle-sm de", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["plain,deploy", "plain,delete", "plain,decide"]


@pytest.mark.parametrize("option", ["--yes", "-y"])
@pytest.mark.parametrize(
    "words", [("wait", "demo"), ("bench", "demo"), ("verify", "demo", "--baseline", "plain")]
)
def test_a_command_that_asks_nothing_says_so_where_yes_is_given(words: tuple[str, ...], option: str) -> None:
    result = run(*words, option)
    assert result.exit_code == 2
    assert f"{words[0]} has no {option}: it never asks for confirmation. Leave it out." in result.stderr
    assert "Did you mean" not in result.stderr


def test_help_shows_commands_and_pages(root: Path) -> None:
    assert run("help", "deploy").stdout.splitlines()[0] == "Usage: peagle-sm deploy [OPTIONS] [SPEC]"
    assert run("help", "guard", "install").stdout.startswith("Usage: peagle-sm guard install")
    page = (root / "docs/how-to/streams.md").read_text(encoding="utf-8")
    assert run("help", "streams").stdout == page
    assert run("help", "how-to/streams").stdout == page
    assert "how-to/streams" in run("help", "--format", "quiet").stdout.splitlines()
    unknown = run("help", "stream")
    assert (unknown.exit_code, "'streams'" in unknown.stderr) == (2, True)


def test_every_page_that_a_message_names_exists(root: Path) -> None:
    named: set[str] = set()
    for path in (root / "toolkit").glob("*/peagle_*/**/*.py"):
        named.update(re.findall(r"`?peagle-sm help ([a-z0-9/-]+)", path.read_text(encoding="utf-8")))
    assert {"stacks", "exit-codes", "train-a-head"} <= named
    for topic in named:
        assert run("help", topic).exit_code == 0, topic


def test_no_message_names_a_page_of_the_clone(root: Path) -> None:
    """A docstring may: it is for who reads the code. A command's is its help."""
    named = []
    for path in (root / "toolkit").glob("*/peagle_*/**/*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        named += [
            f"{path.name}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
            if re.search(r"docs/[a-z-]+/[a-z0-9-]+\.md", node.value)
        ]
    assert named == []
