"""The loop of a chat: read a line, run its slash command or send it, show the answer.

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

from peagle_sm.cli.commands.chat.conversation import Answer, Conversation, Settings, ask, is_too_long
from peagle_sm.cli.commands.chat.screen import Meter, Screen, Spend, figures
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.files import CannotWrite, utf8_text, write_file

if TYPE_CHECKING:
    from peagle_sm.aws.streams.runtime import Chunk
    from peagle_sm.service import Endpoint


#: Name, argument, what it does; `/help` prints them in this order.
COMMANDS = (
    ("/help", "", "Show this."),
    ("/reset", "", "Forget the conversation; the system message stays."),
    ("/system", "TEXT", "Set the system message; `off` for none, nothing to show it."),
    ("/save", "FILE", "Write the conversation as JSON messages, for `invoke --messages`."),
    ("/temperature", "X", "0 takes the likeliest token each time; `off` for the engine's own."),
    ("/max-tokens", "N", "Stop an answer after N tokens."),
    ("/retry", "", "Ask the last question again, in place of its answer."),
    ("/exit", "", "Leave; so does Ctrl-D."),
)
NAMES = tuple(name for name, _, _ in COMMANDS)


@dataclass(frozen=True)
class Command:
    """A command and what follows it."""

    name: str
    argument: str


class Unknown(ValueError):
    """No such command; the message names what is meant, perhaps."""


def parse(line: str) -> Command | str:
    """Return the command in a line, or the text that is to be said; `//` begins text that begins with `/`.

    Raises:
        Unknown: the line begins with a slash, and no command is called so.
    """
    if not line.startswith("/"):
        return line
    if line.startswith("//"):
        return line[1:]
    name, _, argument = line.strip().partition(" ")
    if name not in NAMES:
        close = get_close_matches(name, NAMES, n=1)
        guess = f"; did you mean {close[0]}?" if close else "."
        raise Unknown(f"there is no command {name}{guess} /help lists them, // begins a line with a slash")
    return Command(name, argument.strip())


def help_text() -> str:
    """The commands and the keys, aligned."""
    rows = [(f"{name} {argument}".strip(), does) for name, argument, does in COMMANDS]
    rows += [
        ("line\\", "A backslash at the end goes on in the next line."),
        ('"""', "Begins a text of several lines, and ends it."),
        ("Ctrl-C", "Stop the answer; what came of it is kept."),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name.ljust(width)}  {does}" for name, does in rows)


_FENCE = '"""'
PROMPT, MORE = "> ", ". "


class LeftOff(Exception):
    """Ctrl-C at the prompt: what was typed is dropped."""


