"""The OpenAI SDK against an endpoint of the local server, without retries: errors show as they are."""

from __future__ import annotations

from typing import Any

import openai

from peagle_sm.aws.session.signing import bearer_token, provider
from tests.local.serving import Server, local_session

QUESTION: Any = [{"role": "user", "content": "def fib(n):"}]


def token(server: Server, hours: float = 12) -> str:
    return bearer_token(local_session(server), hours=hours).token


def route_url(server: Server, endpoint: str, component: str | None = None) -> str:
    inner = "" if component is None else f"/inference-components/{component}"
    return f"{server.url}/endpoints/{endpoint}{inner}/openai/v1"


def openai_client(
    server: Server, endpoint: str, component: str | None = None, api_key: Any = None
) -> openai.OpenAI:
    key = api_key or provider(local_session(server))
    return openai.OpenAI(base_url=route_url(server, endpoint, component), api_key=key, max_retries=0)


def script(**settings: object) -> dict[str, Any]:
    """What tells a scripted engine what to do, as an extra field of a request."""
    return {"script": {key: str(value) for key, value in settings.items()}}
