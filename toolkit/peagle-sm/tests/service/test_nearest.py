"""An unknown name is answered with the nearest existing one; a name that exists costs no further call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound
from peagle_sm.service import Pacing, delete, deploy, status, wait
from tests.service.account import Account
from tests.service.aws_errors import denied
from tests.service.setting import make_spec

WAYS: dict[str, Callable[[Session, Pacing], object]] = {
    "status": lambda session, _: status("tiny-cod", session=session),
    "wait": lambda session, pacing: wait("Tiny-Cod", session=session, pacing=pacing),
    "delete": lambda session, pacing: delete(["tiny-cod"], session=session, pacing=pacing),
}


@pytest.fixture
def deployed(aws: Account, session: Session, pacing: Pacing) -> Session:
    for name in ("tiny-code", "other"):
        deploy(make_spec(name), session=session, pacing=pacing)
    aws.calls.clear()
    return session


@pytest.mark.parametrize("way", WAYS)
def test_an_unknown_name_gets_the_nearest_one(way: str, deployed: Session, pacing: Pacing) -> None:
    with pytest.raises(NotFound, match="Did you mean 'tiny-code'"):
        WAYS[way](deployed, pacing)


def test_a_list_that_is_denied_does_not_change_the_error(aws: Account, deployed: Session) -> None:
    aws.before = lambda operation: denied(operation) if operation == "ListEndpoints" else None
    with pytest.raises(NotFound) as caught:
        status("tiny-cod", session=deployed)
    assert "Did you mean" not in caught.value.message


def test_a_name_that_resembles_none_gets_no_suggestion(deployed: Session) -> None:
    with pytest.raises(NotFound) as caught:
        status("zzz", session=deployed)
    assert caught.value.message == "endpoint 'zzz' does not exist in us-east-1."
