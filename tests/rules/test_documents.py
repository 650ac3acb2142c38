"""The documents are true: commands and options exist, examples parse, links lead somewhere."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from peagle_sm.cli.app import app
from peagle_sm.core.spec.endpoint_spec import parse_spec
from tests.rules.documents import Block, blocks, links, read
from tests.rules.files import ROOT, project_files

SHELL = ("bash", "sh", "console")


def _commands(block: Block) -> list[str]:
    """The command lines of a block: continued lines joined, prompts and comments dropped."""
    text = block.text.replace("\\\n", " ")
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _peagle_lines() -> list[tuple[str, str]]:
    found = []
    for block in blocks(*SHELL):
        for line in _commands(block):
            words = shlex.split(line, comments=True)
            if words and Path(words[0]).name == "peagle-sm":
                found.append((str(block), shlex.join(words[1:])))
    return found


@pytest.mark.parametrize(("where", "line"), _peagle_lines())
def test_a_command_line_in_the_documents_exists(where: str, line: str) -> None:
    command: click.Command = app
    context = click.Context(app, info_name="peagle-sm")
    allowed = {option for param in app.params for option in (*param.opts, *param.secondary_opts)} | {
        "--help",
        "-h",
    }
    for word in shlex.split(line):
        if word.startswith("-") and word != "-":
            continue
        if isinstance(command, click.Group):
            found = command.get_command(context, word)
            if found is None and command is app and word in ("table", "json", "quiet"):
                continue
            assert found is not None, f"{where}: there is no command {word!r} in `peagle-sm {line}`"
            command = found
            context = click.Context(command, parent=context, info_name=word)
            allowed |= {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    for word in shlex.split(line):
        if word.startswith("-") and word != "-":
            assert word.split("=")[0] in allowed, f"{where}: no option {word!r} in `peagle-sm {line}`"


@pytest.mark.parametrize("block", blocks("bash", "sh"), ids=str)
def test_a_shell_example_parses(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_python_example_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", blocks("yaml", "json"), ids=str)
def test_an_example_parses_and_a_spec_in_it_is_valid(block: Block) -> None:
    content = yaml.safe_load(block.text)
    if isinstance(content, dict) and {"name", "model"} <= content.keys():
        parse_spec(block.text, str(block))


@pytest.mark.parametrize(
    "path",
    [p for p in project_files() if p.parts[:2] == ("docs", "examples") and p.suffix == ".yaml"],
    ids=str,
)
def test_an_example_spec_is_valid(path: Path) -> None:
    parse_spec(read(path), str(path))


@pytest.mark.parametrize(("path", "target"), links(), ids=str)
def test_a_link_leads_to_a_file(path: Path, target: str) -> None:
    assert ((ROOT / path).parent / target).exists(), f"{path} links to {target}, which is not there"


def test_the_readme_names_the_two_commands() -> None:
    text = read(Path("README.md"))
    for command in ("./scripts/quickstart", "./scripts/test"):
        assert command in text
        assert (ROOT / command).is_file()


def test_ci_runs_the_test_script() -> None:
    assert "./scripts/test" in read(Path(".ci/run"))
