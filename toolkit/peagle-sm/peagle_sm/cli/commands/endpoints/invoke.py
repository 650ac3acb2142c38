"""`peagle-sm invoke`: send one request, stream the answer, and print its metrics.

The request is a prompt, messages or a whole body, from options, files or stdin.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from peagle_sm.cli.arguments import component_option, endpoint_argument, open_session, temperature_option
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.endpoints.status import read_status
from peagle_sm.cli.console import note, to_json
from peagle_sm.core.errors import NoChatTemplate, SpecError
from peagle_sm.core.words import encoded_utf8, utf8_text

if TYPE_CHECKING:
    from peagle_sm.aws.streams.runtime import Choice, Chunk, Completion, StreamSummary
    from peagle_sm.core.served_target import ServedTarget
    from peagle_sm.service import Endpoint, EndpointStatus


MAX_TOKENS = 256
"""The default; vLLM's own is 16 tokens for a prompt, and the rest of the context for a chat."""


@dataclass(frozen=True)
class InvokeInput:
    """A request: exactly one of the three fields is set."""

    prompt: str | None = None
    messages: list[Any] | None = None
    body: dict[str, Any] | None = None


def read_request(prompt: str | None, body: Path | None, stdin_text: str | None) -> InvokeInput:
    """Build the request from the options; stdin counts only if no option was given.

    Raises:
        SpecError: none or both are given, a file cannot be read, or it is not the JSON that it should be.
    """
    if prompt is not None and body is not None:
        raise SpecError(
            "several requests given: --prompt and --body",
            next_step="give only one of --prompt and --body",
            details={"found": ["--prompt", "--body"], "allowed": "exactly one"},
        )
    if prompt is not None:
        encoded_utf8(prompt, "--prompt")
        return InvokeInput(prompt=prompt)
    if body is not None:
        return _from_json(_json_file(body), str(body))
    return _from_stdin(stdin_text)


def as_chat(request: InvokeInput) -> InvokeInput:
    """Return the prompt as a user's message."""
    return InvokeInput(messages=[{"role": "user", "content": request.prompt}])


def parameters(request: InvokeInput, max_tokens: int | None, temperature: float | None) -> dict[str, Any]:
    """Return the fields to add; a whole body gets no default token limit."""
    limit = MAX_TOKENS if max_tokens is None and request.body is None else max_tokens
    given = {"max_tokens": limit, "temperature": temperature}
    return {name: value for name, value in given.items() if value is not None}


BODY_HINT = "--body FILE sends a JSON request body, --body - reads it from stdin"


def refuse_loose_words(name: str, extra: list[str]) -> None:
    """Refuse a prompt or body that was typed without its option.

    Raises:
        UsageError: there are words after the endpoint's name, or the name is a JSON body.
    """
    loose = extra if not name.startswith(("{", "[")) else [name]
    if not loose:
        return
    first = loose[0] if len(loose[0]) <= 60 else loose[0][:59] + "…"
    remedy = BODY_HINT if first.startswith(("{", "[")) else "-p TEXT sends a prompt"
    raise click.UsageError(
        f"Unexpected argument {first!r}: {remedy}.", click.get_current_context(silent=True)
    )


def body_hint(request: InvokeInput) -> str | None:
    """Return a note if the prompt looks like a JSON request body; it is sent as text."""
    try:
        value = json.loads(request.prompt or "")
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict) and value.keys() & {"prompt", "messages"}:
        return f"note: the prompt looks like a JSON request body, but is sent as plain text; {BODY_HINT}"
    return None


def stdin_text() -> str:
    """Return all of stdin.

    Raises:
        SpecError: it is not UTF-8.
    """
    return utf8_text(sys.stdin.buffer.read(), "stdin").replace("\r\n", "\n").replace("\r", "\n")


def _from_stdin(text: str | None) -> InvokeInput:
    if text is None or not text.strip():
        raise SpecError(
            "no prompt was given",
            next_step="add -p 'your prompt' or --body FILE, or pipe text or JSON into stdin",
            details={"allowed": "--prompt, --body or stdin"},
        )
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return InvokeInput(prompt=text)
    return _from_json(value, "stdin") if isinstance(value, list | dict) else InvokeInput(prompt=text)


def _json_file(path: Path) -> Any:
    try:
        text = stdin_text() if str(path) == "-" else utf8_text(path.read_bytes(), str(path))
    except OSError as error:
        raise SpecError(
            f"{path}: cannot be read: {error.strerror or error}",
            next_step="give a JSON file that can be read",
        ) from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not JSON: {error}", next_step="correct the JSON") from error


