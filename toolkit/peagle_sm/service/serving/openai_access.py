"""How OpenAI's clients reach an endpoint: its address on the OpenAI route, and clients that are ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from peagle_sm.aws.control.components import component_names
from peagle_sm.aws.session.bearer import provider
from peagle_sm.aws.session.session import CONNECT_TIMEOUT_S, RUNTIME_READ_TIMEOUT_S, Session
from peagle_sm.core.errors import CredentialsError, NotFound, SpecError
from peagle_sm.core.extras import install_command

if TYPE_CHECKING:
    import openai

EXTRA = install_command("openai")


def openai_base_url(session: Session, endpoint: str, component: str | None = None) -> str:
    """Return the address that an OpenAI client takes as ``base_url``; it serves chat completions only.

    Source: developer guide, "Invoke endpoints with OpenAI-compatible APIs".
    """
    host = session.client("sagemaker-runtime").meta.endpoint_url.rstrip("/")
    inner = "" if component is None else f"/inference-components/{quote(component, safe='')}"
    return f"{host}/endpoints/{quote(endpoint, safe='')}{inner}/openai/v1"


def component_of(session: Session, endpoint: str, component: str | None = None) -> str | None:
    """Return the inference component to ask: the named one, else that of the endpoint's own name, if any.

    Raises:
        SpecError: the endpoint runs components, none was named, and none has the endpoint's name.
        ServiceFault: AWS answers with a fault, or not at all.
    """
    if component is not None:
        return component
    try:
        found = component_names(session, endpoint)
    except CredentialsError:  # no right to list them; most endpoints run none
        return None
    if not found or endpoint in found:
        return endpoint if found else None
    raise SpecError(
        f"endpoint {endpoint!r} runs inference components, and none of them has its name: "
        f"found no component to ask; allowed: {', '.join(found)}.",
        next_step=f"Name one, for example --component {found[0]} (in Python: component={found[0]!r}).",
        details={"components": list(found)},
    )


def openai_client(session: Session, endpoint: str, component: str | None, options: Any) -> openai.OpenAI:
    """Return a client of the endpoint's OpenAI route whose token is made anew for each request.

    Raises:
        NotFound: the package openai is not installed.
        SpecError: as `component_of`.
    """
    sdk = _sdk()
    found = component_of(session, endpoint, component)
    given = {**_defaults(sdk), **options}
    if session.is_local:
        given.setdefault("http_client", sdk.DefaultHttpxClient(trust_env=False))  # no proxy to this machine
    client: openai.OpenAI = sdk.OpenAI(
        base_url=openai_base_url(session, endpoint, found), api_key=provider(session), **given
    )
    return client


def async_openai_client(
    session: Session, endpoint: str, component: str | None, options: Any
) -> openai.AsyncOpenAI:
    """As `openai_client`, for asyncio."""
    import asyncio

    sdk = _sdk()
    found = component_of(session, endpoint, component)
    given = {**_defaults(sdk), **options}
    if session.is_local:
        given.setdefault("http_client", sdk.DefaultAsyncHttpxClient(trust_env=False))
    fresh = provider(session)

    async def token() -> str:
        # Credentials that renew themselves may ask STS or SSO on the way; nobody else is to wait for that.
        return await asyncio.to_thread(fresh)

    client: openai.AsyncOpenAI = sdk.AsyncOpenAI(
        base_url=openai_base_url(session, endpoint, found), api_key=token, **given
    )
    return client


def _defaults(sdk: Any) -> dict[str, Any]:
    # A stream may last 8 minutes on SageMaker, and nothing may come before its first token.
    return {"timeout": sdk.Timeout(RUNTIME_READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)}


def _sdk() -> Any:
    try:
        import openai
    except ImportError as error:
        raise NotFound(
            "OpenAI's client needs the package openai, which this Python does not have.", next_step=EXTRA
        ) from error
    return openai
