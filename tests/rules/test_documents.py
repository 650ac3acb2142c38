"""The documents are true: commands, options and functions exist, examples parse, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import click
import yaml

from peagle_sm.cli.app import app
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.checks import ALL_CHECKS
from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.resolve import Context
from peagle_sm.core.planning import make_plan
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
    faults = []
    for block in blocks(*SHELL):
        for line in _commands(block):
            words = shlex.split(line, comments=True)
            if words and Path(words[0]).name == "peagle-sm":
                faults.append((str(block), shlex.join(words[1:])))
    return faults


def test_a_command_line_in_the_documents_exists() -> None:
    wrong = [f"{where}: {fault}" for where, line in _peagle_lines() for fault in _faults(line)]
    assert not wrong, "\n".join(wrong)


def _faults(line: str) -> Iterator[str]:
    """What of a command line `peagle-sm` does not have."""
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
            subcommand = command.get_command(context, word)
            if subcommand is None and command is app and word in ("table", "json", "quiet"):
                continue
            if subcommand is None:
                yield f"there is no command {word!r} in `peagle-sm {line}`"
                return
            command = subcommand
            context = click.Context(command, parent=context, info_name=word)
            allowed |= {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    for word in shlex.split(line):
        if word.startswith("-") and word != "-" and word.split("=")[0] not in allowed:
            yield f"no option {word!r} in `peagle-sm {line}`"


def test_a_shell_example_parses() -> None:
    wrong = []
    for block in blocks("bash", "sh"):
        done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True, check=False)
        wrong += [f"{block}: {done.stderr.strip()}"] if done.returncode else []
    assert not wrong, "\n".join(wrong)


def test_a_python_example_compiles() -> None:
    wrong = []
    for block in blocks("python"):
        try:
            compile(block.text, str(block), "exec")
        except SyntaxError as error:
            wrong.append(f"{block}: {error}")
    assert not wrong, "\n".join(wrong)


def test_an_example_parses_and_a_spec_in_it_is_valid() -> None:
    wrong = []
    for block in blocks("yaml", "json"):
        try:
            content = yaml.safe_load(block.text)
        except yaml.YAMLError as error:
            wrong.append(f"{block}: {error}")
            continue
        if isinstance(content, dict) and {"name", "model"} <= content.keys():
            wrong += _spec_faults(block.text, str(block))
    assert not wrong, "\n".join(wrong)


def test_an_example_spec_of_a_large_model_has_a_plan_without_errors() -> None:
    role = "arn:aws:iam::123456789012:role/peagle"
    context = Context("123456789012", "us-east-1", role_arn=role, scheduler_role_arn=role)
    wrong = []
    for block in blocks("yaml"):
        content = yaml.safe_load(block.text)
        entry = load_catalog().models.get(str(content.get("model"))) if isinstance(content, dict) else None
        if entry is not None and "name" in content and entry.image != "vllm-cpu":
            findings = make_plan(parse_spec(block.text, str(block)), context).findings
            wrong += [f"{block}: {each.message}" for each in findings if each.severity == "error"]
    assert not wrong, "\n".join(wrong)


def test_an_example_spec_is_valid() -> None:
    examples = [p for p in project_files() if p.parts[:2] == ("docs", "examples") and p.suffix == ".yaml"]
    assert examples
    wrong = [fault for path in examples for fault in _spec_faults(read(path), str(path))]
    assert not wrong, "\n".join(wrong)


def _spec_faults(text: str, origin: str) -> list[str]:
    try:
        parse_spec(text, origin)
    except SpecError as error:
        return [str(error)]
    return []


def test_a_link_leads_to_a_file() -> None:
    wrong = [f"{path} links to {to}" for path, to in links() if not ((ROOT / path).parent / to).exists()]
    assert not wrong, "what is not there:\n" + "\n".join(wrong)


def test_the_readme_names_the_two_commands() -> None:
    text = read(Path("README.md"))
    for command in ("./scripts/quickstart", "./scripts/test"):
        assert command in text
        assert (ROOT / command).is_file()


def test_ci_runs_the_test_script() -> None:
    assert "./scripts/test" in read(Path(".ci/run"))


FOLLOW = ROOT / "docs" / "explanation" / "follow.md"
CHECKS = ROOT / "toolkit/peagle-sm/peagle_sm/core/checks"


def test_every_function_on_the_page_that_follows_three_commands_exists() -> None:
    names = re.findall(r"`(peagle_\w+[\w.]*):([\w.]+)`", FOLLOW.read_text(encoding="utf-8"))
    assert len(names) > 20
    for module, name in names:
        attrgetter(name)(import_module(module))


def test_the_index_by_question_names_files_and_functions_that_exist() -> None:
    rows = re.findall(r"\| `([\w/-]+/\w+\.py)` \| `([\w.]+)` \|", FOLLOW.read_text(encoding="utf-8"))
    assert len(rows) > 10
    for path, name in rows:
        assert (ROOT / path).is_file(), path
        module = (
            re.sub(r"^(toolkit/[^/]+|stacks/guard/runtime)/", "", path).removesuffix(".py").replace("/", ".")
        )
        attrgetter(name)(import_module(module))


def test_every_module_of_checks_is_on_the_page_that_says_how_to_add_one() -> None:
    pairs = re.findall(r"\| `(\w+)\.py` \| `(\w+)\.py` \|", FOLLOW.read_text(encoding="utf-8"))
    modules = {path.stem for path in CHECKS.glob("*.py")} - {"__init__", "base"}
    assert len(modules) > 5
    assert sorted(pairs) == sorted((module, f"{module}_cases") for module in modules)
    assert modules == {check.look.__module__.rpartition(".")[2] for check in ALL_CHECKS}
