"""Session: an AWS account and region, or the local SageMaker of this machine."""

from __future__ import annotations

import json
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from peagle_sm.aws.session.errors import api_name, aws_errors
from peagle_sm.core.errors import CredentialsError, EngineError, NotFound, PeagleError

if TYPE_CHECKING:
    import boto3

USER_AGENT = "peagle-sm"
_CLIENTS = threading.Lock()
"""Lock for creating clients (a boto3 session is not thread-safe) and for changes of the cache."""
CONNECT_TIMEOUT_S = 10
# A stream may last 8 minutes on SageMaker, and the first token may take that long.
RUNTIME_READ_TIMEOUT_S = 490
# Slightly more than the longest timeout of the guard's functions (stacks/guard/functions.py).
LAMBDA_READ_TIMEOUT_S = 300
# A price only decorates a result, so a call waits only briefly for it.
PRICE_TIMEOUT_S = 5
_READ_TIMEOUTS_S = {
    "lambda": LAMBDA_READ_TIMEOUT_S,
    "pricing": PRICE_TIMEOUT_S,
    "sagemaker-runtime": RUNTIME_READ_TIMEOUT_S,
}
ADMIN_TIMEOUT_S = 10
_IMPATIENT_CLIENTS = 4
LOCAL_KEY = "local"
# Path-style S3 and no proxy: other addresses would send a call to another machine.
_LOCAL_CONFIG: dict[str, Any] = {"s3": {"addressing_style": "path"}, "proxies": {}}
# The Price List API runs in few regions, each for all regions of its partition (botocore's endpoint data).
_PRICE_REGION = "us-east-1"
_NEAR_PRICE_REGIONS = {
    "ap": "ap-south-1",
    "cn": "cn-northwest-1",
    "eu": "eu-central-1",
    "eusc": "eusc-de-east-1",
}


