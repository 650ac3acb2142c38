"""The two sides of a verification, asked through their own API: an endpoint of SageMaker, or a bare vLLM."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Protocol

from peagle_sm.aws.session.session import RUNTIME_READ_TIMEOUT_S, Session
from peagle_sm.aws.streams.events import EventReader
from peagle_sm.aws.streams.runtime import request_body, stream_source
from peagle_sm.core.errors import NotFound, ServiceFault, SpecError, StreamError
from peagle_sm.core.stream_errors import StreamCut, with_what_came
from peagle_sm.measure.bare_server import opener_for
from peagle_sm.measure.verify.answers import Answer, join_stream, parse_answer
from peagle_sm.service import Endpoint, connect
from peagle_sm.service.serving.invocation import Sender

Body = Mapping[str, Any]


class Engine(Protocol):
    """One side; both methods may be called from several threads."""

    name: str

    @property
    def log_hint(self) -> str:
        """How to read what this engine wrote."""

    def ask(self, body: Body) -> Mapping[str, Any]:
        """Return the whole answer, as the engine's JSON.

        Raises:
            SpecError: the engine refuses the request as wrong.
            ServiceFault: it failed, or no answer came.
        """

    def stream(self, body: Body) -> list[Mapping[str, Any]]:
        """Return all events of a streamed answer; raises StreamError too, where the stream is cut."""


class EndpointEngine:
    """An endpoint of SageMaker (or the local one)."""

    def __init__(self, session: Session, name: str, component: str | None = None) -> None:
        self.name = name
        self._session = session
        self._component = component
        self._endpoint: Endpoint = connect(name, session=session)
        self._sender = Sender(session, name)

    @property
    def log_hint(self) -> str:
        """The command that reaches this endpoint's log."""
        return f"read what its engine wrote: peagle-sm logs {self.name}{self._session.command_flags()}"

    def ask(self, body: Body) -> Mapping[str, Any]:
        """See `Engine`."""
        return self._endpoint.invoke(body, component=self._component).raw

    def stream(self, body: Body) -> list[Mapping[str, Any]]:
        """See `Engine`; all events, since tool calls and token ids are not in the toolkit's own chunks."""
        encoded = request_body(body, None, None, {}, streamed=True)
        source, request_id = self._sender.send(
            lambda named: stream_source(self._session, self.name, encoded, component=named), self._component
        )
        try:
            return read_events(source.parts, framed=source.framed, request_id=request_id)
        finally:
            source.close()


class UrlEngine:
    """A vLLM server reached over plain HTTP; ``url`` is its root, or ends in /invocations."""

    def __init__(self, url: str) -> None:
        self.name = url
        root = url.rstrip("/").removesuffix("/invocations").removesuffix("/v1")
        self._url = f"{root}/invocations"
        self._opener = opener_for(root)

    @property
    def log_hint(self) -> str:
        """A bare server keeps its own log."""
        return "read what the server at that URL wrote"

    def ask(self, body: Body) -> Mapping[str, Any]:
        """See `Engine`."""
        with closing(self._post(body, streamed=False)) as response:
            answer = json.loads(response.read())
        if not isinstance(answer, Mapping) or not answer.get("choices"):
            raise ServiceFault(
                f"{self._url}: the answer is not an OpenAI completion", code="UnexpectedAnswer"
            )
        return answer

    def stream(self, body: Body) -> list[Mapping[str, Any]]:
        """See `Engine`."""
        with closing(self._post(body, streamed=True)) as response:
            return read_events(iter(lambda: response.read1(65536), b""))

    def _post(self, body: Body, *, streamed: bool) -> Any:
        document = {name: value for name, value in body.items() if name != "stream_options"}
        document |= {"stream": streamed} | ({"stream_options": {"include_usage": True}} if streamed else {})
        data = json.dumps(document, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, data, headers, method="POST")
        try:
            return self._opener.open(request, timeout=RUNTIME_READ_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:500]
            if 400 <= error.code < 500 and error.code != 404:
                raise SpecError(f"the engine refuses the request ({error.code}): {said}") from error
            if error.code == 404:
                raise NotFound(
                    f"{self._url} does not exist (404)", next_step="give the root URL of a vLLM server"
                ) from error
            raise ServiceFault(f"{self._url}: the engine failed ({error.code}): {said}") from error
        except (urllib.error.URLError, OSError) as error:
            raise ServiceFault(
                f"{self._url} does not answer: {error}", next_step="check the URL, and that vLLM serves"
            ) from error


def read_events(parts: Iterable[bytes], *, framed: bool = False, request_id: str = "") -> list[Body]:
    """The JSON events of a stream up to [DONE]; ``framed``: inside AWS's event-stream messages.

    Raises:
        StreamError: it broke, carries an error, or ended before [DONE] and before a finish_reason.
    """
    reader, found = EventReader(framed=framed), list[Body]()
    try:
        for part in parts:
            found += reader.feed(part)
            if reader.done or reader.problem is not None:
                break
    except StreamError:
        raise
    except Exception as error:  # whatever the transport raises in mid-stream, the answer is cut
        broken = StreamCut(f"the stream broke: {error}")
        raise with_what_came(broken, join_stream(found).text, request_id) from error
    found += reader.finish(finished=join_stream(found).finish_reason is not None)
    if reader.problem is not None:
        raise with_what_came(reader.problem, join_stream(found).text, request_id)
    return found


def ask_all(
    engine: Engine, bodies: Sequence[Body], at_once: int, tick: Callable[[], None] = lambda: None
) -> list[Answer]:
    """Send all, ``at_once`` at a time, and return the answers in their order."""
    return [parse_answer(document) for document in ask_raw(engine, bodies, at_once, tick)]


def ask_raw(
    engine: Engine, bodies: Sequence[Body], at_once: int, tick: Callable[[], None] = lambda: None
) -> list[Mapping[str, Any]]:
    """As `ask_all`, with the engine's own documents."""

    def one(body: Body) -> Mapping[str, Any]:
        answer = engine.ask(body)
        tick()
        return answer

    with ThreadPoolExecutor(max_workers=max(1, at_once)) as pool:
        waiting = [pool.submit(one, body) for body in bodies]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # one failed: the rest need not be sent
            raise


def stream_all(engine: Engine, bodies: Sequence[Body], at_once: int) -> list[Answer | StreamError]:
    """Stream all, ``at_once`` at a time; a stream that breaks is returned as its error."""

    def one(body: Body) -> Answer | StreamError:
        try:
            return join_stream(engine.stream(body))
        except StreamError as error:
            return error

    with ThreadPoolExecutor(max_workers=max(1, at_once)) as pool:
        return list(pool.map(one, bodies))
