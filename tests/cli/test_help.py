from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

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
    "peagle_sm.service",
    "peagle_sm.core.spec.endpoint_spec",
)

HELP = """\
Usage: peagle-sm [OPTIONS] COMMAND [ARGS]...

  From a model's name to a P-EAGLE endpoint on SageMaker, and back to nothing.

  A first run, without an AWS account:

    peagle-sm local up --detach
    peagle-sm init tiny-code
    peagle-sm deploy --local
    peagle-sm invoke tiny-code-p-eagle -p 'def fibonacci(n):' --temperature 0 --local
    peagle-sm delete tiny-code-p-eagle --local
    peagle-sm local down

Before:
  init        Write a commented peagle.yaml for a model.
  models      List the models and draft heads of the catalogue.
  heads       List, check and stage draft heads.
  schema      Print the JSON schema of peagle.yaml.
  plan        Show what a spec would create, and what it costs.
  lock        Write down what JumpStart resolves a spec to; check or upgrade it.
  cdk         Write the CDK app, to deploy the stacks yourself.
  doctor      Check the account, the spec and this machine.
  checks      List what is checked before a deploy.

Endpoints:
  deploy      Create the endpoint of a spec and follow it until it serves.
  list        List the endpoints made by peagle-sm.
  status      Show one endpoint: state, mode, config, cost, end of life.
  wait        Wait until an endpoint is in service, or gone.
  logs        Print what the engine behind an endpoint wrote.
  invoke      Send one request and stream the answer.
  chat        Talk with an endpoint.
  openai      Print the environment for any OpenAI tool.
  serve       Serve OpenAI's API on this machine for an endpoint.
  keep        Keep an endpoint for a while, idle or not, and move the end of its
              life.
  pause       Turn an endpoint off, and keep what brings it back.
  resume      Bring a paused endpoint back and follow it until it serves.
  update      Bring an endpoint to what its spec says now.
  delete      Delete endpoints and all that belongs to them, and prove it.

Measuring:
  bench       Measure an endpoint under load.
  compare     Compare endpoints, or modes of one spec: which is faster, and is
              that significant.
  tune        Find the best num_speculative_tokens (K) for each concurrency, and
              the best mode.
  verify      Check that an endpoint's answers are the target's own.
  cost        Turn results into money: USD per million output tokens at each
              measured load.
  report      Show what results files say: a summary here, a page, or Markdown.

Account and region:
  guard       Install, watch and remove what turns off unused endpoints.

This machine:
  local       Run a SageMaker on this machine.
  completion  Print the completion script of a shell.

Options:
  --version   Print the version and exit.
  -h, --help  Show this message and exit.

Global options, before or after the command:
  --format [table|json|quiet]  How results are printed on stdout; quiet prints
                               names only.  [default: table]
  --profile NAME               AWS profile.  [env: AWS_PROFILE]
  --region REGION              AWS region; goes before the spec's.  [env:
                               AWS_REGION]
  --local / --no-local         Use the SageMaker that `peagle-sm local up` runs
                               on this machine.  [env: PEAGLE_SM_LOCAL]
  --local-port PORT            Which local SageMaker, when several run; implies
                               --local.  [env: PEAGLE_SM_LOCAL_PORT]
                               [1<=x<=65535]
  --debug                      Show a traceback when something unexpected fails.

  Exit codes: docs/reference/exit-codes.md.
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
@pytest.mark.parametrize("words", [("bench", "demo"), ("verify", "demo", "--baseline", "plain")])
def test_a_command_that_asks_nothing_says_so_where_yes_is_given(words: tuple[str, ...], option: str) -> None:
    result = run(*words, option)
    assert result.exit_code == 2
    assert f"{words[0]} has no {option}: it never asks for confirmation. Leave it out." in result.stderr
    assert "Did you mean" not in result.stderr