def _from_json(value: Any, origin: str) -> InvokeInput:
    """Read a request body, or a list of chat messages."""
    if isinstance(value, dict):
        return InvokeInput(body=value)
    if isinstance(value, list) and value and all(isinstance(each, dict) and "role" in each for each in value):
        return InvokeInput(messages=value)
    raise SpecError(
        f"{origin}: found {type(value).__name__}; allowed: a JSON object, or a list like "
        '[{"role": "user", "content": "…"}]',
        next_step="write a request body of the OpenAI API, or a list of its messages",
        details={"found": type(value).__name__, "allowed": "an object, or a list of objects with a role"},
    )


@click.command(cls=Command, context_settings={"allow_extra_args": True})
@endpoint_argument
@click.option("--prompt", "-p", help="The question, or the text to continue; - reads it from stdin.")
@click.option("--complete", is_flag=True, help="Continue the prompt as a text, without the chat template.")
@click.option(
    "--body",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="JSON file with a request body, or with a list of chat messages; - reads stdin.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    help=f"Maximum output tokens.  [default: {MAX_TOKENS}; with --body, the body's]",
)
@temperature_option
@component_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop if the stream has not ended after this long.  [default: 500]",
)
@click.option("--no-stream", is_flag=True, help="Get the whole answer in one response.")
@global_options
@click.pass_context
def invoke(
    ctx: click.Context,
    /,
    name: str,
    prompt: str | None,
    complete: bool,
    body: Path | None,
    max_tokens: int | None,
    temperature: float | None,
    component: str | None,
    timeout: float | None,
    no_stream: bool,
) -> None:
    """Send one request and stream the answer.

    A prompt is sent as a chat. It is sent as a text to continue if the model has no chat template, or if the
    endpoint serves small stand-in weights, as local endpoints of JumpStart's models do.

    The answer goes to stdout, each tool call on its own line. Time to first token, tokens per second and
    acceptance length go to stderr. Without --prompt or --body, the request is read from stdin: JSON messages,
    a JSON body, or plain text as the prompt. Without NAME, the name comes from ./peagle.yaml.
    """
    from peagle_sm.service import connect

    refuse_loose_words(name, ctx.args)
    state = ctx.ensure_object(State)
    if prompt == "-":  # as with --body, but never parsed as JSON
        prompt = stdin_text() or None
    piped = stdin_text() if prompt is None and body is None and not state.stdin_is_tty() else None
    request = read_request(prompt, body, piped)
    if complete and request.prompt is None:
        raise SpecError(
            "--complete continues a prompt; found a request body or messages.",
            next_step="Give --prompt, or leave --complete out.",
        )
    if hint := body_hint(request):
        note(state, hint)
    if no_stream and timeout is not None:
        raise SpecError(
            "--no-stream cannot be used with --timeout: SageMaker has its own limit of 60 s.",
            next_step="Leave one of them out.",
        )
    endpoint = connect(name, session=open_session(state))
    target = endpoint.target() if state.local else None

    def send(chosen: InvokeInput) -> Completion:
        arguments = _arguments(chosen, parameters(chosen, max_tokens, temperature))
        arguments["component"] = component
        if no_stream:
            return _whole(state, endpoint, arguments)
        return _streamed(state, endpoint, {**arguments, "total_timeout_s": timeout})

    if request.prompt is None or complete or (target is not None and target.stand_in):
        answer = send(request)
    else:
        try:
            answer = send(as_chat(request))
        except NoChatTemplate:
            note(state, "note: the model has no chat template, so it continues the prompt as a text")
            answer = send(request)
    finish(state, endpoint, answer, target)


def _arguments(request: InvokeInput, params: dict[str, Any]) -> dict[str, Any]:
    if request.body is not None:
        return {"body": {**request.body, **params}}
    chosen = {"messages": request.messages} if request.messages is not None else {"prompt": request.prompt}
    return {**chosen, **params}


def _whole(state: State, endpoint: Endpoint, arguments: dict[str, Any]) -> Completion:
    completion = endpoint.invoke(**arguments)
    if state.format != "json":
        for choice in completion.choices:
            if completion.others:
                click.echo(f"[answer {choice.index + 1} of {len(completion.choices)}]")
            click.echo(choice.text)
            _print_calls(choice)
    return completion


