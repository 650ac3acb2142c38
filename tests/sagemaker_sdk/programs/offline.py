"""Imported first by each program: no connection leaves this machine, and what was tried is remembered."""

from __future__ import annotations

import sys
from typing import Any

TRIED: set[str] = set()


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event != "socket.getaddrinfo":
        return
    host = args[0].decode() if isinstance(args[0], bytes) else args[0]
    if host not in (None, "localhost", "127.0.0.1"):
        TRIED.add(host)
        raise OSError(f"this program tried to reach {host!r}")


sys.addaudithook(_refuse)
