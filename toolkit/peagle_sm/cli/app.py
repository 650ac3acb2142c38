"""The root command: the table of commands, and one place where errors become words and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from peagle_sm.cli.lazy import Entry, LazyGroup
from peagle_sm.cli.options import global_options
from peagle_sm.cli.state import State

PROGRAM = "peagle-sm"
"""The name in usage lines and suggestions, however the program was started."""
_COMMANDS = "peagle_sm.cli.commands"


class _ReaderGoneError(Exception):
    """A closed pipe under a name that click does not know: click itself ends BrokenPipeError with code 1."""


class App(LazyGroup):
    """The root group; `main` prints errors as docs/reference/cli.md says and exits with a documented code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command line; with `standalone_mode` (the default) exit, otherwise return the code."""
        arguments = list(sys.argv[1:] if args is None else args)
        state = extra.get("obj") or State()
        code = self._run(arguments, complete_var, {**extra, "obj": state})
        if standalone_mode:
            sys.exit(code)
        return code

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the command line; --help and --version write to stdout here."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError as error:
            raise _ReaderGoneError from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was parsed."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGoneError from error

    def _run(self, arguments: list[str], complete_var: str | None, extra: dict[str, Any]) -> int:
        try:
            outcome = super().main(arguments, PROGRAM, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
            return outcome if isinstance(outcome, int) else 0
        except (BrokenPipeError, _ReaderGoneError):
            _forget_closed_pipes()
            return 128 + 13
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            return error.exit_code
        except (Exception, KeyboardInterrupt) as error:
            return _report(error, arguments, extra["obj"])


def _report(error: BaseException, arguments: Sequence[str], state: State) -> int:
    from peagle_sm.cli import failure
    from peagle_sm.cli.output import say

    described = failure.from_exception(error, state.environ)
    as_json = state.format == "json" or (state.settings.format is None and failure.wants_json(arguments))
    with suppress(BrokenPipeError):  # nobody reads the words, and the code still says what happened
        if as_json:
            click.echo(failure.render_json(described), err=True)
        else:
            say(failure.render_text(described))
        if state.settings.debug:
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    _forget_closed_pipes()
    return described.exit_code


def _forget_closed_pipes() -> None:
    # The interpreter flushes both once more at exit; give them somewhere harmless to write.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the reader went away, or the disk is full
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


ENTRIES = (
    Entry("init", f"{_COMMANDS}.init:init", "Write a commented peagle.yaml for a model.", "Before"),
    Entry(
        "models", f"{_COMMANDS}.models:models", "List the models and draft heads of the catalogue.", "Before"
    ),
    Entry("heads", f"{_COMMANDS}.heads:heads", "List, check and stage draft heads.", "Before"),
    Entry("schema", f"{_COMMANDS}.schema:schema", "Print the JSON schema of peagle.yaml.", "Before"),
    Entry(
        "plan",
        f"{_COMMANDS}.plan:plan",
        "Show what a spec would create, and what it costs.",
        "Before",
    ),
    Entry(
        "lock",
        f"{_COMMANDS}.lock:lock",
        "Write down what JumpStart resolves a spec to; check or upgrade it.",
        "Before",
    ),
    Entry("cdk", f"{_COMMANDS}.cdk:cdk", "Write the CDK app, to deploy the stacks yourself.", "Before"),
    Entry("doctor", f"{_COMMANDS}.doctor:doctor", "Check the account, the spec and this machine.", "Before"),
    Entry("checks", f"{_COMMANDS}.checks:checks", "List what is checked before a deploy.", "Before"),
    Entry(
        "deploy",
        f"{_COMMANDS}.deploy:deploy",
        "Create the endpoint of a spec and follow it until it serves.",
        "Endpoints",
    ),
    Entry("list", f"{_COMMANDS}.list:list_", "List the endpoints made by peagle-sm.", "Endpoints"),
    Entry(
        "status",
        f"{_COMMANDS}.status:status",
        "Show one endpoint: state, mode, config, cost, end of life.",
        "Endpoints",
    ),
    Entry("wait", f"{_COMMANDS}.wait:wait", "Wait until an endpoint is in service, or gone.", "Endpoints"),
    Entry("logs", f"{_COMMANDS}.logs:logs", "Print what the engine behind an endpoint wrote.", "Endpoints"),
    Entry("invoke", f"{_COMMANDS}.invoke:invoke", "Send one request and stream the answer.", "Endpoints"),
    Entry("chat", f"{_COMMANDS}.chat:chat", "Talk with an endpoint.", "Endpoints"),
    Entry(
        "openai",
        f"{_COMMANDS}.openai_env:openai",
        "Print the environment for any OpenAI tool.",
        "Endpoints",
    ),
    Entry(
        "serve",
        f"{_COMMANDS}.serve:serve",
        "Serve OpenAI's API on this machine for an endpoint.",
        "Endpoints",
    ),
    Entry(
        "keep",
        f"{_COMMANDS}.keep:keep",
        "Keep an endpoint for a while, idle or not, and move the end of its life.",
        "Endpoints",
    ),
    Entry(
        "pause",
        f"{_COMMANDS}.pause:pause",
        "Turn an endpoint off, and keep what brings it back.",
        "Endpoints",
    ),
    Entry(
        "resume",
        f"{_COMMANDS}.resume:resume",
        "Bring a paused endpoint back and follow it until it serves.",
        "Endpoints",
    ),
    Entry(
        "update",
        f"{_COMMANDS}.update:update",
        "Bring an endpoint to what its spec says now.",
        "Endpoints",
    ),
    Entry(
        "delete",
        f"{_COMMANDS}.delete:delete",
        "Delete endpoints and all that belongs to them, and prove it.",
        "Endpoints",
    ),
    Entry(
        "bench",
        f"{_COMMANDS}.bench:bench",
        "Measure an endpoint under load.",
        "Measuring",
    ),
    Entry(
        "compare",
        f"{_COMMANDS}.compare:compare",
        "Compare endpoints, or modes of one spec: which is faster, and is that significant.",
        "Measuring",
    ),
    Entry(
        "tune",
        f"{_COMMANDS}.tune:tune",
        "Find the best num_speculative_tokens (K) for each concurrency, and the best mode.",
        "Measuring",
    ),
    Entry(
        "verify",
        f"{_COMMANDS}.verify:verify",
        "Check that an endpoint's answers are the target's own.",
        "Measuring",
    ),
    Entry(
        "cost",
        f"{_COMMANDS}.cost:cost",
        "Turn results into money: USD per million output tokens at each measured load.",
        "Measuring",
    ),
    Entry(
        "report",
        f"{_COMMANDS}.report:report",
        "Show what results files say: a summary here, a page, or Markdown.",
        "Measuring",
    ),
    Entry(
        "guard",
        f"{_COMMANDS}.guard:guard",
        "Install, watch and remove what turns off unused endpoints.",
        "Account and region",
    ),
    Entry("local", f"{_COMMANDS}.local:local", "Run a SageMaker on this machine.", "This machine"),
    Entry(
        "completion",
        f"{_COMMANDS}.completion:completion",
        "Print the completion script of a shell.",
        "This machine",
    ),
)


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from peagle_sm import __version__

    click.echo(f"peagle-sm {__version__}")
    ctx.exit()


@click.group(
    cls=App,
    entries=ENTRIES,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: docs/reference/exit-codes.md.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
@global_options
def app() -> None:
    """From a model's name to a P-EAGLE endpoint on SageMaker, and back to nothing.

    A first run, without an AWS account:

    \b
      peagle-sm local up --detach
      peagle-sm init tiny-code
      peagle-sm deploy --local
      peagle-sm invoke tiny-code-p-eagle -p 'def fibonacci(n):' --temperature 0 --local
      peagle-sm delete tiny-code-p-eagle --local
      peagle-sm local down
    """