def texts(read: Callable[[str], str]) -> Iterator[str]:
    """What is said, one text after the other: a line, or several that a backslash or `\"\"\"` join.

    ``read`` is given the prompt, and raises EOFError at the end, `LeftOff` when a line was dropped; that
    error comes out once, and the next text begins anew. Blank lines are no text.
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
    """The next line of stdin.

    Raises:
        EOFError: there is none.
        SpecError: it is not UTF-8.
    """
    line = utf8_text(sys.stdin.buffer.readline(), "stdin")
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


def from_terminal(words: Sequence[str]) -> Callable[[str], str]:
    """A reader of lines that can be edited and called back with the arrow keys; Tab completes ``words``."""
    try:
        import readline
    except ImportError:  # a Python without it: the terminal's own editing is left
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
    """What the chat has come to."""

    turns: int = 0
    tokens: int = 0


class Chat:
    """One chat with one endpoint. `run` returns when somebody leaves, or the script ends."""

    def __init__(
        self,
        endpoint: Endpoint,
        screen: Screen,
        conversation: Conversation,
        settings: Settings,
        spend: Spend,
        *,
        keep_all: bool,
        scripted: bool,
        stand_in: bool,
        monotonic: Callable[[], float],
    ) -> None:
        """Take whom to talk to, where to show it, and how; ``scripted`` lines come from a pipe."""
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
        """How long it has lasted."""
        return self._monotonic() - self._began

    def run(self, read: Callable[[str], str]) -> None:
        """Read and answer until the end of the lines, or /exit.

        Raises:
            PeagleError: in a script: an answer failed, and no /retry followed.
        """
        self._status("")
        while True:
            try:
                for text in texts(read):
                    if not self._take(text):
                        return
                break
            except LeftOff:
                self._screen.note("\n(Ctrl-D or /exit leaves)")
        self._give_up()

    def _take(self, text: str) -> bool:
        """Do what a text says; False to leave."""
        try:
            said = parse(text)
        except Unknown as error:
            self._screen.note(str(error))
            return True
        if isinstance(said, str):
            self._give_up()
            self._ask(said)
            return True
        if said.name != "/retry":
            self._give_up()
        if said.name == "/exit":
            return False
        self._obey(said)
        return True

    def _give_up(self) -> None:
        """Let a script end with the error that it did not retry; somebody at a terminal has seen it."""
        if self._scripted and self._failed is not None:
            raise self._failed
        self._failed = None

    def _obey(self, command: Command) -> None:
        match command.name:
            case "/help":
                self._screen.note(help_text())
            case "/reset":
                self._conversation.reset()
                self._screen.note("(the conversation is forgotten)")
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
            self._screen.note("write /save FILE")
            return
        text = json.dumps(self._conversation.transcript(), indent=2, ensure_ascii=False) + "\n"
        try:
            write_file(Path(name).expanduser(), text, overwrite=False)
        except FileExistsError:
            self._screen.note(f"{name} is there already, and was not touched; give another name")
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
        self._screen.note(f"(temperature: {'left to the engine' if now is None else f'{now:g}'})")

    def _max_tokens(self, text: str) -> None:
        if text:
            value = _number(text, 1, 1_000_000)
            if value is None or value != int(value):
                self._screen.note(f"max-tokens: found {text!r}; allowed: a whole number from 1")
                return
            self._settings = replace(self._settings, max_tokens=int(value))
        self._screen.note(f"(an answer has at most {self._settings.max_tokens} tokens)")

    def _retry(self) -> None:
        question = self._unanswered or self._conversation.take_back()
        if question is None:
            self._screen.note("nothing has been asked yet")
            return
        if self._unanswered is not None and self._last_question() == question:
            self._conversation.take_back()  # the part of an answer that was kept gives way to the whole one
        self._ask(question)

    def _last_question(self) -> str | None:
        turns = self._conversation.turns
        return turns[-1].user if turns else None

    def _ask(self, question: str) -> None:
        meter = Meter(self._monotonic)
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
        self._tell(question, answer, meter)

    def _tell(self, question: str, answer: Answer, meter: Meter) -> None:
        told = figures(answer.summary) if answer.summary is not None else meter.text()
        ended = answer.summary.output_tokens if answer.summary is not None else None
        self.tally.tokens += meter.tokens if ended is None else ended  # a stopped answer has tokens too
        if answer.summary is not None:
            self._screen.figures(told)
        if answer.dropped:
            self._screen.note(
                f"(the conversation no longer fits the model's context: its {_turns(answer.dropped)} "
                "left out from now on; /save writes all of it, --keep-all refuses instead)"
            )
        if answer.stopped:
            kept = "what came of it is kept" if answer.text else "nothing had come of it"
            self._screen.note(f"(stopped; {kept}. /retry asks again)")
        if answer.error is not None:
            self._explain(answer.error, answer.text)
        self._status(told)
        self._screen.turn(self._document(question, answer))

    def _explain(self, error: PeagleError, text: str) -> None:
        self._failed = error
        if self._scripted:
            return  # it ends with this error, in its own words, unless /retry follows
        self._screen.note(f"error: {error.message}")
        if is_too_long(error):
            step = "/reset forgets the conversation" if self._keep_all else "ask something shorter"
            self._screen.note(f"  next: {step}; /max-tokens with a smaller number makes room too")
        else:
            kept = "what came of the answer is kept; " if text else ""
            self._screen.note(f"  next: {kept}/retry asks again")

    def _document(self, question: str, answer: Answer) -> dict[str, object]:
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

    def _status(self, told: str) -> None:
        self._screen.status(" · ".join(filter(None, (told, self._spend.text(self.seconds), "/help"))))


def _number(text: str, least: float, most: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if least <= value <= most else None


def _turns(count: int) -> str:
    return "oldest turn is" if count == 1 else f"{count} oldest turns are"
