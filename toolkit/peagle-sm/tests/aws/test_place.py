"""Where calls go: command line and Python agree, in the order argument, environment, spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from peagle_sm.aws.session.local_server import local_port, region_of, wants_local
from peagle_sm.cli.base import Settings, State
from peagle_sm.core.errors import CredentialsError, NotFound, SpecError
from peagle_sm.service.notebook import make_session, plan
from tests.aws.test_session import environment
from tests.cli.running import run
from tests.service.setting import make_spec


@pytest.mark.parametrize(
    ("given", "port", "environ", "local"),
    [
        (None, None, {}, False),
        (True, None, {"PEAGLE_SM_LOCAL": "0"}, True),
        (False, None, {"PEAGLE_SM_LOCAL": "1"}, False),
        (False, None, {"PEAGLE_SM_LOCAL": "banana"}, False),
        (None, 7070, {"PEAGLE_SM_LOCAL": "0"}, True),
        (None, None, {"PEAGLE_SM_LOCAL": " On "}, True),
        (None, None, {"PEAGLE_SM_LOCAL": "off", "PEAGLE_SM_LOCAL_PORT": "7070"}, False),
        (None, None, {"PEAGLE_SM_LOCAL_PORT": "7070"}, True),
        (None, None, {"PEAGLE_SM_LOCAL": "", "PEAGLE_SM_LOCAL_PORT": " "}, False),
    ],
)
def test_argument_then_environment(
    given: bool | None, port: int | None, environ: dict[str, str], local: bool
) -> None:
    assert wants_local(given, port, environ) is local
    assert State(Settings(local=given, local_port=port), environ=environ).local is local


@pytest.mark.parametrize("text", ["banana", "2", "y", "ja", "local"])
def test_a_value_that_means_neither_is_refused_by_command_line_and_python_alike(text: str) -> None:
    with pytest.raises(SpecError) as wrong:
        wants_local(None, None, {"PEAGLE_SM_LOCAL": text})
    assert str(wrong.value) == (
        f"PEAGLE_SM_LOCAL: found {text!r}; allowed: 1, true, yes, on (the local SageMaker) "
        "or 0, false, no, off (AWS)."
    )
    result = run("list", environ={"PEAGLE_SM_LOCAL": text})
    assert result.exit_code == 2
    assert str(wrong.value) in result.stderr
    with environment(PEAGLE_SM_LOCAL=text), pytest.raises(SpecError, match="PEAGLE_SM_LOCAL: found"):
        make_session(region="us-east-1")


@pytest.mark.parametrize("text", ["0", "65536", "x", "-1", "\u0667\u0660", "7 0"])
def test_a_port_that_is_none_is_refused_by_command_line_and_python_alike(text: str) -> None:
    with pytest.raises(SpecError, match="PEAGLE_SM_LOCAL_PORT: found"):
        local_port(None, {"PEAGLE_SM_LOCAL_PORT": text})
    with environment(PEAGLE_SM_LOCAL_PORT=text), pytest.raises(SpecError, match="LOCAL_PORT: found"):
        make_session(region="us-east-1")
    assert run("list", environ={"PEAGLE_SM_LOCAL_PORT": text}).exit_code == 2


def test_python_takes_the_local_server_from_the_environment(tmp_path: Path) -> None:
    with environment(XDG_STATE_HOME=str(tmp_path), PEAGLE_SM_LOCAL="1"):
        with pytest.raises(NotFound, match="local"):
            make_session(region="us-east-1")
        assert make_session(region="us-east-1", local=False).is_local is False
    with environment(XDG_STATE_HOME=str(tmp_path), PEAGLE_SM_LOCAL_PORT="7070"), pytest.raises(NotFound):
        plan(make_spec())


@pytest.mark.parametrize(
    ("given", "environ", "in_spec", "region"),
    [
        ("eu-west-1", {"AWS_REGION": "us-west-2"}, "ap-south-1", "eu-west-1"),
        (None, {"AWS_REGION": "us-west-2", "AWS_DEFAULT_REGION": "eu-west-1"}, "ap-south-1", "us-west-2"),
        (None, {"AWS_DEFAULT_REGION": "us-west-2"}, "ap-south-1", "us-west-2"),
        (None, {}, "ap-south-1", "ap-south-1"),
        (None, {}, None, None),
    ],
)
def test_region(given: str | None, environ: dict[str, str], in_spec: str | None, region: str | None) -> None:
    assert region_of(given, environ, in_spec) == region
    assert State(Settings(region=given), environ=environ).region(in_spec) == region


def test_the_environment_goes_before_the_spec_in_python_too() -> None:
    spec = make_spec(placement={"instance_types": ["ml.g7e.2xlarge"], "region": "eu-west-1"})
    with environment(AWS_REGION="us-west-2"):
        with pytest.raises(CredentialsError, match="has eu-west-1, but this session uses us-west-2"):
            plan(spec)
        assert plan(spec, region="eu-west-1").context.region == "eu-west-1"