@dataclass(frozen=True)
class LocalTarget:
    """A local SageMaker, as in `peagle-sm local status`."""

    endpoint_url: str
    region: str = "us-east-1"
    account: str = "123456789012"
    role_arn: str = ""
    scheduler_role_arn: str = ""
    image_uris: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> LocalTarget:
        """Create it from a `LocalStatus.to_dict()`."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in status.items() if key in known})


class Api:
    """A boto3 client that raises the errors of `aws_errors`."""

    def __init__(self, client: Any, local_url: str | None, profile: str | None = None) -> None:
        self._client, self._local_url, self._profile = client, local_url, profile

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        method = getattr(self._client, operation)

        def call(**parameters: Any) -> Any:
            with aws_errors(api_name(operation), self._local_url, self._profile):
                return method(**parameters)

        return call

    def find(self, operation: str, **parameters: Any) -> dict[str, Any] | None:
        """Return the answer of a call; None if its resource does not exist."""
        try:
            answer: dict[str, Any] = getattr(self, operation)(**parameters)
        except NotFound:
            return None
        return answer

    def rows(self, operation: str, *keys: str, **parameters: Any) -> Iterator[Any]:
        """Yield what a list call has under ``keys``, page by page."""
        with aws_errors(api_name(operation), self._local_url, self._profile):
            for page in self._client.get_paginator(operation).paginate(**parameters):
                for key in keys:
                    yield from page.get(key) or ()


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Session:
    """A boto3 session with a fixed region, cached clients and mapped errors.

    ``price_file`` is where AWS's prices are kept for a day (None: nowhere); ``price_trouble`` is the
    error of the price list; after it the session does not call the list again.
    """

    def __init__(
        self,
        boto3_session: Any,
        region: str,
        local: LocalTarget | None = None,
        clock: Callable[[], datetime] | None = None,
        price_file: Path | None = None,
    ) -> None:
        """Use `make_session` or `from_boto3` instead."""
        self._boto3 = boto3_session
        self._clock = clock or _utc_now
        self.price_file = price_file
        self.price_trouble: PeagleError | None = None
        self._clients: dict[tuple[str, ...], Any] = {}
        self._account: str | None = None
        self._guest: boto3.Session | None = None
        self.region = region
        self.local = local
        self.region_is_default = False
        """True if nothing names a region and `make_session` took its ``default_region``."""

    @classmethod
    def from_boto3(
        cls,
        boto3_session: Any,
        local: LocalTarget | None = None,
        clock: Callable[[], datetime] | None = None,
        price_file: Path | None = None,
    ) -> Session:
        """Wrap the caller's boto3 session; ``clock`` replaces this machine's clock.

        Raises:
            CredentialsError: the session has no region.
        """
        region = local.region if local else boto3_session.region_name
        if not region:
            raise _no_region()
        return cls(boto3_session, region, local, clock, price_file)

    def to_boto3(self) -> boto3.Session:
        """Return a boto3 session with the same target, for libraries."""
        if self._guest is None:
            if self.local is None:
                self._guest = self._boto3
            else:
                self._guest = _guest_boto3(self.local)
        return self._guest

    @property
    def is_local(self) -> bool:
        """True if calls go to the local SageMaker."""
        return self.local is not None

    def client(self, service: str) -> Any:
        """Return a client that retries throttling and 5xx if a retry is harmless."""
        # An invocation costs compute time and is measured, so it is not retried.
        # A missing local server will not appear within seconds.
        attempts = 1 if service == "sagemaker-runtime" else 2 if self.is_local or service == "pricing" else 5
        return self._client(service, attempts)

    def runtime_client(self, read_timeout_s: float | None = None) -> Any:
        """Return a data plane client that waits ``read_timeout_s`` for the next byte.

        botocore has timeouts per client, not per request; only the latest clients are kept.
        """
        if read_timeout_s in (None, RUNTIME_READ_TIMEOUT_S):
            return self.client("sagemaker-runtime")
        return self._client("sagemaker-runtime", 1, read_timeout_s)

    def creating_client(self, service: str) -> Any:
        """Return a client without automatic retries.

        If the first response of a CreateX is lost, a retry fails with "already existing". So callers check
        whether the resource exists, and adopt it.
        """
        return self._client(service, 1)

    def api(self, service: str, *, once: bool = False) -> Api:
        """Return a client that raises this project's errors; ``once``: without automatic retries."""
        client = self.creating_client(service) if once else self.client(service)
        return Api(client, self.local_url, self.profile)

    def _client(self, service: str, attempts: int, read_timeout_s: float | None = None) -> Any:
        key: tuple[str, ...] = (service, str(attempts))
        if read_timeout_s is not None:
            key += (str(read_timeout_s),)
        with aws_errors(f"{service} client", self.local_url, self.profile), _CLIENTS:
            client = self._clients.pop(key, None) or self._new_client(service, attempts, read_timeout_s)
            self._clients[key] = client  # the last client is the most recently used
            impatient = [each for each in self._clients if len(each) > 2]
            for old in impatient[:-_IMPATIENT_CLIENTS]:
                del self._clients[old]
            return client

    def _new_client(self, service: str, attempts: int, read_timeout_s: float | None) -> Any:
        from botocore.config import Config

        options: dict[str, Any] = {
            "retries": {"mode": "standard", "total_max_attempts": attempts},
            "connect_timeout": PRICE_TIMEOUT_S if service == "pricing" else CONNECT_TIMEOUT_S,
            "user_agent_extra": USER_AGENT,
        }
        if service in _READ_TIMEOUTS_S:
            options["read_timeout"] = read_timeout_s or _READ_TIMEOUTS_S[service]
        if self.local is not None:
            options |= _LOCAL_CONFIG
        place = {} if self.local is None else {"endpoint_url": self.local.endpoint_url}
        return self._boto3.client(
            service, region_name=self._region_of(service), config=Config(**options), **place
        )

    def _region_of(self, service: str) -> str:
        if service != "pricing":
            return self.region
        return _NEAR_PRICE_REGIONS.get(self.region.split("-")[0], _PRICE_REGION)

    @property
    def local_url(self) -> str | None:
        """Address of the local server; None on AWS."""
        return None if self.local is None else self.local.endpoint_url

    @property
    def profile(self) -> str | None:
        """Name of the AWS profile; None with the local server, or without one."""
        name = getattr(self._boto3, "profile_name", None) if self.local is None else None
        return name if isinstance(name, str) else None

    def credentials(self) -> Any:
        """Return botocore's self-refreshing credentials, for clients that sign requests.

        Raises:
            CredentialsError: there are no credentials.
        """
        with aws_errors("credentials", self.local_url, self.profile):
            credentials = self._boto3.get_credentials()
        if credentials is None:
            raise CredentialsError(
                "No AWS credentials were found.",
                next_step="Run `aws configure` or `aws sso login`, or set AWS_PROFILE.",
            )
        return credentials

    def account(self) -> str:
        """Return the account number, from STS.

        Raises:
            CredentialsError: there are no credentials, or AWS refuses them.
        """
        if self._account is None:
            with aws_errors("GetCallerIdentity", self.local_url, self.profile):
                self._account = str(self.client("sts").get_caller_identity()["Account"])
        return self._account

    def place(self) -> str:
        """Identify where calls go: account and region, or one run of the local server.

        Nothing of a local server outlives its process. After a restart its URL and process id may be the
        same, as in a container.
        """
        if self.is_local:
            return f"{self.local_url} run {self.admin('status').get('run_id')}"
        return f"{self.account()} {self.region}"

    def now(self) -> datetime:
        """Return the time that schedules use: the local server's or this machine's."""
        if self.local is not None:
            return datetime.fromisoformat(self.admin("status")["clock"])
        return self._clock()

    def admin(self, path: str) -> dict[str, Any]:
        """Return the JSON of the local server's page ``/_peagle/<path>``.

        Raises:
            EngineError: the server does not answer, or this session is not local.
        """
        document = json.loads(self.admin_text(path))
        return document if isinstance(document, dict) else {}

    def admin_text(self, path: str) -> str:
        """Return the text of the local server's page ``/_peagle/<path>``; errors as `admin_lines`."""
        return "".join(self.admin_lines(path))

    def admin_lines(self, path: str) -> Iterator[str]:
        """Yield the lines of the local server's page ``/_peagle/<path>`` as they come.

        Raises:
            EngineError: the server does not answer, or this session is not local.
            NotFound: the page does not exist.
        """
        if self.local is None:
            raise EngineError(
                f"{path} can only be read from the local SageMaker.",
                next_step="Use --local, after `peagle-sm local up`.",
            )
        url = f"{self.local.endpoint_url.rstrip('/')}/_peagle/{path}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=ADMIN_TIMEOUT_S) as response:
                yield from (line.decode() for line in response)
        except urllib.error.HTTPError as error:
            raise NotFound(
                f"The local SageMaker has no /_peagle/{path}: {error.read().decode(errors='replace')}",
                next_step="Check the server with `peagle-sm local status`.",
            ) from error
        except (OSError, HTTPException) as error:
            raise EngineError(
                f"The local SageMaker does not answer at {url}: {error}",
                next_step="Check it with `peagle-sm local status`, or start it with `peagle-sm local up`.",
            ) from error

    def wall_clock(self) -> datetime:
        """Return this machine's time, independent of the local server's clock."""
        return self._clock()

    def command_flags(self) -> str:
        """Return the flags of a command line with the same target; starts with a blank."""
        if self.local is not None:
            return f" --local-port {urlsplit(self.local.endpoint_url).port}"
        profile = "" if self.profile in (None, "default") else f" --profile {self.profile}"
        return f"{profile} --region {self.region}"


