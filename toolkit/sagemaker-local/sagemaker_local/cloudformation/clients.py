"""boto3 clients at our own port, for the resource handlers."""

from __future__ import annotations

import threading
from typing import Any

# A Lambda may take 15 minutes to answer.
_LONGEST_CALL_S = 930
_CONNECT_S = 10


class Clients:
    """Makes and keeps clients. boto3's clients may be shared between threads, its sessions may not."""

    def __init__(self, endpoint_url: str, region: str) -> None:
        self._url = endpoint_url
        self._region = region
        self._lock = threading.Lock()
        self._session: Any = None
        self._made: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """Return a client of a service."""
        import boto3
        from botocore.config import Config

        with self._lock:
            if self._session is None:
                self._session = boto3.Session(
                    aws_access_key_id="local", aws_secret_access_key="local", region_name=self._region
                )
            if service not in self._made:
                config = Config(
                    read_timeout=_LONGEST_CALL_S,
                    connect_timeout=_CONNECT_S,
                    retries={"total_max_attempts": 1},
                    s3={"addressing_style": "path"},
                )
                self._made[service] = self._session.client(service, endpoint_url=self._url, config=config)
            return self._made[service]
