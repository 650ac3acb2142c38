"""KMS keys of the local server, for the tests of encrypted records; and ways to take them away."""

from __future__ import annotations

import json
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PeagleError


def new_key(session: Session, alias: str | None = None) -> str:
    """Create a KMS key; return its ARN."""
    kms = session.client("kms")
    arn = str(kms.create_key()["KeyMetadata"]["Arn"])
    if alias is not None:
        kms.create_alias(AliasName=alias, TargetKeyId=arn)
    return arn


def deny(session: Session, key: str, *actions: str) -> None:
    """Deny actions in a key's policy."""
    own = {"Effect": "Allow", "Principal": "*", "Action": "kms:*", "Resource": "*"}
    denial = {**own, "Effect": "Deny", "Action": list(actions)}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [own, denial] if actions else [own]})
    session.client("kms").put_key_policy(KeyId=key, PolicyName="default", Policy=policy)


class CountingSession:
    """A session that counts its calls of KMS, and fails with ``error`` while one is set."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.region = session.region
        self.local_url = session.local_url
        self.error: PeagleError | None = None
        self.calls: list[str] = []

    def in_region(self, region: str) -> CountingSession:
        return self

    def api(self, service: str, *, once: bool = False) -> _CountingApi:
        return _CountingApi(self, self._session.api(service, once=once))


class _CountingApi:
    def __init__(self, counting: CountingSession, api: Any) -> None:
        self._counting = counting
        self._api = api

    def __getattr__(self, operation: str) -> Any:
        self._counting.calls.append(operation)
        if self._counting.error is not None:
            raise self._counting.error
        return getattr(self._api, operation)
