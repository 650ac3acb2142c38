"""Names of existing endpoints: for "did you mean", and for the shell's completion."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from itertools import islice

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PeagleError

MOST_NAMES = 1000


def endpoint_names(session: Session) -> list[str]:
    """List the names of existing endpoints, whoever made them; the first thousand."""
    return [one.name for one in islice(control.list_endpoints(session), MOST_NAMES)]


def did_you_mean(session: Session, name: str) -> str:
    """Return " Did you mean 'x'?" for the existing name that is nearest to an unknown one, or nothing.

    The error that it decorates counts: where the endpoints cannot be listed, nothing is suggested.
    """
    known: dict[str, str] = {}
    with suppress(PeagleError):
        known = {each.lower(): each for each in endpoint_names(session)}
    close = get_close_matches(name.lower(), known, n=1)
    return f" Did you mean {known[close[0]]!r}?" if close else ""
