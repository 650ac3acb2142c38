"""URL, signature and response stream of AIPerf's requests to SageMaker.

Nothing here imports AIPerf. The URL given to AIPerf names the endpoint; its query parameters choose the
inference component and the call. Credentials are renewed before they expire, as the AWS SDK does. An answer
counts as whole only when its response stream is complete.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import botocore.session

from peagle_sm.aws.session.signing import current_keys, sign
from peagle_sm.aws.streams.answers import FinishedAnswers, aborted_in, error_in
from peagle_sm.aws.streams.framing import FrameDecoder, FrameException
from peagle_sm.core.errors import CredentialsError, SpecError, StreamError

_PATH = re.compile(r"/endpoints/(?P<name>[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62})(/invocations[a-z-]*)?/?")
# Also FIPS, a VPC's endpoint (vpce-….runtime.sagemaker.REGION.vpce.amazonaws.com) and China.
_HOST = re.compile(r"(.*\.)?runtime(-fips)?\.sagemaker(-fips)?\.(?P<region>[a-z0-9-]+)\..*")
_PARAMETERS = ("component", "variant", "region", "model")
_EXAMPLE = "https://runtime.sagemaker.us-east-1.amazonaws.com/endpoints/NAME"


@dataclass(frozen=True)
class Address:
    """``https://runtime.sagemaker.REGION.amazonaws.com/endpoints/NAME?component=…&variant=…&model=…``.

    Attributes:
        base_url: scheme and host of the runtime API.
        endpoint: name of the endpoint.
        component: inference component; needed where the endpoint hosts components.
        variant: production variant, for endpoints with several.
        region: AWS region that signs, from the parameter or the host; None leaves it to the environment.
        model: sent as the body's ``model``. None sends none: a SageMaker container serves one model, and
            AIPerf's ``--model`` is then only a label (and the tokenizer, unless that is given).
    """

    base_url: str
    endpoint: str
    component: str | None = None
    variant: str | None = None
    region: str | None = None
    model: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers that select component and variant."""
        chosen = {
            "X-Amzn-SageMaker-Inference-Component": self.component,
            "X-Amzn-SageMaker-Target-Variant": self.variant,
        }
        return {name: value for name, value in chosen.items() if value is not None}

    def url(self, *, streaming: bool) -> str:
        """The URL of the invocation."""
        call = "invocations-response-stream" if streaming else "invocations"
        return f"{self.base_url}/endpoints/{quote(self.endpoint)}/{call}"


def parse(url: str) -> Address:
    """Read a URL.

    Raises:
        SpecError: no ``/endpoints/NAME``, or a parameter that is not known, empty or repeated.
    """
    parts = urlsplit(url)
    path = _PATH.fullmatch(parts.path)
    if parts.scheme.lower() not in ("http", "https") or path is None:
        raise _refused(url, "it does not name an endpoint")
    given: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        # Only the model may be empty: vLLM's images then use the model that they serve.
        if key not in _PARAMETERS or key in given or (not value and key != "model"):
            raise _refused(url, f"the parameter {key}={value!r} is unknown, empty or repeated")
        given[key] = value
    host = _HOST.fullmatch(parts.hostname or "")
    if host is not None:
        given.setdefault("region", host["region"])
    return Address(f"{parts.scheme}://{parts.netloc}", path["name"], **given)


def _refused(url: str, what: str) -> SpecError:
    return SpecError(
        f"--url {url}: {what}.",
        next_step=f"Give {_EXAMPLE}, followed by ?{'=…&'.join(_PARAMETERS)}=… as needed.",
    )


class Signer:
    """Signer of SageMaker Runtime requests in one region.

    Credentials are those of the SDK's chain: environment, profile, SSO, web identity, container, instance.
    """

    def __init__(self, credentials: Any, region: str) -> None:
        """Take botocore credentials; `from_environment` looks them up."""
        self._credentials = credentials
        self._region = region
        self._renewing = asyncio.Lock()

    @classmethod
    def from_environment(cls, region: str | None) -> Signer:
        """Look up credentials, and the region where the URL names none, as the SDK does.

        Raises:
            CredentialsError: there is no region, or there are no credentials.
        """
        session = botocore.session.get_session()
        region = region or os.environ.get("AWS_REGION") or session.get_config_variable("region") or None
        if region is None:
            raise CredentialsError(
                "No AWS region is set.",
                next_step="Set AWS_REGION, or add ?region=… to the URL.",
            )
        credentials = session.get_credentials()
        if credentials is None:
            raise CredentialsError(
                "No AWS credentials were found.",
                next_step="Set AWS_PROFILE, run `aws configure`, or run where a role gives credentials.",
            )
        return cls(credentials, region)

    async def sign(self, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """Return the headers of a POST, their names in lower case, with its signature among them.

        Temporary credentials are renewed in a thread, once for all requests: no measured stream waits for it.
        """
        async with self._renewing:
            keys = await current_keys(self._credentials)
        return sign(url, headers, body, keys, self._region)


_DONE = "[DONE]"


async def payload_parts(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Decode AWS's event stream.

    Raises:
        StreamError: an exception frame (`ModelStreamError`, `InternalStreamFailure`), a damaged frame, or
            an end in the middle of one.
    """
    decoder = FrameDecoder()
    async for data in chunks:
        payloads, error = decoder.take(data)
        for payload in payloads:
            yield payload
        if isinstance(error, FrameException):
            raise StreamError(str(error)) from error
        if error is not None:
            raise StreamError(f"a frame of the response stream is damaged: {error}") from error
    if not decoder.is_whole:
        raise StreamError("the response stream was cut within a frame")


class AnswerCheck:
    """Check that a stream of server-sent events has every answer of its request, each complete.

    The rules are those of `aws.streams.decoding` and of `serve`, which read bytes; AIPerf gives messages.
    """

    def __init__(self, answers: int = 1) -> None:
        """``answers``: the prompts of the request times n; each answer needs a finish reason."""
        self._answers = FinishedAnswers(answers)
        self._events = 0
        self._done = False

    def take(self, text: str) -> None:
        """Add the data of one message; data after `[DONE]` is ignored.

        Raises:
            StreamError: the engine reported an error, aborted an answer, or sent something else.
        """
        if self._done or not text:
            return
        self._events += 1
        if text.strip() == _DONE:
            self._done = True
            return
        try:
            self._take(json.loads(text))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise StreamError(f"the stream has an event that is not a completion: {text[:200]}") from error

    def finish(self) -> None:
        """Check the answers at the end of the connection.

        Raises:
            StreamError: it was cut: an answer has no finish reason.
        """
        answers = self._answers
        if answers.missing and (not self._done or (answers.finished and answers.unfinished)):
            raise StreamError(
                f"the response stream was cut after {self._events} events: {answers.missing} of "
                f"{answers.expected} answers have no finish reason"
            )

    def _take(self, document: Mapping[str, Any]) -> None:
        reported = error_in(document)
        if reported is not None:
            raise StreamError(f"the engine reported an error in the stream: {reported[:500]}")
        given_up = aborted_in(document)
        if given_up is not None:
            raise StreamError(f"the engine aborted the answer: finish_reason {given_up!r}")
        self._answers.take(document)
