"""The loop of a chat: read a line, run its command or send it, show the answer.

Lines come from a terminal or from a pipe.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from peagle_sm.aws.files import CannotWrite, write_file
from peagle_sm.cli.commands.chat.conversation import ChatAnswer, ChatSettings, Conversation, ask, is_too_long
from peagle_sm.cli.commands.chat.screen import Screen, Spend, TokenMeter, figures
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.words import utf8_text

if TYPE_CHECKING:
    from peagle_sm.aws.streams.runtime import Chunk
    from peagle_sm.service import Endpoint


#: Name, argument and effect of each command; `/help` prints them in this order.
COMMANDS = (
    ("/help", "", "Show this list."),
    ("/reset", "", "Delete the conversation; keep the system message."),
    ("/system", "TEXT", "Set the system message; `off` removes it; without TEXT, show it."),
    ("/save", "FILE", "Write the conversation as JSON messages, for `invoke --messages`."),
    ("/temperature", "X", "Set the sampling temperature; 0 is greedy, `off` the engine's default."),
    ("/max-tokens", "N", "Set the maximum output tokens per answer."),
    ("/retry", "", "Send the last message again and replace its answer."),
    ("/exit", "", "End the chat; Ctrl-D does the same."),
)
NAMES = tuple(name for name, _, _ in COMMANDS)


@dataclass(frozen=True)
class SlashCommand:
    """A slash command and its argument."""

    name: str
    argument: str


class UnknownCommand(ValueError):
    """An unknown slash command; the message suggests a similar one."""


def parse(line: str) -> SlashCommand | str:
    """Return a line's command, or the text to send; `//` escapes a leading slash.

    Raises:
        Unknown: the line begins with a slash but is not a command.
    """
    if not line.startswith("/"):
        return line
    if line.startswith("//"):
        return line[1:]
    name, _, argument = line.strip().partition(" ")
    if name not in NAMES:
        close = get_close_matches(name, NAMES, n=1)
        guess = f"; did you mean {close[0]}?" if close else "."
        raise UnknownCommand(
            f"unknown command {name}{guess} /help lists commands; // begins a line with a slash"
        )
    return SlashCommand(name, argument.strip())


def help_text() -> str:
    """Render the commands and the keys, aligned."""
    rows = [(f"{name} {argument}".strip(), effect) for name, argument, effect in COMMANDS]
    rows += [
        ("line\\", "A backslash at the end continues on the next line."),
        ('"""', "Begins and ends a text of several lines."),
        ("Ctrl-C", "Stop the answer; keep the received part."),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name.ljust(width)}  {effect}" for name, effect in rows)


_FENCE = '"""'
PROMPT, MORE = "> ", ". "


class LeftOff(Exception):
    """Ctrl-C at the prompt; the typed text is discarded."""


def texts(read: Callable[[str], str]) -> Iterator[str]:
    """Yield the user's texts: one line, or several joined by a backslash or `\"\"\"`.

    ``read`` gets the prompt. It raises EOFError at the end, and `LeftOff` when a line was discarded; that
    error is passed on, and the next call begins a new text. Blank lines are skipped.
    """
    while True:
        try:
            text = _text(read)
        except EOFError:
            return
        if text.strip():
            yield text


def _text(read: Callable[[str], str]) -> str:
    line = read(PROMPT)
    if line.strip().startswith(_FENCE):
        return _fenced(line.strip().removeprefix(_FENCE), read)
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(read(MORE))
    return "\n".join(lines)


def _fenced(line: str, read: Callable[[str], str]) -> str:
    lines: list[str] = []
    while not line.rstrip().endswith(_FENCE):
        lines.append(line)
        line = read(MORE)
    lines.append(line.rstrip().removesuffix(_FENCE))
    return "\n".join(lines).strip("\n")


def from_pipe(prompt: str) -> str:
    """Read the next line of stdin.

    Raises:
        EOFError: stdin has ended.
        SpecError: it is not UTF-8.
    """
    line = utf8_text(sys.stdin.buffer.readline(), "stdin")
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


