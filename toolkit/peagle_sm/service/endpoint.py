"""Endpoint: what a deploy hands back, to invoke, look at and delete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session import sagemaker_sdk
from peagle_sm.aws.session.session import Session, make_session, session_of
from peagle_sm.aws.streams import runtime
from peagle_sm.aws.streams.patience import Patience
from peagle_sm.aws.streams.runtime import Completion, TokenStream
from peagle_sm.service.events import Pacing, Progress
from peagle_sm.service.serving.invocation import Sender

if TYPE_CHECKING:
    import aiohttp
    from openai import AsyncOpenAI, OpenAI
    from sagemaker.core.resources import Endpoint as SageMakerEndpoint

    from peagle_sm.aws.control.logs import LogLine
    from peagle_sm.aws.streams.async_stream import AsyncTokenStream
    from peagle_sm.service.inventory.inspection import EndpointStatus
    from peagle_sm.service.lifecycle.deletion import DeleteReport

Messages = Sequence[Mapping[str, Any]]


class Endpoint:
    """One endpoint. As a context manager it deletes, on the way out, everything that its deploy made.

    One that served before its deploy, or that was connected to, stays: others may depend on it.

    Example::

        with peagle_sm.deploy("peagle.yaml", yes=True) as endpoint:
            for chunk in endpoint.stream(prompt="def fib(n):", max_tokens=64, temperature=0):
                print(chunk.text, end="")
    """

    def __init__(
        self, name: str, session: Session, *, pacing: Pacing | None = None, made_here: bool = False
    ) -> None:
        self.name = name
        self.session = session
        self._made_here = made_here
        self._pacing = pacing or Pacing.for_session(session)
        self._sender = Sender(session, name)

    def __repr__(self) -> str:
        where = self.session.local_url or self.session.region
        return f"Endpoint({self.name!r}, {where})"

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._made_here:
            return
        from peagle_sm.service.lifecycle.deletion import remove_if_there

        remove_if_there(self.session, self.name, self._pacing)

    def invoke(
        self,
        body: Mapping[str, Any] | None = None,
        *,
        prompt: str | None = None,
        messages: Messages | None = None,
        component: str | None = None,
        **params: Any,
    ) -> Completion:
        """Send one request and wait for the whole answer (at most 60 s on SageMaker; `stream` allows 8 min).

        Give exactly one of ``prompt``, chat ``messages``, or a whole OpenAI ``body``; ``params`` are further
        fields, such as max_tokens and temperature. ``component`` names the inference component to ask, where
        the endpoint runs some; left out, it is the one of the endpoint's own name.

        Raises:
            SpecError: a body that is not acceptable, or over 6,291,456 bytes (nothing is sent then); a
                component must be named, or must not be.
            NotFound: endpoint or component does not exist.
            ServiceFault: the engine failed, or no answer came.
        """
        encoded = runtime.request_body(body, prompt, messages, params, streamed=False)
        return self._sender.send(
            lambda named: runtime.invoke(
                self.session, self.name, encoded, self._pacing.monotonic, component=named
            ),
            component,
        )

    def stream(
        self,
        body: Mapping[str, Any] | None = None,
        *,
        prompt: str | None = None,
        messages: Messages | None = None,
        component: str | None = None,
        read_timeout_s: float | None = None,
        total_timeout_s: float | None = None,
        **params: Any,
    ) -> TokenStream:
        """Send one request and return its answer as it comes; arguments and errors as `invoke`.

        ``read_timeout_s`` is the longest silence that is waited out (490 s, since SageMaker ends a stream
        itself after 8 minutes), ``total_timeout_s`` the longest answer, from the sending on (500 s).

        Raises:
            StreamError: while reading: the stream was cut or carried an error; it has the text so far.
                docs/how-to/streams.md says what each kind means.
            SpecError: also while reading, before any text: the engine refuses the request.
        """
        encoded = runtime.request_body(body, prompt, messages, params, streamed=True)
        patience = Patience.of(read_timeout_s, total_timeout_s)
        return self._sender.send(
            lambda named: runtime.stream(
                self.session,
                self.name,
                encoded,
                self._pacing.monotonic,
                component=named,
                patience=patience,
            ),
            component,
        )

    def astream(
        self,
        body: Mapping[str, Any] | None = None,
        *,
        prompt: str | None = None,
        messages: Messages | None = None,
        component: str | None = None,
        read_timeout_s: float | None = None,
        total_timeout_s: float | None = None,
        http: aiohttp.ClientSession | None = None,
        **params: Any,
    ) -> AsyncTokenStream:
        """As `stream`, for asyncio; the request is sent as the stream is entered. Needs the extra ``async``.

        Each stream has a connection of its own, unless ``http`` is an aiohttp session to share: that saves
        a TLS handshake a request, and remains the caller's to close.

        Example::

            async with endpoint.astream(prompt="def fib(n):", max_tokens=64) as stream:
                async for chunk in stream:
                    print(chunk.text, end="")

        Raises:
            SpecError: a body or a time that is not acceptable. What else `stream` raises comes as the
                stream is entered, and NotFound where aiohttp is not installed.
        """
        from peagle_sm.aws.streams.async_runtime import AsyncCall
        from peagle_sm.aws.streams.async_stream import AsyncTokenStream

        encoded = runtime.request_body(body, prompt, messages, params, streamed=True)
        runtime.check_size(encoded)
        patience = Patience.of(read_timeout_s, total_timeout_s)
        call = AsyncCall(self.session, self.name, encoded, patience, http)
        return AsyncTokenStream(
            lambda: self._sender.asend(call.send, component),
            monotonic=self._pacing.monotonic,
            patience=patience,
        )

    def openai(self, *, component: str | None = None, **options: Any) -> OpenAI:
        """Return OpenAI's own client for this endpoint's OpenAI route; ``options`` are the client's.

        Its bearer token is made anew for each request. Give ``model=""``: the endpoint has one model, and
        the engine takes an empty name for it. SageMaker serves ``chat.completions`` there and nothing else.

        Raises:
            NotFound: the package openai is not installed.
            SpecError: the endpoint runs components, and it is not clear which one to ask.
        """
        from peagle_sm.service.serving.openai_access import openai_client

        return openai_client(self.session, self.name, component, options)

    def async_openai(self, *, component: str | None = None, **options: Any) -> AsyncOpenAI:
        """As `openai`, for asyncio."""
        from peagle_sm.service.serving.openai_access import async_openai_client

        return async_openai_client(self.session, self.name, component, options)

    @classmethod
    def from_sagemaker(
        cls, endpoint: SageMakerEndpoint, *, session: Session | None = None, pacing: Pacing | None = None
    ) -> Endpoint:
        """Return ours for an endpoint of the SageMaker Python SDK: v3's Endpoint, or v2's Predictor.

        Credentials, region and local server are those that it was made with, unless ``session`` is given.

        Raises:
            SpecError: it is none of these.
            NotFound: the endpoint does not exist.
            CredentialsError: it was made with the default session, and no region is set.
        """
        name = sagemaker_sdk.endpoint_name_of(endpoint)
        chosen = session or session_of(endpoint) or make_session()
        return connect(name, session=chosen, pacing=pacing)

    def to_sagemaker(self) -> SageMakerEndpoint:
        """Return the SageMaker Python SDK's ``sagemaker.core.resources.Endpoint`` for it.

        Raises:
            NotFound: the SDK, version 3, is not installed, or the endpoint does not exist.
        """
        where = self.session
        return sagemaker_sdk.sdk_endpoint(
            where.to_boto3(), self.name, region=where.region, local_url=where.local_url
        )

    def status(self) -> EndpointStatus:
        """Return everything known of the endpoint."""
        from peagle_sm.service.inventory.inspection import status

        return status(self.name, session=self.session)

    def logs(self, *, follow: bool = False, limit: int = 100) -> Iterator[LogLine]:
        """Yield its output, oldest first."""
        from peagle_sm.service.inventory.log_lines import logs

        return logs(self.name, session=self.session, follow=follow, limit=limit, pacing=self._pacing)

    def delete(self, progress: Progress | None = None, *, with_logs: bool = False) -> DeleteReport:
        """Delete it with its config, model and schedule, and ``with_logs`` its log group, and prove it.

        Raises:
            NotFound: nothing of it is there.
            BillableLeft: it could not be proven gone.
        """
        from peagle_sm.service.lifecycle.deletion import delete

        return delete(
            [self.name],
            session=self.session,
            with_logs=with_logs,
            progress=progress,
            pacing=self._pacing,
        )

    def metrics(self, component: str | None = None) -> str:
        """Return the Prometheus text of the engine, or of a component's; only from the local SageMaker.

        Raises:
            EngineError: on AWS, or when the local server does not answer.
        """
        asked = "" if component is None else f"?component={quote(component)}"
        return self.session.admin_text(f"endpoints/{quote(self.name)}/metrics{asked}")


def connect(name: str, *, session: Session, pacing: Pacing | None = None) -> Endpoint:
    """Return an endpoint that exists, whoever made it.

    Raises:
        NotFound: there is none of that name.
    """
    if control.describe_endpoint(session, name) is None:
        from peagle_sm.service.inventory.inspection import absent

        raise absent(session, name)
    return Endpoint(name, session, pacing=pacing)
