"""Asking a bare vLLM, which is reached by an address, for what is not a measurement."""

from __future__ import annotations

import urllib.error
import urllib.request

from peagle_sm.aws.session.wire import is_remote
from peagle_sm.core.errors import NotFound, ServiceFault

TIMEOUT_S = 10


def opener_for(url: str) -> urllib.request.OpenerDirector:
    """What opens an address: by the proxies of the environment, but for a server on this machine.

    As the load client goes (`Target.remote`), so that both reach the same server.
    """
    if is_remote(url):
        return urllib.request.build_opener()
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def read_url(address: str) -> str:
    """The text at an address of a bare vLLM.

    Raises:
        NotFound: the server has no such page.
        ServiceFault: it does not answer.
    """
    try:
        with opener_for(address).open(address, timeout=TIMEOUT_S) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        raise NotFound(f"{address} answers {error.code}", next_step="check the address") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ServiceFault(
            f"nothing answers at {address}: {reason}",
            operation="GET",
            next_step="check that the server runs, and its address",
        ) from error
