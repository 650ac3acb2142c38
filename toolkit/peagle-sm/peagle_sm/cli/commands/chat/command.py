"""`peagle-sm chat`: a conversation with an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from peagle_sm.cli.arguments import endpoint_argument, open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.endpoints.status import read_status
from peagle_sm.cli.console import note, termination_unwinds
from peagle_sm.core.words import STAND_IN, elapsed, speculation_text, usd

if TYPE_CHECKING:
    from peagle_sm.cli.commands.chat.loop import Chat
    from peagle_sm.service import EndpointStatus

MAX_TOKENS = 512
"""The default limit of output tokens; the engine's own is the rest of its context."""


@click.command(cls=Command)
@endpoint_argument
@click.option("--system", metavar="TEXT", help="System message at the beginning of the conversation.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), default=MAX_TOKENS, help="Maximum output tokens per answer."
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 2),
    help="Sampling temperature; 0 is greedy.  [default: the engine's]",
)
@click.option(
    "--keep-all",
    is_flag=True,
    help="Fail when the conversation exceeds the context, instead of leaving out its oldest turns.",
)
@click.option(
    "--component",
    help="Inference component to invoke.  [default: the one with the endpoint's name, if it has components]",
)
@global_options
@click.pass_obj
def chat(
    state: State,
    name: str,
    system: str | None,
    max_tokens: int,
    temperature: float | None,
    keep_all: bool,
    component: str | None,
) -> None:
    """Chat with an endpoint.

    Answers are streamed. Each request contains the whole conversation so far. On a terminal, the last row
    shows tokens per second, acceptance length and the cost so far. Ctrl-C stops an answer and keeps the
    received part, Ctrl-D ends the chat, /help lists the commands. Keys typed during an answer are ignored.

    From a pipe, each line is a turn; the commands work there too. The first failed answer ends the chat with
    the exit code of its error, unless the next line is /retry. With --format json, prints one object per
    turn. Without NAME, the name comes from ./peagle.yaml.
    """
    from peagle_sm.cli.commands.chat import loop
    from peagle_sm.cli.commands.chat.conversation import ChatSettings, Conversation
    from peagle_sm.cli.commands.chat.loop import NAMES, Chat
    from peagle_sm.cli.commands.chat.screen import Screen, Spend
    from peagle_sm.service import connect

    endpoint = connect(name, session=open_session(state))
    status = read_status(state, endpoint.status)
    scripted = not state.stdin_is_tty()
    stand_in = state.local or (status is not None and status.stand_in_weights)
    price = None if status is None else status.summary.usd_per_hour
    spend = Spend(0.0 if state.local else price)
    if status is not None:
        _greet(state, status, stand_in)
    if not scripted:
        note(state, "/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends the chat.")
    screen = Screen(state)
    talk = Chat(
        endpoint,
        screen,
        Conversation(system),
        ChatSettings(max_tokens, temperature, component),
        spend,
        keep_all=keep_all,
        scripted=scripted,
        stand_in=stand_in,
        monotonic=state.monotonic,
    )
    with termination_unwinds():
        try:
            talk.run(loop.from_pipe if scripted else loop.from_terminal(NAMES))
        finally:
            screen.close()
    _part(state, name, talk, spend.usd_per_hour)


def _greet(state: State, status: EndpointStatus, stand_in: bool) -> None:
    summary = status.summary
    price = "no cost" if state.local else usd(summary.usd_per_hour, "hour")
    speculation = speculation_text(summary.mode, summary.num_speculative_tokens)
    note(state, f"{summary.name} ({summary.status}; {speculation}; {price})")
    if stand_in:
        note(state, STAND_IN)


def _part(state: State, name: str, talk: Chat, usd_per_hour: float | None) -> None:
    turns = "1 turn" if talk.tally.turns == 1 else f"{talk.tally.turns} turns"
    total = f"{turns}, {talk.tally.tokens} tokens in {elapsed(talk.seconds)}"
    if state.local:
        note(state, total)
        return
    spent = None if usd_per_hour is None else usd_per_hour * talk.seconds / 3600
    note(state, f"{total}, {usd(spent)} at {usd(usd_per_hour, 'hour')}")
    note(state, f"{name} is still on and billed; to delete it: peagle-sm delete {name}{state.flags}")
