"""`peagle-sm chat`: a conversation with an endpoint, on a terminal or from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.arguments import component_option, endpoint_argument, open_session, temperature_option
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.endpoints.invoke import print_chunk, render_summary, target_data
from peagle_sm.cli.commands.endpoints.status import read_status
from peagle_sm.cli.console import note, to_json
from peagle_sm.cli.failure import from_exception, render_text
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.words import elapsed, speculation_text, usd, utf8_text

if TYPE_CHECKING:
    from peagle_sm.aws.streams.runtime import Chunk, StreamSummary
    from peagle_sm.core.served_target import ServedTarget
    from peagle_sm.service import Endpoint

MAX_TOKENS = 512
"""The default limit of output tokens; the engine's own is the rest of its context."""
HELP = """\
  /reset  Delete the conversation; keep the system message.
  /help   Show this list.
  /quit   End the chat; Ctrl-D does the same.
  Ctrl-C  Stop the answer; keep the received part.
  To send a line that begins with a slash, put a space before it."""

Message = dict[str, str]


@dataclass(frozen=True)
class Answer:
    """The answer to one message.

    ``summary`` is None if the answer is incomplete: it failed with ``error``, or Ctrl-C stopped it.
    """

    text: str
    summary: StreamSummary | None = None
    error: PeagleError | None = None

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C stopped the answer."""
        return self.summary is None and self.error is None


def ask(
    endpoint: Endpoint, messages: list[Message], parameters: dict[str, Any], show: Callable[[Chunk], None]
) -> Answer:
    """Send the messages once and show each chunk of the answer."""
    stream = summary = error = None
    try:
        stream = endpoint.stream(messages=messages, **parameters)
        for chunk in stream:
            show(chunk)
        summary = stream.summary
    except KeyboardInterrupt:
        pass
    except PeagleError as failure:
        error = failure
    finally:
        if stream is not None:
            stream.close()
    return Answer("" if stream is None else stream.text, summary, error)


def typed_lines(state: State) -> Iterator[str]:
    """Yield the lines that are typed on the terminal until Ctrl-D; Ctrl-C discards the line.

    Keys that were typed during an answer are discarded.
    """
    from peagle_sm.service.progress import discard_typed

    with suppress(ImportError):  # with readline, input() has a history and editing keys
        import readline  # noqa: F401
    while True:
        discard_typed()
        try:
            yield input("> ")
        except EOFError:
            click.echo(err=True)
            return
        except KeyboardInterrupt:
            note(state, "\n(Ctrl-D or /quit ends the chat)")


def piped_lines() -> Iterator[str]:
    """Yield the lines of stdin.

    Raises:
        SpecError: a line is not UTF-8.
    """
    for line in sys.stdin.buffer:
        yield utf8_text(line, "stdin")


class Chat:
    """One conversation: its messages, and the totals of its answers."""

    def __init__(
        self,
        state: State,
        endpoint: Endpoint,
        system: str | None,
        parameters: dict[str, Any],
        *,
        target: ServedTarget | None,
    ) -> None:
        """Begin with the system message alone; ``parameters`` go with each request."""
        self._state = state
        self._endpoint = endpoint
        self._parameters = parameters
        self._beginning = [] if system is None else [{"role": "system", "content": system}]
        self._messages = [*self._beginning]
        self._target = target
        self._reasoning = False
        self.turns = 0
        self.tokens = 0

    def run(self, lines: Iterator[str], *, interactive: bool) -> None:
        """Run the commands and answer the other lines, until the lines end or /quit.

        Raises:
            PeagleError: an answer failed, and the chat is not interactive.
        """
        for line in lines:
            match line.rstrip():
                case "":
                    continue
                case "/quit":
                    return
                case "/help":
                    note(self._state, HELP)
                case "/reset":
                    self._messages = [*self._beginning]
                    note(self._state, "(the conversation was deleted)")
                case command if command.startswith("/"):
                    note(self._state, f"unknown command {command}. Commands: /reset, /help, /quit")
                case text:
                    error = self._turn(text.strip())
                    if error is not None and not interactive:
                        raise error
                    if error is not None:
                        note(self._state, render_text(from_exception(error)))
                        note(self._state, "  /reset deletes the conversation.")

    def _turn(self, text: str) -> PeagleError | None:
        question = {"role": "user", "content": text}
        answer = ask(self._endpoint, [*self._messages, question], self._parameters, self._show)
        if answer.text:
            self._messages += [question, {"role": "assistant", "content": answer.text}]
        self.turns += 1
        if self._state.format == "json":
            click.echo(to_json(self._document(text, answer), indent=None))
            sys.stdout.flush()
        elif not answer.text.endswith("\n") and (answer.text or answer.error is None):
            click.echo()
        if answer.summary is not None:
            self.tokens += answer.summary.output_tokens or 0
            if self._state.format == "table":
                note(self._state, f"({render_summary(answer.summary)})")
        if answer.stopped:
            kept = "the received part is kept" if answer.text else "no text was received"
            note(self._state, f"(stopped; {kept})")
        return answer.error

    def _show(self, chunk: Chunk) -> None:
        if self._state.format == "json":
            return
        if chunk.text and self._reasoning:
            click.echo("\n", err=True)
        self._reasoning = bool(chunk.reasoning) and self._state.format == "table"
        print_chunk(self._state, chunk)

    def _document(self, question: str, answer: Answer) -> dict[str, Any]:
        error = answer.error
        return {
            "turn": self.turns,
            "user": question,
            "assistant": answer.text,
            "complete": answer.summary is not None,
            "stopped": answer.stopped,
            "error": None if error is None else {"type": type(error).__name__, "message": error.message},
            "summary": None if answer.summary is None else answer.summary.to_dict(),
            **target_data(self._target),
        }


@click.command(cls=Command)
@endpoint_argument
@click.option("--system", metavar="TEXT", help="System message at the beginning of the conversation.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), default=MAX_TOKENS, help="Maximum output tokens per answer."
)
@temperature_option
@component_option
@global_options
@click.pass_obj
def chat(
    state: State,
    name: str,
    system: str | None,
    max_tokens: int,
    temperature: float | None,
    component: str | None,
) -> None:
    """Chat with an endpoint.

    Answers are streamed. Each request contains the whole conversation so far. After each answer, a line
    shows time to first token, tokens per second and acceptance length. Ctrl-C stops an answer and keeps the
    received part, Ctrl-D ends the chat, /help lists the commands. Keys typed during an answer are ignored.

    From a pipe, each line is a turn; the commands work there too. The first failed answer ends the chat with
    the exit code of its error. With --format json, prints one object per turn. Without NAME, the name comes
    from ./peagle.yaml.
    """
    from peagle_sm.service import connect

    endpoint = connect(name, session=open_session(state))
    status = read_status(state, endpoint.status)
    usd_per_hour = None if status is None else status.summary.usd_per_hour
    if status is not None:
        speculation = speculation_text(status.summary.mode, status.summary.num_speculative_tokens)
        price = "no cost" if state.local else usd(usd_per_hour, "hour")
        note(state, f"{status.summary.name} ({status.summary.status}; {speculation}; {price})")
    target = None if status is None else status.target
    if target is not None and target.note:
        note(state, target.note)
    interactive = state.stdin_is_tty()
    if interactive:
        note(state, "/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends the chat.")
    parameters: dict[str, Any] = {"max_tokens": max_tokens, "component": component}
    if temperature is not None:
        parameters["temperature"] = temperature
    talk = Chat(state, endpoint, system, parameters, target=target)
    began = state.monotonic()
    talk.run(typed_lines(state) if interactive else piped_lines(), interactive=interactive)
    seconds = state.monotonic() - began
    turns = "1 turn" if talk.turns == 1 else f"{talk.turns} turns"
    total = f"{turns}, {talk.tokens} tokens in {elapsed(seconds)}"
    if state.local:
        note(state, total)
        return
    spent = None if usd_per_hour is None else usd_per_hour * seconds / 3600
    note(state, f"{total}, {usd(spent)} at {usd(usd_per_hour, 'hour')}")
    note(state, f"{name} is still on and billed; to delete it: peagle-sm delete {name}{state.flags}")
