"""The root command: the table of commands, and one place where errors become words and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from peagle_sm.cli.lazy import Entry, LazyGroup
from peagle_sm.cli.options import global_options
from peagle_sm.cli.state import State

PROGRAM = "peagle-sm"
"""The name in usage lines and suggestions, however the program was started."""
_COMMANDS = "peagle_sm.cli.commands"


class App(LazyGroup):
    """The root group; `main` prints errors as docs/cli.md says and exits with a documented code."""

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

    def _run(self, arguments: list[str], complete_var: str | None, extra: dict[str, Any]) -> int:
        try:
            outcome = super().main(arguments, PROGRAM, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
            return outcome if isinstance(outcome, int) else 0
        except BrokenPipeError:
            return _quietly_without_stdout()
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            return error.exit_code
        except (Exception, KeyboardInterrupt) as error:
            return _report(error, arguments, extra["obj"])


def _report(error: BaseException, arguments: Sequence[str], state: State) -> int:
    from peagle_sm.cli import failure

    described = failure.from_exception(error, state.environ)
    as_json = state.format == "json" or (state.settings.format is None and failure.wants_json(arguments))
    click.echo((failure.render_json if as_json else failure.render_text)(described), err=True)
    if state.settings.debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    return described.exit_code


def _quietly_without_stdout() -> int:
    # The interpreter flushes stdout once more at exit; give it somewhere harmless to write.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + 13


ENTRIES = (
    Entry("init", f"{_COMMANDS}.init:init", "Write a commented peagle.yaml for a model.", "Before"),
    Entry(
        "models", f"{_COMMANDS}.models:models", "List the models and draft heads of the catalogue.", "Before"
    ),
    Entry("schema", f"{_COMMANDS}.schema:schema", "Print the JSON schema of peagle.yaml.", "Before"),
    Entry(
        "plan",
        f"{_COMMANDS}.plan:plan",
        "Show what a spec would create, and what it costs.",
        "Before",
    ),
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
    Entry("logs", f"{_COMMANDS}.logs:logs", "Print what the engine behind an endpoint wrote.", "Endpoints"),
    Entry("invoke", f"{_COMMANDS}.invoke:invoke", "Send one request and stream the answer.", "Endpoints"),
    Entry(
        "delete",
        f"{_COMMANDS}.delete:delete",
        "Delete endpoints and all that belongs to them, and prove it.",
        "Endpoints",
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
    epilog="Exit codes: docs/exit-codes.md.",
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
      peagle-sm invoke tiny-code-p-eagle -p 'def fibonacci(n):' --local
      peagle-sm delete tiny-code-p-eagle --local
      peagle-sm local down
    """
