"""Engines of a verification: SageMaker endpoints and bare vLLM servers, each through its API.

`EnginePair` holds the baseline and the candidate. It requests answers, streams and scores.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from peagle_bench.benchmark.endpoint_arm import opener_for
from peagle_bench.results.records import ArmRecord
from peagle_bench.verify.answers import (
    READ_LOGPROBS,
    SCORED_RANKS,
    Scored,
    TokenAnswer,
    Top,
    join_stream,
    parse_answer,
    parse_scores,
)
from peagle_sm.aws.session.session import RUNTIME_READ_TIMEOUT_S, Session
from peagle_sm.aws.streams.decoding import EventReader
from peagle_sm.aws.streams.runtime import request_body, stream_source
from peagle_sm.core.errors import NotFound, ServiceFault, SpecError, StreamCut, StreamError, with_what_came
from peagle_sm.service import Endpoint, connect
from peagle_sm.service.lifecycle.endpoint import EndpointSender

Body = Mapping[str, Any]
Until = Callable[[Mapping[str, Any]], bool]  #: whether to read no further after this event of a stream


class Engine(Protocol):
    """One engine; its methods may be called from several threads."""

    name: str

    @property
    def log_hint(self) -> str:
        """How to read this engine's log."""

    def ask(self, body: Body) -> Mapping[str, Any]:
        """Return the answer without streaming, as the engine's JSON.

        Raises:
            SpecError: the engine refused the request as invalid.
            ServiceFault: the engine failed or did not answer.
        """

    def stream(self, body: Body, until: Until | None = None) -> list[Mapping[str, Any]]:
        """Return all events of a streamed answer; also raises StreamError if the stream is cut.

        ``until`` gets each event; once it returns true, the stream is closed, as by a client that leaves.
        """


class EndpointEngine:
    """Engine behind a SageMaker endpoint (or one of the local SageMaker)."""

    def __init__(self, session: Session, name: str, component: str | None = None) -> None:
        self.name = name
        self._session = session
        self._component = component
        self._endpoint: Endpoint = connect(name, session=session)
        self._sender = EndpointSender(session, name)

    @property
    def log_hint(self) -> str:
        """Command that shows this endpoint's log."""
        return f"read the engine's log: peagle-sm logs {self.name}{self._session.command_flags()}"

    def ask(self, body: Body) -> Mapping[str, Any]:
        """See `Engine`."""
        return self._endpoint.invoke(body, component=self._component).raw

    def stream(self, body: Body, until: Until | None = None) -> list[Mapping[str, Any]]:
        """See `Engine`; returns raw events, since the toolkit's chunks lack tool calls and token ids."""
        encoded = request_body(body, None, None, {}, streamed=True)
        source, request_id = self._sender.send(
            lambda named: stream_source(self._session, self.name, encoded, component=named), self._component
        )
        try:
            return read_events(source.parts, framed=source.framed, request_id=request_id, until=until)
        finally:
            source.close()


