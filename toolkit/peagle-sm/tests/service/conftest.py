from __future__ import annotations

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Pacing
from tests.service.fakes import FakeAws
from tests.service.setting import make_spec, pacing_of, session_of


@pytest.fixture
def aws() -> FakeAws:
    return FakeAws()


@pytest.fixture
def session(aws: FakeAws) -> Session:
    return session_of(aws)


@pytest.fixture
def pacing(aws: FakeAws) -> Pacing:
    return pacing_of(aws)


@pytest.fixture
def spec() -> EndpointSpec:
    return make_spec()
