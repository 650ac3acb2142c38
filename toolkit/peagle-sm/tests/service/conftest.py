from __future__ import annotations

from collections.abc import Iterator

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Pacing
from tests.local.serving import Server
from tests.service.account import Account, WatchedBoto3, guard_of
from tests.service.setting import make_spec


@pytest.fixture(scope="session")
def watched(server: Server) -> WatchedBoto3:
    return WatchedBoto3(server.url)


@pytest.fixture(scope="module")
def boto3(server: Server, watched: WatchedBoto3) -> Iterator[WatchedBoto3]:
    """A boto3 whose calls the account of each test sees; there is a guard."""
    with guard_of(server):
        yield watched


@pytest.fixture
def aws(server: Server, boto3: WatchedBoto3) -> Iterator[Account]:
    account = Account(server, boto3)
    yield account
    account.clear()


@pytest.fixture
def session(aws: Account) -> Session:
    return aws.session()


@pytest.fixture
def pacing(aws: Account) -> Pacing:
    return aws.pacing()


@pytest.fixture
def spec() -> EndpointSpec:
    return make_spec()