def from_terminal(words: Sequence[str]) -> Callable[[str], str]:
    """Return a line reader with history and editing keys; Tab completes ``words``."""
    try:
        import readline
    except ImportError:  # a Python without readline: only the terminal's own editing works
        return _typed

    def complete(text: str, number: int) -> str | None:
        found = [word for word in words if word.startswith(text)] if text.startswith("/") else []
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \n")
    readline.parse_and_bind("tab: complete")
    return _typed


def _typed(prompt: str) -> str:
    try:
        return input(prompt)
    except KeyboardInterrupt:
        raise LeftOff from None


@dataclass
class Tally:
    """Totals of the chat."""

    turns: int = 0
    tokens: int = 0


class Chat:
    """One chat with one endpoint. `run` returns when the user or the script ends it."""

    def __init__(
        self,
        endpoint: Endpoint,
        screen: Screen,
        conversation: Conversation,
        settings: ChatSettings,
        spend: Spend,
        *,
        keep_all: bool,
        scripted: bool,
        stand_in: bool,
        monotonic: Callable[[], float],
    ) -> None:
        """Take the endpoint, output and settings; ``scripted``: lines come from a pipe."""
        self._endpoint = endpoint
        self._screen = screen
        self._conversation = conversation
        self._settings = settings
        self._spend = spend
        self._keep_all = keep_all
        self._scripted = scripted
        self._stand_in = stand_in
        self._monotonic = monotonic
        self._began = monotonic()
        self._unanswered: str | None = None
        self._failed: PeagleError | None = None
        self.tally = Tally()

    @property
    def seconds(self) -> float:
        """Seconds since the chat began."""
        return self._monotonic() - self._began

    def run(self, read: Callable[[str], str]) -> None:
        """Read lines and answer them until they end, or until /exit.

        Raises:
            PeagleError: in a script, an answer failed and no /retry followed.
        """
        self._status("")
        while True:
            try:
                for text in texts(read):
                    if not self._take(text):
                        return
                break
            except LeftOff:
                self._screen.note("\n(Ctrl-D or /exit ends the chat)")
        self._end_failed_script()

    def _take(self, text: str) -> bool:
        """Run a command or send a text; return False to end the chat."""
        try:
            command = parse(text)
        except UnknownCommand as error:
            self._screen.note(str(error))
            return True
        if isinstance(command, str):
            self._end_failed_script()
            self._ask(command)
            return True
        if command.name != "/retry":
            self._end_failed_script()
        if command.name == "/exit":
            return False
        self._execute(command)
        return True

    def _end_failed_script(self) -> None:
        """Raise a script's last error, unless it was retried; a terminal has already shown it."""
        if self._scripted and self._failed is not None:
            raise self._failed
        self._failed = None

    def _execute(self, command: SlashCommand) -> None:
        match command.name:
            case "/help":
                self._screen.note(help_text())
            case "/reset":
                self._conversation.reset()
                self._screen.note("(the conversation was deleted)")
            case "/system":
                self._system(command.argument)
            case "/save":
                self._save(command.argument)
            case "/temperature":
                self._temperature(command.argument)
            case "/max-tokens":
                self._max_tokens(command.argument)
            case "/retry":
                self._retry()

    def _system(self, text: str) -> None:
        if text:
            self._conversation.system = None if text == "off" else text
        self._screen.note(f"(system: {self._conversation.system or 'none'})")

    def _save(self, name: str) -> None:
        if not name:
            self._screen.note("give a file name: /save FILE")
            return
        text = json.dumps(self._conversation.transcript(), indent=2, ensure_ascii=False) + "\n"
        try:
            write_file(Path(name).expanduser(), text, overwrite=False)
        except FileExistsError:
            self._screen.note(f"{name} already exists and was not changed; give another name")
        except CannotWrite as error:
            self._screen.note(error.message)
        else:
            self._screen.note(f"(saved to {name}, turns: {len(self._conversation.turns)})")

    def _temperature(self, text: str) -> None:
        if text:
            value = None if text == "off" else _number(text, 0, 2)
            if value is None and text != "off":
                self._screen.note(f"temperature: found {text!r}; allowed: 0 to 2, or off")
                return
            self._settings = replace(self._settings, temperature=value)
        now = self._settings.temperature
        default = "the engine's default"
        self._screen.note(f"(temperature: {default if now is None else f'{now:g}'})")

    def _max_tokens(self, text: str) -> None:
        if text:
            value = _number(text, 1, 1_000_000)
            if value is None or value != int(value):
                self._screen.note(f"max-tokens: found {text!r}; allowed: a whole number, 1 or more")
                return
            self._settings = replace(self._settings, max_tokens=int(value))
        self._screen.note(f"(an answer has at most {self._settings.max_tokens} tokens)")

    def _retry(self) -> None:
        question = self._unanswered or self._conversation.take_back()
        if question is None:
            self._screen.note("there is no message to retry yet")
            return
        turns = self._conversation.turns
        if self._unanswered is not None and turns and turns[-1].user == question:
            self._conversation.take_back()  # the whole answer replaces the partial one
        self._ask(question)

    def _ask(self, question: str) -> None:
        meter = TokenMeter(self._monotonic)
        self._failed = None
        self._status("waiting for the first token")

        def show(chunk: Chunk) -> None:
            meter.chunk(chunk)
            self._screen.chunk(chunk)
            self._status(meter.text())

        with self._screen.answering():
            answer = ask(
                self._endpoint, self._conversation, question, self._settings, show, keep_all=self._keep_all
            )
        self._screen.end_line()
        self._unanswered = None if answer.summary is not None else question
        self.tally.turns += 1
        self._report(question, answer, meter)

    def _report(self, question: str, answer: ChatAnswer, meter: TokenMeter) -> None:
        metrics = figures(answer.summary) if answer.summary is not None else meter.text()
        ended = answer.summary.output_tokens if answer.summary is not None else None
        self.tally.tokens += meter.tokens if ended is None else ended  # a stopped answer has tokens too
        if answer.summary is not None:
            self._screen.figures(metrics)
        if answer.dropped:
            self._screen.note(
                f"(the conversation no longer fits the model's context: its {_turns(answer.dropped)} "
                "no longer sent; /save writes all turns, --keep-all gives an error instead)"
            )
        if answer.stopped:
            kept = "the received part is kept" if answer.text else "no text was received"
            self._screen.note(f"(stopped; {kept}. /retry sends the message again)")
        if answer.error is not None:
            self._explain(answer.error, answer.text)
        self._status(metrics)
        self._screen.turn(self._document(question, answer))

    def _explain(self, error: PeagleError, text: str) -> None:
        self._failed = error
        if self._scripted:
            return  # the command ends with this error, unless /retry follows
        self._screen.note(f"error: {error.message}")
        if is_too_long(error):
            step = "/reset deletes the conversation" if self._keep_all else "send a shorter message"
            self._screen.note(f"  next: {step}; a smaller /max-tokens makes room too")
        else:
            kept = "the received part is kept; " if text else ""
            self._screen.note(f"  next: {kept}/retry sends the message again")

    def _document(self, question: str, answer: ChatAnswer) -> dict[str, object]:
        error = answer.error
        return {
            "turn": self.tally.turns,
            "user": question,
            "assistant": answer.text,
            "complete": answer.summary is not None,
            "stopped": answer.stopped,
            "error": None if error is None else {"type": type(error).__name__, "message": error.message},
            "turns_left_out": self._conversation.left_out,
            "summary": None if answer.summary is None else answer.summary.to_dict(),
            "spent_usd": self._spend.usd(self.seconds),
            "stand_in_weights": self._stand_in,
        }

    def _status(self, metrics: str) -> None:
        self._screen.status(" · ".join(filter(None, (metrics, self._spend.text(self.seconds), "/help"))))


def _number(text: str, least: float, most: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if least <= value <= most else None


def _turns(count: int) -> str:
    return "oldest turn is" if count == 1 else f"{count} oldest turns are"