class UrlEngine:
    """Engine of a vLLM server over plain HTTP; ``url`` is its root, or ends in /invocations."""

    def __init__(self, url: str) -> None:
        self.name = url
        root = url.rstrip("/").removesuffix("/invocations").removesuffix("/v1")
        self._url = f"{root}/invocations"
        self._opener = opener_for(root)

    @property
    def log_hint(self) -> str:
        """Advice to read the server's own log."""
        return "read the log of the server at that URL"

    def ask(self, body: Body) -> Mapping[str, Any]:
        """See `Engine`."""
        with closing(self._post(body, streamed=False)) as response:
            answer = json.loads(response.read())
        if not isinstance(answer, Mapping) or not answer.get("choices"):
            raise ServiceFault(
                f"{self._url}: the answer is not an OpenAI completion", code="UnexpectedAnswer"
            )
        return answer

    def stream(self, body: Body, until: Until | None = None) -> list[Mapping[str, Any]]:
        """See `Engine`."""
        with closing(self._post(body, streamed=True)) as response:
            return read_events(iter(lambda: response.read1(65536), b""), until=until)

    def _post(self, body: Body, *, streamed: bool) -> Any:
        document = {name: value for name, value in body.items() if name != "stream_options"}
        document |= {"stream": streamed} | ({"stream_options": {"include_usage": True}} if streamed else {})
        data = json.dumps(document, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, data, headers, method="POST")
        try:
            return self._opener.open(request, timeout=RUNTIME_READ_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace")[:500]
            if 400 <= error.code < 500 and error.code != 404:
                raise SpecError(f"the engine refused the request ({error.code}): {reason}") from error
            if error.code == 404:
                raise NotFound(
                    f"{self._url} does not exist (404)", next_step="give the root URL of a vLLM server"
                ) from error
            raise ServiceFault(f"{self._url}: the engine failed ({error.code}): {reason}") from error
        except (urllib.error.URLError, OSError) as error:
            raise ServiceFault(
                f"{self._url} does not answer: {error}", next_step="check the URL, and that vLLM is running"
            ) from error


def engine_of(session: Session | None, arm: ArmRecord) -> Engine:
    """Return the engine of an arm.

    Raises:
        SpecError: a SageMaker endpoint, and no session.
    """
    if arm.transport == "http":
        return UrlEngine(arm.endpoint)
    if session is None:
        raise SpecError(f"{arm.endpoint!r} is the name of an endpoint, but no session was given")
    return EndpointEngine(session, arm.endpoint, arm.component)


def read_events(
    parts: Iterable[bytes], *, framed: bool = False, request_id: str = "", until: Until | None = None
) -> list[Body]:
    """Read the JSON events of a stream up to [DONE]; ``framed``: inside AWS event-stream messages.

    ``until`` ends the reading after the first event for which it returns true.

    Raises:
        StreamError: the stream broke, contains an error, or ended before [DONE] and finish_reason.
    """
    reader, events = EventReader(framed=framed), list[Body]()
    try:
        for part in parts:
            for event in reader.feed(part):
                events.append(event)
                if until is not None and until(event):
                    return events
            if reader.done or reader.problem is not None:
                break
    except StreamError:
        raise
    except Exception as error:  # after any transport error in mid-stream the answer is incomplete
        broken = StreamCut(f"the stream broke: {error}")
        raise with_what_came(broken, join_stream(events).text, request_id) from error
    events += reader.finish(finished=join_stream(events).finish_reason is not None)
    if reader.problem is not None:
        raise with_what_came(reader.problem, join_stream(events).text, request_id)
    return events


def ask_raw(
    engine: Engine, bodies: Sequence[Body], at_once: int, tick: Callable[[], None] = lambda: None
) -> list[Mapping[str, Any]]:
    """Send all bodies, ``at_once`` in parallel, and return the engine's JSON documents in order."""

    def ask(body: Body) -> Mapping[str, Any]:
        answer = engine.ask(body)
        tick()
        return answer

    with ThreadPoolExecutor(max_workers=max(1, at_once)) as pool:
        waiting = [pool.submit(ask, body) for body in bodies]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # after a failure the rest need not be sent
            raise


def stream_all(engine: Engine, bodies: Sequence[Body], at_once: int) -> list[TokenAnswer | StreamError]:
    """Stream all bodies, ``at_once`` in parallel; a broken stream is returned as its error."""

    def stream(body: Body) -> TokenAnswer | StreamError:
        try:
            return join_stream(engine.stream(body))
        except StreamError as error:
            return error

    with ThreadPoolExecutor(max_workers=max(1, at_once)) as pool:
        return list(pool.map(stream, bodies))


Side = Literal["baseline", "candidate"]
#: Overrides of server defaults from the model's generation_config, which scoring does not apply.
NEUTRAL: dict[str, Any] = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
GREEDY: dict[str, Any] = {"temperature": 0.0, **NEUTRAL}
SAMPLED: dict[str, Any] = {"temperature": 1.0, **NEUTRAL}


@dataclass(frozen=True)
class TokenPrompt:
    """One prompt as token ids."""

    id: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Options:
    """Numbers of requests and tokens of a verification. Counts are prompts unless the name says tokens."""

    max_tokens: int = 256
    concurrency: int = 8
    samples: int = 128
    sample_tokens: int = 128
    features: int = 24  #: for logprobs, stop strings and streaming
    parameter_samples: int = 16  #: for each sampling parameter
    contexts: int = 16  #: positions at which the next token is sampled repeatedly
    repeats: int = 128  #: samples at each position
    structured: int = 12
    structured_tokens: int = 512
    longest_tokens: int = 40_000
    seed: int = 0


class SideFailed(Exception):
    """Error of one engine: it refused a request as invalid (``refused``), or failed to answer it."""

    def __init__(self, side: Side, error: SpecError | ServiceFault | StreamError) -> None:
        super().__init__(str(error))
        self.side = side
        self.error = error
        self.refused = isinstance(error, SpecError)


@contextmanager
def failing(side: Side) -> Iterator[None]:
    """Raise a request's error as one of this side.

    Raises:
        SideFailed: a request inside was refused or failed.
    """
    try:
        yield
    except (SpecError, ServiceFault, StreamError) as error:
        raise SideFailed(side, error) from error


@dataclass
class EnginePair:
    """Baseline and candidate, and the scores so far; ``tick`` is called after each answer."""

    baseline: Engine
    candidate: Engine
    options: Options
    tick: Callable[[], None] = lambda: None
    _scores: dict[
        tuple[str, tuple[int, ...]], tuple[tuple[float, ...], tuple[float, ...], tuple[Top, ...]]
    ] = field(default_factory=dict)

    def _engine(self, side: Side) -> Engine:
        return self.baseline if side == "baseline" else self.candidate

    def ask(self, side: Side, bodies: Sequence[Body], at_once: int | None = None) -> list[TokenAnswer]:
        """Return the answers of one engine without streaming, in order.

        Raises:
            SideFailed: a request was refused or failed.
        """
        with failing(side):
            documents = ask_raw(self._engine(side), bodies, at_once or self.options.concurrency, self.tick)
        try:
            return [parse_answer(document) for document in documents]
        except ValueError as error:
            raise SideFailed(side, ServiceFault(f"{self._engine(side).name}: {error}")) from error

    def stream(self, side: Side, bodies: Sequence[Body]) -> list[TokenAnswer | StreamError]:
        """Return the streamed answers of one engine, in order; a broken one as its error."""
        with failing(side):
            return stream_all(self._engine(side), bodies, self.options.concurrency)

    def prompts(self, items: Sequence[tuple[str, Mapping[str, Any]]]) -> list[TokenPrompt]:
        """Return the token ids of each body's prompt, by the baseline's template and tokenizer.

        Raises:
            SideFailed: the baseline refused a prompt.
            ServiceFault: the baseline does not return token ids (vLLM before 0.10.2).
        """
        kept = ("prompt", "messages", "tools", "chat_template_kwargs", "reasoning_effort")
        bodies = [
            {**{k: v for k, v in body.items() if k in kept}, "max_tokens": 1, "return_token_ids": True}
            for _, body in items
        ]
        with failing("baseline"):
            documents = ask_raw(self.baseline, bodies, self.options.concurrency, self.tick)
        tokenized = []
        for (name, _), document in zip(items, documents, strict=True):
            ids = document.get("prompt_token_ids") or document["choices"][0].get("prompt_token_ids")
            if not ids:
                raise ServiceFault(
                    f"{self.baseline.name} returns no token ids, which verify needs to compare answers",
                    next_step="use vLLM 0.10.2 or later (return_token_ids)",
                )
            tokenized.append(TokenPrompt(name, tuple(ids)))
        return tokenized

    def greedy(
        self, side: Side, prompts: Sequence[TokenPrompt], at_once: int, **more: Any
    ) -> list[TokenAnswer]:
        """Return greedy answers of at most ``options.max_tokens`` tokens."""
        return self.ask(side, [greedy_body(p, self.options.max_tokens, **more) for p in prompts], at_once)

    def score(self, prompts: Sequence[TokenPrompt], answers: Sequence[TokenAnswer]) -> list[Scored]:
        """Score each answer under the baseline; equal answers to one prompt are scored once.

        Raises:
            SideFailed: the baseline refused (for example if its --max-logprobs is below 5).
        """
        pairs = list(zip(prompts, answers, strict=True))
        new = {(p.id, a.ids): p for p, a in pairs if a.ids and (p.id, a.ids) not in self._scores}
        bodies = [
            {"prompt": [*p.ids, *ids], "max_tokens": 1, "prompt_logprobs": SCORED_RANKS, **GREEDY}
            for (_, ids), p in new.items()
        ]
        with failing("baseline"):
            documents = ask_raw(self.baseline, bodies, self.options.concurrency, self.tick)
        try:
            for (key, prompt), document in zip(new.items(), documents, strict=True):
                self._scores[key] = parse_scores(document, len(prompt.ids), key[1])
        except (ValueError, KeyError) as error:
            raise SideFailed(
                "baseline", ServiceFault(f"{self.baseline.name} returned invalid scores: {error}")
            ) from error
        return [Scored(a, *self._scores.get((p.id, a.ids), ((), (), ()))) for p, a in pairs]


def greedy_body(prompt: TokenPrompt, max_tokens: int, **more: Any) -> dict[str, Any]:
    """Make the body of a greedy completion of a prompt's token ids."""
    return {
        "prompt": list(prompt.ids),
        "max_tokens": max_tokens,
        "return_token_ids": True,
        **GREEDY,
        **more,
    }


#: Fields that make a completion report the most likely tokens, by id.
WITH_LOGPROBS: dict[str, Any] = {"logprobs": READ_LOGPROBS, "return_tokens_as_token_ids": True}
