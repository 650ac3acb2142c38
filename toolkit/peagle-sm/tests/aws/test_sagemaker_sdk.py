"""Objects of the SageMaker SDK, told by what they have; the SDK itself is in tests/sagemaker_sdk."""

from __future__ import annotations

from types import SimpleNamespace

import boto3
import pytest

from peagle_sm.aws.session.session import LocalTarget, make_session, session_of
from peagle_sm.core.errors import SpecError
from peagle_sm.service.notebook import connect

TARGET = LocalTarget("http://localhost:9")


def sdk_session(boto3_session: object, region: str = "eu-west-1") -> SimpleNamespace:
    return SimpleNamespace(boto_session=boto3_session, boto_region_name=region)


@pytest.fixture
def own() -> boto3.Session:
    return boto3.Session(region_name="us-west-2")


def test_a_session_keeps_credentials_and_region(own: boto3.Session) -> None:
    session = make_session(sagemaker_session=sdk_session(own))
    assert (session.region, session.to_boto3() is own, session.is_local) == ("eu-west-1", True, False)
    assert make_session(sagemaker_session=own).region == "us-west-2"
    assert make_session(region="us-east-1", sagemaker_session=own).region == "us-east-1"


def test_a_local_session_is_local_again() -> None:
    there = make_session(local=TARGET).to_boto3()
    assert isinstance(there, boto3.Session)
    back = make_session(sagemaker_session=sdk_session(there))
    assert back.local == TARGET


def test_every_client_of_a_local_session_is_local_whatever_is_asked_for() -> None:
    there = make_session(local=TARGET).to_boto3()
    assert make_session(local=TARGET).to_boto3() is not there
    sts = there.client("sts", region_name="us-east-1", endpoint_url="https://sts.us-east-1.amazonaws.com")
    assert sts.meta.endpoint_url == TARGET.endpoint_url
    assert there.resource("s3").meta.client.meta.endpoint_url == TARGET.endpoint_url


def test_a_version_2_predictor_brings_its_session(own: boto3.Session) -> None:
    predictor = SimpleNamespace(endpoint_name="e", sagemaker_session=sdk_session(own))
    session = session_of(predictor)
    assert session is not None
    assert (session.to_boto3() is own, session.region) == (True, "eu-west-1")


def test_a_version_3_endpoint_brings_a_boto3_session_or_a_region_or_nothing(own: boto3.Session) -> None:
    held = session_of(SimpleNamespace(endpoint_name="e", _session=own, _region="us-east-1"))
    assert held is not None
    assert (held.to_boto3() is own, held.region) == (True, "us-east-1")
    regional = session_of(SimpleNamespace(endpoint_name="e", _session=None, _region="eu-west-1"))
    assert regional is not None
    assert regional.region == "eu-west-1"
    assert session_of(SimpleNamespace(endpoint_name="e", _session=None, _region=None)) is None


def test_what_is_no_session_and_what_is_no_endpoint() -> None:
    with pytest.raises(SpecError, match=r"sagemaker_session: found str; allowed: a Session"):
        make_session(sagemaker_session="us-east-1")
    with pytest.raises(SpecError, match=r"endpoint: found int; allowed: a name, or an Endpoint"):
        connect(3, region="us-east-1")


def test_two_answers_to_where_calls_go_are_refused(own: boto3.Session) -> None:
    for beside in ({"profile": "work"}, {"local": TARGET}):
        with pytest.raises(SpecError, match=f"sagemaker_session and {next(iter(beside))}: found both"):
            make_session(sagemaker_session=own, **beside)
    with pytest.raises(SpecError, match="sagemaker_session and local: found both"):
        connect("e", local=TARGET, sagemaker_session=own)