def _streamed(state: State, endpoint: Endpoint, arguments: dict[str, Any]) -> Completion:
    show = state.format != "json"
    stream = endpoint.stream(**arguments)
    try:
        for chunk in stream:
            if show:
                print_chunk(state, chunk)
    except NoChatTemplate:  # before any text
        show = False
        raise
    finally:
        stream.close()
        if show:
            click.echo()  # the text may end without a newline
    if show:
        _print_calls(stream.completion)
    return stream.completion


def _print_calls(answer: Completion | Choice) -> None:
    for call in answer.tool_calls:
        click.echo(f"{call.name}({call.arguments})")


def print_chunk(state: State, chunk: Chunk) -> None:
    """Print the text of a chunk; its reasoning goes to stderr, dim."""
    if chunk.reasoning and state.format == "table":  # shows that the model works before it answers
        click.secho(chunk.reasoning, dim=True, nl=False, err=True)
    click.echo(chunk.text, nl=False)


class HasStatus(Protocol):
    """The part of an endpoint that `finish` needs."""

    name: str

    def status(self) -> EndpointStatus:
        """Return everything known about the endpoint."""


def finish(state: State, endpoint: HasStatus, answer: Completion, target: ServedTarget | None = None) -> None:
    """Print the answer as JSON, or its metrics below the text; the status has the target if it is None."""
    summary = answer.summary
    wanted = summary.acceptance is None or not state.local
    status = read_status(state, endpoint.status) if wanted else None
    if target is None and status is not None:
        target = status.target
    if state.format == "json":
        click.echo(to_json({"name": endpoint.name, **answer_data(answer), **target_data(target)}))
    else:
        note(state, "\n" + render_summary(summary, target))
    missing = acceptance_note(summary, status, len(answer.choices)) if status is not None else None
    if missing:
        note(state, missing)


def target_data(target: ServedTarget | None) -> dict[str, Any]:
    """Return what a JSON document says of the target; None where it is not known."""
    return dict.fromkeys(("stand_in_weights", "figures_of")) if target is None else target.to_dict()


def render_summary(summary: StreamSummary, target: ServedTarget | None = None) -> str:
    """Render TTFT, tokens, OTPS, acceptance and finish reason, as far as known."""
    parts = []
    if summary.ttft_ms is not None:
        parts.append(f"TTFT {summary.ttft_ms:.0f} ms")
    if summary.output_tokens is not None:
        parts.append(f"{summary.output_tokens} tokens in {summary.total_ms / 1000:.2f} s")
    if summary.otps is not None:
        parts.append(f"{summary.otps:.1f} tokens/s")
    if summary.acceptance is not None:
        parts.append(
            f"acceptance length {summary.acceptance.acceptance_length:.2f} "
            f"of at most {summary.acceptance.num_speculative_tokens + 1}"
        )
    if summary.finish_reason is not None:
        parts.append(f"finish reason: {summary.finish_reason}")
    line = " · ".join(parts)
    return line if target is None or not target.note else f"{line}\n({target.note})"


def answer_data(answer: Completion) -> dict[str, Any]:
    """Return the answer for --format json: first choice, all `choices`, metrics."""
    choices = [_choice_data(choice) for choice in answer.choices]
    first = {key: choices[0][key] for key in ("text", "reasoning", "tool_calls", "logprobs")}
    return {**first, "choices": choices, "summary": answer.summary.to_dict()}


def _choice_data(choice: Choice) -> dict[str, Any]:
    return {
        "index": choice.index,
        "text": choice.text,
        "finish_reason": choice.finish_reason,
        "reasoning": choice.reasoning,
        "tool_calls": [asdict(call) for call in choice.tool_calls],
        "logprobs": [
            {
                "token": each.token,
                "logprob": each.logprob,
                "bytes": None if each.data is None else list(each.data),
                "top_logprobs": [{"token": token, "logprob": logprob} for token, logprob in each.top],
            }
            for each in choice.logprobs
        ],
    }


def acceptance_note(summary: StreamSummary, status: EndpointStatus, answers: int = 1) -> str | None:
    """Explain why a speculating endpoint reported no acceptance; None if it did."""
    if summary.acceptance is not None or status.speculative_config is None:
        return None
    if answers > 1:
        return f"note: no acceptance length: vLLM reports it only for requests with one answer, not {answers}"
    image = (status.image or "unknown").rpartition("/")[2]
    return (
        "note: the engine speculates but reported no acceptance length: "
        f"this needs vLLM 0.29 or later (image: {image})"
    )
