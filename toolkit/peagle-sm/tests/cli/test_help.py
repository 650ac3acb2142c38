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

HELP = """\
Usage: peagle-sm [OPTIONS] COMMAND [ARGS]...

  Deploy, measure and delete P-EAGLE endpoints on Amazon SageMaker.

  A first run, without an AWS account:

    peagle-sm local up --detach
    peagle-sm init tiny-code
    peagle-sm deploy --local
    peagle-sm invoke tiny-code-p-eagle -p 'def fibonacci(n):' --temperature 0 --local
    peagle-sm delete tiny-code-p-eagle --local
    peagle-sm local down

Planning:
  init        Write a commented peagle.yaml for a model.
  models      List the models in the catalogue.
  engines     List the known vLLM versions and their model runners.
  heads       List draft heads, check them, or copy them to S3.
  schema      Print the JSON schema of peagle.yaml.
  plan        Show what a spec would create, and what it would cost.
  lock        Pin what JumpStart resolves a spec to; check or upgrade the lock.
  cdk         Write the CDK app, to deploy the stacks yourself.
  doctor      Check the account, the spec and this machine.
  checks      List the checks that run before a deploy.

Endpoints:
  deploy      Create an endpoint from a spec and wait until it is in service.
  list        List the endpoints created by peagle-sm.
  status      Show one endpoint: status, mode, config, cost and lifetime.
  wait        Wait until an endpoint is in service, or deleted.
  logs        Print the engine logs of an endpoint.
  invoke      Send one request and stream the answer.
  chat        Chat with an endpoint.
  openai      Print the environment variables for OpenAI clients.
  serve       Run a local proxy with the OpenAI API for an endpoint.
  keep        Keep an endpoint running for a while, even if idle, and extend its
              lifetime.
  pause       Turn an endpoint off; keep its config and model, so that it can be
              resumed.
  resume      Turn a paused endpoint on again and wait until it is in service.
  update      Update an endpoint to its spec as it is now.
  delete      Delete endpoints and all their resources, and check that they are
              gone.

Measuring:
  bench       Measure an endpoint under load.
  compare     Compare the speed of endpoints, or of one spec's modes; test for
              significance.
  reproduce   Measure a published table again, and show both side by side.
  tune        Find the best num_speculative_tokens (K) for each concurrency, and
              the best mode.
  verify      Check that speculation does not change the target model's answers.
  packs       List the workload packs: what each shows, and what it needs.
  acceptance  Show the acceptance of an endpoint's traffic by slice, and where
              it fell.
  cost        Show what tokens cost: USD per million output tokens at each
              measured load.
  report      Summarise results files: in the terminal, as an HTML page, or as
              Markdown.

Learning:
  learn       Train a draft head on your traffic, prove it, and promote it.

Account and region:
  guard       Install, inspect and remove the guard, which turns off unused
              endpoints.

This machine:
  local       Run a local SageMaker on this machine.
  help        Show the help of a command, or a page of the documentation.
  completion  Print the completion script for a shell.

Options:
  --version   Print the version and exit.
  -h, --help  Show this message and exit.

Global options, before or after the command:
  --format [table|json|quiet]  Format of the results on stdout; quiet prints
                               names only.  [default: table]
  --profile NAME               AWS profile.  [env: AWS_PROFILE]
  --region REGION              AWS region; overrides the spec's.  [env:
                               AWS_REGION]
  --local / --no-local         Use the local SageMaker that `peagle-sm local up`
                               started.  [env: PEAGLE_SM_LOCAL]
  --local-port PORT            Port of the local SageMaker, if several run;
                               implies --local.  [env: PEAGLE_SM_LOCAL_PORT]
                               [1<=x<=65535]
  --debug                      Show the traceback of an error.

  Exit codes: peagle-sm help exit-codes.
"""


def _groups() -> Iterator[tuple[str, LazyGroup]]:
    waiting: list[tuple[str, click.Command | None]] = [("peagle-sm", app)]
    while waiting:
        path, command = waiting.pop()
        if isinstance(command, LazyGroup):
            yield path, command
            context = click.Context(command)
            waiting += [(f"{path} {name}", command.get_command(context, name)) for name in command.entries]


def test_the_help_page() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert result.stdout == HELP


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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_asks_this_program(shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert f"_PEAGLE_SM_COMPLETE={shell}_complete" in result.stdout


def test_completion_offers_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "peagle_sm"],
        env={"_PEAGLE_SM_COMPLETE": "bash_complete", "COMP_WORDS": "peagle-sm de", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["plain,deploy", "plain,delete"]


@pytest.mark.parametrize("option", ["--yes", "-y"])
@pytest.mark.parametrize("words", [("wait", "demo"), ("verify", "demo", "--baseline", "plain")])
def test_a_command_that_asks_nothing_says_so_where_yes_is_given(words: tuple[str, ...], option: str) -> None:
    result = run(*words, option)
    assert result.exit_code == 2
    assert f"{words[0]} has no {option}: it never asks for confirmation. Leave it out." in result.stderr
    assert "Did you mean" not in result.stderr


def test_yes_without_a_prompt_is_refused_by_bench() -> None:
    result = run("bench", "demo", "--yes")
    assert result.exit_code == 2
    assert "asks for confirmation only with --managed. Leave out --yes." in result.stderr


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
