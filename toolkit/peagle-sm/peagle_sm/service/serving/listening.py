"""Addresses to listen on: whether only this machine can reach them, and how others connect to them."""

from __future__ import annotations

import ipaddress
import socket

#: Addresses reserved for documentation (RFC 5737, RFC 3849). connect() of a datagram socket sends nothing.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def is_loopback(host: str) -> bool:
    """Return whether every address of ``host`` is loopback; False for an unknown name."""
    if not host:
        return False  # asyncio listens on all interfaces
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def reachable(host: str) -> str:
    """Return the host for a URL that clients can use if a server listens on ``host``.

    For all interfaces it is this machine's address on its default route, else its name.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0]) if host else None
    except ValueError:
        return host
    if address is not None and not address.is_unspecified:
        return f"[{host}]" if address.version == 6 else host
    for family, elsewhere in _ELSEWHERE:
        if address is not None and (address.version == 6) != (family == socket.AF_INET6):
            continue
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as asking:
                asking.connect((elsewhere, 9))
                own_address = str(asking.getsockname()[0])
        except OSError:
            continue
        return f"[{own_address}]" if family == socket.AF_INET6 else own_address
    return socket.gethostname()