def make_session(
    profile: str | None = None,
    region: str | None = None,
    local: LocalTarget | None = None,
    *,
    default_region: str | None = None,
    boto3_session: Any = None,
) -> Session:
    """Create a session; call nothing and read no credentials yet.

    The region comes from ``region``, else AWS_REGION, AWS_DEFAULT_REGION or the profile, else
    ``default_region``, which only a plan has: what creates or reads resources needs a region by choice.
    ``boto3_session`` is used in place of a profile; its region counts unless ``region`` is given.

    Raises:
        CredentialsError: unknown profile, no region, or an unknown region.
    """
    if local is not None:
        return _local_session(region, local)
    import boto3

    with aws_errors("profile", profile=profile or os.environ.get("AWS_PROFILE")):
        chosen = boto3_session or boto3.Session(
            profile_name=profile, region_name=region or os.environ.get("AWS_REGION")
        )
        region_name = region or chosen.region_name
    if not region_name and default_region is None:
        raise _no_region()
    from peagle_sm.aws.files import price_file

    session = Session(chosen, region_name or str(default_region), price_file=price_file(os.environ))
    session.region_is_default = not region_name
    _check_region(session.region, chosen)
    return session


def _local_session(region: str | None, local: LocalTarget) -> Session:
    if region not in (None, local.region):
        raise CredentialsError(
            f"region: found {region!r}; allowed: {local.region}, the region of the local SageMaker at "
            f"{local.endpoint_url}.",
            next_step=f"Leave --region out, or give {local.region}.",
            details={"found": region, "allowed": local.region},
        )
    return Session(_local_boto3(local.region), local.region, local)


