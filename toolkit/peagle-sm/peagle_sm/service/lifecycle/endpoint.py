"""Endpoint, which deploy() and connect() return: invoke, stream, inspect, delete.

`EndpointSender` finds the inference component that an invocation needs. `openai_base_url` and
`openai_client` reach the endpoint by SageMaker's OpenAI route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import component_names
from peagle_sm.aws.session.session import (
    CONNECT_TIMEOUT_S,
    RUNTIME_READ_TIMEOUT_S,
    Session,
)
from peagle_sm.aws.streams.refusals import ComponentRequired
from peagle_sm.core.errors import CredentialsError, NotFound, ServiceFault, SpecError
from peagle_sm.core.words import install_command
from peagle_sm.service.progress import Pacing, Progress

if TYPE_CHECKING:
    import openai
    from openai import AsyncOpenAI, OpenAI

    from peagle_sm.aws.control.cloudwatch import LogLine
    from peagle_sm.aws.streams.runtime import Completion
    from peagle_sm.aws.streams.token_stream import AsyncTokenStream, Patience, TokenStream
    from peagle_sm.core.served_target import ServedTarget
    from peagle_sm.service.inventory.endpoint_status import EndpointStatus
    from peagle_sm.service.lifecycle.deletion import DeleteReport


Answer = TypeVar("Answer")


class EndpointSender:
    """Sender of requests to one endpoint and, if needed, its inference component.

    For an endpoint without inference components, a request is one call. With components, the first request
    that names none needs two more calls.
    """

    def __init__(self, session: Session, endpoint: str) -> None:
        self._session = session
        self._endpoint = endpoint
        self._learnt: str | None = None

    def send(self, call: Callable[[str | None], Answer], component: str | None = None) -> Answer:
        """Run ``call`` with the named component, else with the default if AWS needs one.

        Raises:
            SpecError: the endpoint runs components, none was named, and none has the endpoint's own name.
            ServiceFault: the endpoint runs components and has none yet.
        """
        if component is not None:
            return call(component)
        try:
            return call(self._learnt)
        except ComponentRequired as refused:  # AWS refused before it ran anything, so a retry is safe
            self._learnt = self._default(refused)
        return call(self._learnt)

    def _default(self, refused: ComponentRequired) -> str:
        """Return the component with the endpoint's name, as with lifecycle.idle: scale-to-zero."""
        components = component_names(self._session, self._endpoint)
        if self._endpoint in components:
            return self._endpoint
        if not components:
            raise ServiceFault(
                f"endpoint {self._endpoint!r} needs an inference component and has none yet.",
                operation=refused.operation,
                code=refused.code,
                next_step="Create an inference component on the endpoint, then send the request again.",
                details=refused.details,
            ) from refused
        raise _must_name_one(self._endpoint, components, refused.details) from refused


EXTRA = install_command("openai")


def openai_base_url(session: Session, endpoint: str, component: str | None = None) -> str:
    """Return the ``base_url`` for an OpenAI client; it serves only chat completions.

    Source: developer guide, "Invoke endpoints with OpenAI-compatible APIs".
    """
    host = session.client("sagemaker-runtime").meta.endpoint_url.rstrip("/")
    inner = "" if component is None else f"/inference-components/{quote(component, safe='')}"
    return f"{host}/endpoints/{quote(endpoint, safe='')}{inner}/openai/v1"


def component_of(session: Session, endpoint: str, component: str | None = None) -> str | None:
    """Return the named component, else the one with the endpoint's name, if any.

    Raises:
        SpecError: the endpoint runs components, none was named, and none has the endpoint's name.
        ServiceFault: AWS returns an error, or does not answer.
    """
    if component is not None:
        return component
    try:
        components = component_names(session, endpoint)
    except CredentialsError:  # no permission to list them; most endpoints have none
        return None
    if not components or endpoint in components:
        return endpoint if components else None
    raise _must_name_one(endpoint, components, {})


def _must_name_one(endpoint: str, components: Sequence[str], details: Mapping[str, Any]) -> SpecError:
    return SpecError(
        f"endpoint {endpoint!r} runs inference components, and none of them has the endpoint's name, "
        f"so the request must name one; found none; allowed: {', '.join(components)}.",
        next_step=f"Add --component, for example {components[0]} (in Python: component={components[0]!r}).",
        details={**details, "components": list(components)},
    )


