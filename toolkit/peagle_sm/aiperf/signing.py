"""Signs requests as the AWS SDK does, with credentials that are renewed before they run out."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any
from urllib.parse import urlsplit

import botocore.session

from peagle_sm.aws.session.sigv4 import sign
from peagle_sm.core.errors import CredentialsError

_SERVICE = "sagemaker"
_UNSIGNED = ("user-agent", "connection", "expect", "x-amzn-trace-id")  #: what a proxy may change on the way


class Signer:
    """Signs for SageMaker Runtime in one region.

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

        Renewing temporary credentials may ask STS or SSO: that is done in a thread, by one request for all,
        so that the streams that are being timed are not held up.
        """
        if _needs_renewal(self._credentials):
            async with self._renewing:
                if _needs_renewal(self._credentials):
                    await asyncio.to_thread(self._credentials.get_frozen_credentials)
        lower = {name.lower(): value for name, value in headers.items()}
        parts = urlsplit(url)
        signed = sign(
            host=parts.netloc,
            path=parts.path,
            headers={name: value for name, value in lower.items() if name not in _UNSIGNED},
            body=body,
            keys=self._credentials.get_frozen_credentials(),
            region=self._region,
            service=_SERVICE,
            utc=time.time(),
        )
        return lower | signed


def _needs_renewal(credentials: Any) -> bool:
    """Whether the next use would renew; keys without an end have no such question."""
    ask = getattr(credentials, "refresh_needed", None)
    return ask is not None and bool(ask())