@cache
def _local_boto3(region: str) -> Any:
    """Return the process's boto3 session for local use: it caches AWS's API models."""
    import boto3

    return boto3.Session(**_local_options(region))


def _local_options(region: str) -> dict[str, Any]:
    return {
        "botocore_session": isolated_botocore(),
        "aws_access_key_id": LOCAL_KEY,
        "aws_secret_access_key": LOCAL_KEY,
        "region_name": region,
    }


class _LocalClients:
    """Mixin: clients and resources always call the local server.

    The SageMaker SDK passes STS's public address, which ``AWS_ENDPOINT_URL`` does not override.
    """

    target: LocalTarget

    def client(self, *args: Any, **options: Any) -> Any:
        """Return boto3's client with the local server's address."""
        from botocore.config import Config

        ours = Config(**_LOCAL_CONFIG)
        given = options.get("config")
        options["config"] = ours if given is None else given.merge(ours)
        options["endpoint_url"] = self.target.endpoint_url
        return super().client(*args, **options)  # type: ignore[misc]  # boto3.Session's


def _guest_boto3(target: LocalTarget) -> boto3.Session:
    """Return a boto3 session for libraries that create their own clients."""
    import boto3

    class LocalBoto3(_LocalClients, boto3.Session):
        """A boto3 session of the local SageMaker."""

    session = LocalBoto3(**_local_options(target.region))
    session.target = target
    return session


def isolated_botocore() -> Any:
    """Return a botocore session that ignores the user's AWS configuration."""
    import botocore.session

    nothing = (None, None, os.devnull, None)
    return botocore.session.Session(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": nothing,
            "credentials_file": nothing,
        }
    )


#: Regions found in boto3's data before. Reading it takes 0.2 s of CPU, and a notebook makes many sessions.
_REGIONS_FOUND: set[str] = set()


def _check_region(region: str, boto3_session: Any) -> None:
    if region in _REGIONS_FOUND:
        return
    known: set[str] = set()
    for partition in boto3_session.get_available_partitions():
        known.update(boto3_session.get_available_regions("sagemaker", partition_name=partition))
    if region in known:
        _REGIONS_FOUND.add(region)
        return
    near = get_close_matches(region, sorted(known), n=3)
    shape = re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-\d", region)
    raise CredentialsError(
        f"region {region!r}: this version of boto3 has no SageMaker in that region."
        + (f" Near: {', '.join(near)}." if near else ""),
        next_step=(
            "Correct --region, AWS_REGION or the profile"
            + ("; for a new region, upgrade boto3." if shape else ".")
        ),
        details={"region": region, "near": near},
    )


def _no_region() -> CredentialsError:
    return CredentialsError(
        "No AWS region is set.",
        next_step="Give --region, placement.region in the spec, AWS_REGION, or a region in the profile.",
    )
