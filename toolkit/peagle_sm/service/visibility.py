"""Retries of a request that names what was created a moment ago.

SageMaker looks for an endpoint's config with eventually consistent reads: CreateEndpoint may answer "Could
not find endpoint configuration" right after CreateEndpointConfig, and its API reference recommends a retry.
A new role is not known everywhere at once either ("Changes that I make are not always immediately visible",
IAM user guide).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from peagle_sm.aws.session.errors import is_not_visible_yet
from peagle_sm.core.errors import PeagleError
from peagle_sm.service.progress import Pacing, Reporter

T = TypeVar("T")
ATTEMPTS = 7
"""With the poll interval of AWS, 15 s, about a minute: 2, 4, 8, 15, 15 and 15 s."""


def once_visible(send: Callable[[], T], pacing: Pacing, report: Reporter) -> T:
    """Send a request; retry for about a minute while AWS does not know its config, model or role.

    Raises:
        PeagleError: AWS refused it for another reason, or still does not know them.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return send()
        except PeagleError as error:
            if not is_not_visible_yet(error):
                raise
            report("check", f"AWS does not see it yet; retrying ({error.message})")
            pacing.sleep(min(pacing.poll_s, 2.0**attempt))
    return send()
