"""The root command: the table of all commands, errors and exit codes.

The table names each command's module as a string, so that --help imports none of them.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from peagle_sm.cli.base import Entry, LazyGroup, State, global_options, write_sections

PROGRAM = "peagle-sm"
"""The name in usage lines and suggestions, however the program was started."""


class _ReaderGoneError(Exception):
    """A closed pipe, hidden from click, which ends BrokenPipeError with code 1."""


class App(LazyGroup):
    """The root group; its `main` prints errors and exits with a documented code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command line; exit if `standalone_mode`, else return the exit code."""
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of a first week, then the names of the others."""
        first = {title: [self.entries[name] for name in names] for title, names in _FIRST_WEEK.items()}
        write_sections(formatter, first)
        shown = {name for names in _FIRST_WEEK.values() for name in names}
        others: dict[str, list[str]] = {}
        for entry in self.entries.values():
            if entry.name not in shown:
                others.setdefault(entry.section, []).append(entry.name)
        with formatter.section("More commands; peagle-sm help all describes them"):
            formatter.write_dl([(section, ", ".join(names)) for section, names in others.items()])

    def all_commands(self, ctx: click.Context) -> str:
        """Return the table of all commands, section by section."""
        formatter = ctx.make_formatter()
        super().format_commands(ctx, formatter)
        return formatter.getvalue().strip("\n")

    def _run(self, arguments: list[str], complete_var: str | None, extra: dict[str, Any]) -> int:
        try:
            outcome = super().main(arguments, PROGRAM, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
            return outcome if isinstance(outcome, int) else 0
        except (BrokenPipeError, _ReaderGoneError):
            _forget_closed_pipes()
            return 128 + 13  # 128 + SIGPIPE, as a shell reports it
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            return error.exit_code
        except (Exception, KeyboardInterrupt) as error:
            return _report(error, arguments, extra["obj"])


def _report(error: BaseException, arguments: Sequence[str], state: State) -> int:
    from peagle_sm.cli import failure
    from peagle_sm.cli.console import say

    described = failure.from_exception(error, state.environ)
    as_json = state.format == "json" or (state.settings.format is None and failure.wants_json(arguments))
    with suppress(BrokenPipeError):  # stderr is closed too: the exit code still reports the error
        if as_json:
            click.echo(failure.render_json(described), err=True)
        else:
            say(failure.render_text(described))
        if state.settings.debug:
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    _forget_closed_pipes()
    return described.exit_code


def _forget_closed_pipes() -> None:
    # The interpreter flushes both streams again at exit, so a closed one is replaced by /dev/null.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the pipe is closed, or the disk is full
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_FIRST_WEEK = {
    "Plan": ("init", "plan"),
    "Run": ("deploy", "status", "invoke", "pause", "delete"),
    "Measure": ("bench", "compare"),
    "Try it without AWS": ("local",),
}

#: Each command: its section of the help page, its name, where it is, and its line in the help.
_COMMANDS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Planning": (
        ("init", "commands.planning.init:init", "Write a commented peagle.yaml for a model."),
        ("models", "commands.planning.catalog:models", "List the models in the catalogue."),
        ("heads", "commands.planning.heads:heads", "List draft heads, check them, or copy them to S3."),
        ("plan", "commands.planning.plan:plan", "Show what a spec would create, and what it would cost."),
        (
            "lock",
            "commands.planning.plan:lock",
            "Pin what JumpStart resolves a spec to; check or upgrade the lock.",
        ),
        ("cdk", "commands.planning.init:cdk", "Write the CDK app, to deploy the stacks yourself."),
        ("doctor", "commands.planning.doctor:doctor", "Check the account, the spec and this machine."),
    ),
    "Endpoints": (
        (
            "deploy",
            "commands.endpoints.deploy:deploy",
            "Create an endpoint from a spec and wait until it is in service.",
        ),
        ("list", "commands.endpoints.status:list_", "List the endpoints created by peagle-sm."),
        (
            "status",
            "commands.endpoints.status:status",
            "Show one endpoint: status, mode, config, cost and lifetime.",
        ),
        ("wait", "commands.endpoints.status:wait", "Wait until an endpoint is in service, or deleted."),
        ("logs", "commands.endpoints.status:logs", "Print the engine logs of an endpoint."),
        ("invoke", "commands.endpoints.invoke:invoke", "Send one request and stream the answer."),
        ("chat", "commands.endpoints.chat:chat", "Chat with an endpoint."),
        (
            "openai",
            "commands.endpoints.openai_api:openai",
            "Print the environment variables for OpenAI clients.",
        ),
        (
            "serve",
            "commands.endpoints.openai_api:serve",
            "Run a local proxy with the OpenAI API for an endpoint.",
        ),
        (
            "keep",
            "commands.endpoints.pause:keep",
            "Keep an endpoint running for a while, even if idle, and extend its lifetime.",
        ),
        (
            "pause",
            "commands.endpoints.pause:pause",
            "Turn an endpoint off; keep its config and model, so that it can be resumed.",
        ),
        (
            "resume",
            "commands.endpoints.pause:resume",
            "Turn a paused endpoint on again and wait until it is in service.",
        ),
        ("update", "commands.endpoints.deploy:update", "Update an endpoint to its spec as it is now."),
        (
            "delete",
            "commands.endpoints.pause:delete",
            "Delete endpoints and all their resources, and check that they are gone.",
        ),
    ),
    "Measuring": (
        ("bench", "peagle-bench", "Measure an endpoint under load."),
        (
            "compare",
            "peagle-bench",
            "Compare the speed of endpoints, or of one spec's modes; test for significance.",
        ),
        (
            "tune",
            "peagle-bench",
            "Find the best num_speculative_tokens (K) for each concurrency, and the best mode.",
        ),
        ("verify", "peagle-bench", "Check that speculation does not change the target model's answers."),
        ("packs", "peagle-bench", "List the workload packs: what each shows, and what it needs."),
        (
            "acceptance",
            "peagle-bench",
            "Show the acceptance of an endpoint's traffic by slice, and where it fell.",
        ),
        (
            "cost",
            "peagle-bench",
            "Show what tokens cost: USD per million output tokens at each measured load.",
        ),
        (
            "decide",
            "peagle-bench",
            "Decide whether to call a model by the token (Amazon Bedrock) or to host it on SageMaker.",
        ),
        (
            "report",
            "peagle-bench",
            "Summarise results files: in the terminal, as an HTML page, or as Markdown.",
        ),
    ),
    "Learning": (("learn", "peagle-learn", "Train a draft head on your traffic, prove it, and promote it."),),
    "Account and region": (
        (
            "guard",
            "commands.guard:guard",
            "Install, inspect and remove the guard, which turns off unused endpoints.",
        ),
    ),
    "This machine": (
        ("local", "commands.local:local", "Run a local SageMaker on this machine."),
        ("help", "commands.help:help_", "Show the help of a command, or a page of the documentation."),
    ),
}
ENTRIES = tuple(Entry(*row, section) for section, rows in _COMMANDS.items() for row in rows)


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
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
    epilog="Exit codes: peagle-sm help exit-codes.",
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
    """Deploy, measure and delete P-EAGLE endpoints on Amazon SageMaker.

    A first run, without an AWS account:

    \b
      peagle-sm local up --detach
      peagle-sm init smollm2-135m-instruct
      peagle-sm deploy --local
      peagle-sm invoke -p 'How do I reverse a string in Python?' --local
      peagle-sm delete smollm2-135m-instruct-p-eagle --local
      peagle-sm local down
    """
