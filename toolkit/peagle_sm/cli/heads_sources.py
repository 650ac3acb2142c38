"""Where `heads` finds what is named on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.aws.storage.hub import Hub
    from peagle_sm.service.heads import Sources


def sources_for(state: State, session: Callable[[], Session]) -> Sources:
    """The catalogue, S3 by the global options, and the hub by HF_ENDPOINT and HF_TOKEN."""
    from peagle_sm.service.heads import Sources

    def hub() -> Hub:
        from peagle_sm.aws.storage.hub import Hub

        return Hub(state.environ.get("HF_ENDPOINT") or None, state.environ.get("HF_TOKEN") or None)

    return Sources(session, hub)