def openai_client(session: Session, endpoint: str, component: str | None, options: Any) -> openai.OpenAI:
    """Return an OpenAI client for the endpoint, with a new token for each request.

    Raises:
        NotFound: the package openai is not installed.
        SpecError: as `component_of`.
    """
    from peagle_sm.aws.session.signing import provider

    sdk = _sdk()
    given = _arguments(session, endpoint, component, options, sdk, sdk.DefaultHttpxClient)
    client: openai.OpenAI = sdk.OpenAI(api_key=provider(session), **given)
    return client


def async_openai_client(
    session: Session, endpoint: str, component: str | None, options: Any
) -> openai.AsyncOpenAI:
    """As `openai_client`, for asyncio."""
    import asyncio

    from peagle_sm.aws.session.signing import provider

    sdk = _sdk()
    given = _arguments(session, endpoint, component, options, sdk, sdk.DefaultAsyncHttpxClient)
    fresh = provider(session)

    async def token() -> str:
        # Refreshing credentials may call STS or SSO; other requests must not wait for that.
        return await asyncio.to_thread(fresh)

    client: openai.AsyncOpenAI = sdk.AsyncOpenAI(api_key=token, **given)
    return client


def _arguments(
    session: Session, endpoint: str, component: str | None, options: Any, sdk: Any, transport: Any
) -> dict[str, Any]:
    chosen = component_of(session, endpoint, component)
    # A stream may last 8 minutes on SageMaker, and the first token may take that long.
    timeout = sdk.Timeout(RUNTIME_READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    given = {"base_url": openai_base_url(session, endpoint, chosen), "timeout": timeout, **options}
    if session.is_local:
        given.setdefault("http_client", transport(trust_env=False))  # no proxy for this machine
    return given


def _sdk() -> Any:
    try:
        import openai
    except ImportError as error:
        message = "The OpenAI client needs the package openai, which is not installed here."
        raise NotFound(message, next_step=EXTRA) from error
    return openai


Messages = Sequence[Mapping[str, Any]]


class Endpoint:
    """An endpoint; as a context manager it deletes what its deploy created.

    An endpoint that already existed, or that `connect` returned, is kept: others may depend on it.

    Example::

        with peagle_sm.deploy("peagle.yaml", yes=True) as endpoint:
            for chunk in endpoint.stream(messages=[{"role": "user", "content": "Hello"}]):
                print(chunk.text, end="")
    """

    def __init__(
        self, name: str, session: Session, *, pacing: Pacing | None = None, made_here: bool = False
    ) -> None:
        self.name = name
        self.session = session
        self._made_here = made_here
        self._pacing = pacing or Pacing.for_session(session)
        self._sender = EndpointSender(session, name)

    def __repr__(self) -> str:
        where = self.session.local_url or self.session.region
        return f"Endpoint({self.name!r}, {where})"

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._made_here:
            return
        from peagle_sm.service.lifecycle.deletion import delete

        delete([self.name], session=self.session, pacing=self._pacing, missing_ok=True)

    def invoke(
        self,
        body: Mapping[str, Any] | None = None,
        *,
        prompt: str | None = None,
        messages: Messages | None = None,
        component: str | None = None,
        **params: Any,
    ) -> Completion:
        """Send one request and return the whole answer.

        SageMaker allows at most 60 s for it; `stream` allows 8 minutes.

        Give exactly one of ``prompt``, chat ``messages``, or a whole OpenAI ``body``; ``params`` are further
        fields, such as max_tokens and temperature. ``component`` names the inference component, if the
        endpoint runs some; by default it is the one with the endpoint's name.

        Raises:
            SpecError: the body is invalid or larger than 6,291,456 bytes (nothing is sent); or the request
                must name a component, or must not name one.
            NotFound: the endpoint or the component does not exist.
            ServiceFault: the engine failed, or no answer came.
        """
        from peagle_sm.aws.streams import runtime

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
        """Send one request and stream the answer; arguments and errors as in `invoke`.

        ``read_timeout_s`` limits the wait for the next bytes (490 s, since SageMaker ends a stream after 8
        minutes). ``total_timeout_s`` limits the whole answer, counted from the sending (500 s).

        Raises:
            StreamError: while reading: the stream was cut or contained an error; ``text`` is the text so far.
                `peagle-sm help streams` explains each kind.
            SpecError: also while reading, before any text: the engine refuses the request.
        """
        from peagle_sm.aws.streams import runtime
        from peagle_sm.aws.streams.token_stream import Patience

        encoded = runtime.request_body(body, prompt, messages, params, streamed=True)
        return self._stream(encoded, component, Patience.of(read_timeout_s, total_timeout_s))

    def astream(
        self,
        body: Mapping[str, Any] | None = None,
        *,
        prompt: str | None = None,
        messages: Messages | None = None,
        component: str | None = None,
        read_timeout_s: float | None = None,
        total_timeout_s: float | None = None,
        **params: Any,
    ) -> AsyncTokenStream:
        """Do the same as `stream`, for asyncio. Entering the stream sends the request.

        Example::

            async with endpoint.astream(messages=[{"role": "user", "content": "Hello"}]) as stream:
                async for chunk in stream:
                    print(chunk.text, end="")

        Raises:
            SpecError: the body or a timeout is invalid. Entering the stream raises the other errors of
                `stream`.
        """
        from peagle_sm.aws.streams import runtime
        from peagle_sm.aws.streams.token_stream import AsyncTokenStream, Patience

        encoded = runtime.request_body(body, prompt, messages, params, streamed=True)
        patience = Patience.of(read_timeout_s, total_timeout_s)
        return AsyncTokenStream(lambda: self._stream(encoded, component, patience))

    def _stream(self, body: bytes, component: str | None, patience: Patience) -> TokenStream:
        from peagle_sm.aws.streams import runtime

        clock = self._pacing.monotonic
        return self._sender.send(
            lambda named: runtime.stream(
                self.session, self.name, body, clock, component=named, patience=patience
            ),
            component,
        )

    def openai(self, *, component: str | None = None, **options: Any) -> OpenAI:
        """Return an OpenAI client for this endpoint; ``options`` go to the client.

        Each request gets a new bearer token. Pass ``model=""``: the endpoint has one model, and the engine
        accepts an empty name for it. SageMaker's OpenAI route serves only ``chat.completions``.

        Raises:
            NotFound: the package openai is not installed.
            SpecError: the endpoint runs components, and the call must name one.
        """
        return openai_client(self.session, self.name, component, options)

    def async_openai(self, *, component: str | None = None, **options: Any) -> AsyncOpenAI:
        """Do the same as `openai`, for asyncio."""
        return async_openai_client(self.session, self.name, component, options)

    def status(self) -> EndpointStatus:
        """Return the endpoint's status, price, lifetime and warnings."""
        from peagle_sm.service.inventory.inspection import status

        return status(self.name, session=self.session)

    def target(self) -> ServedTarget:
        """Return which model it serves, as far as its config and its tags say."""
        from peagle_sm.service.inventory.inspection import target_of

        facts = control.describe_endpoint(self.session, self.name)
        config = control.describe_endpoint_config(self.session, facts.config_name) if facts else None
        name = None if config is None else config.model_name
        model = None if name is None else control.describe_model(self.session, name)
        return target_of(self.session, model, (facts and control.tags_of(self.session, facts.arn)) or {})

    def logs(self, *, follow: bool = False, limit: int = 100) -> Iterator[LogLine]:
        """Yield its log lines, oldest first."""
        from peagle_sm.service.inventory.inspection import logs

        return logs(self.name, session=self.session, follow=follow, limit=limit, pacing=self._pacing)

    def delete(self, progress: Progress | None = None) -> DeleteReport:
        """Delete it with its config, model and schedule, and check that all are gone.

        Raises:
            NotFound: the endpoint and its resources do not exist.
            BillableLeft: AWS did not confirm that the endpoint is gone.
        """
        from peagle_sm.service.lifecycle.deletion import delete

        return delete([self.name], session=self.session, progress=progress, pacing=self._pacing)

    def metrics(self, component: str | None = None) -> str:
        """Return the Prometheus metrics of the engine; only on the local SageMaker.

        Raises:
            EngineError: the endpoint is on AWS, or the local server does not answer.
        """
        query = "" if component is None else f"?component={quote(component)}"
        return self.session.admin_text(f"endpoints/{quote(self.name)}/metrics{query}")


def connect(name: str, *, session: Session, pacing: Pacing | None = None) -> Endpoint:
    """Return an existing endpoint, also one not created by peagle-sm.

    Raises:
        NotFound: no endpoint has that name.
    """
    if control.describe_endpoint(session, name) is None:
        from peagle_sm.service.inventory.inspection import absent

        raise absent(session, name)
    return Endpoint(name, session, pacing=pacing)
