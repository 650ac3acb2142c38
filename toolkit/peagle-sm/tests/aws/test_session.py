"""Where calls go: region, profile, credentials, and the local server instead of all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import CredentialsError, EngineError, ServiceFault

LOCAL = LocalTarget("http://localhost:9")


@contextmanager
def environment(**changes: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def test_no_region() -> None:
    with pytest.raises(CredentialsError, match="No AWS region is set") as caught:
        make_session()
    assert "--region" in (caught.value.next_step or "")


def test_the_region_comes_from_the_argument_then_the_environment() -> None:
    with environment(AWS_REGION="eu-west-1", AWS_DEFAULT_REGION="us-west-2"):
        assert make_session(region="us-east-1").region == "us-east-1"
        assert make_session().region == "eu-west-1"
    with environment(AWS_DEFAULT_REGION="us-west-2"):
        assert make_session().region == "us-west-2"


@pytest.mark.parametrize(("region", "near"), [("us-est-1", "us-east-1"), ("eu-wset-1", "eu-west-1")])
def test_a_region_that_aws_does_not_have(region: str, near: str) -> None:
    with pytest.raises(CredentialsError, match=f"region '{region}'") as caught:
        make_session(region=region)
    assert near in caught.value.message
    assert "upgrade boto3" in (caught.value.next_step or "")


def test_a_profile_that_does_not_exist() -> None:
    with pytest.raises(CredentialsError, match="nope") as caught:
        make_session(profile="nope", region="us-east-1")
    assert "aws configure list-profiles" in (caught.value.next_step or "")


def test_no_credentials() -> None:
    with pytest.raises(CredentialsError, match="no AWS credentials were found") as caught:
        make_session(region="us-east-1").account()
    assert "--profile" in (caught.value.next_step or "")
    assert "--local" in (caught.value.next_step or "")


def test_commands_name_the_same_place(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("[profile work]\nregion = eu-west-1\n")
    with environment(AWS_CONFIG_FILE=str(config)):
        assert make_session(profile="work").command_flags() == " --profile work --region eu-west-1"
    assert make_session(region="us-east-1").command_flags() == " --region us-east-1"
    assert make_session(local=LOCAL).command_flags() == " --local-port 9"


def test_the_local_server_is_in_one_region() -> None:
    with pytest.raises(CredentialsError, match="allowed: us-east-1"):
        make_session(region="eu-west-1", local=LOCAL)


def test_a_local_session_ignores_the_users_own_aws_settings() -> None:
    with environment(AWS_PROFILE="stale", HTTP_PROXY="http://127.0.0.1:1"):
        session = make_session(local=LOCAL)
        assert session.is_local
        with pytest.raises(ServiceFault, match="no answer") as caught:
            session.account()
    assert "peagle-sm local up" in (caught.value.next_step or "")


_TWO_RUNS = """
from pathlib import Path
from sys import argv
from peagle_sm.aws.session.session import LocalTarget, make_session
from sagemaker_local.process.spawn import free_port
from tests.local.serving import local_session, running_server

port = free_port()
for number in "12":
    for server in running_server(Path(argv[1]) / number, port):
        session = local_session(server)
        place = session.place()
        print(session.local_url, server.status.pid, session.place() == place, place, sep="|")
"""


def test_a_local_server_that_starts_again_is_another_place_with_the_same_url_and_process_id(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", _TWO_RUNS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    first, second = (line.split("|") for line in done.stdout.splitlines() if "|" in line)
    assert first[:3] == second[:3]
    assert first[2] == "True"
    assert first[3] != second[3]


def test_a_local_server_that_is_not_there() -> None:
    with pytest.raises(EngineError, match="does not answer at http://localhost:9/_peagle/status"):
        make_session(local=LOCAL).now()


def test_aws_has_no_admin_page() -> None:
    with pytest.raises(EngineError, match="only be read from the local SageMaker"):
        make_session(region="us-east-1").admin("status")


class _Clients:
    """A boto3 session; another thread may run while it makes a client."""

    region_name = "us-east-1"

    def client(self, *_: object, **__: object) -> object:
        time.sleep(0.0001)
        return object()


def test_threads_with_their_own_timeouts_share_one_cache_of_clients() -> None:
    session = Session.from_boto3(_Clients())
    switching = sys.getswitchinterval()

    def ask(thread: int) -> int:
        return len([session.runtime_client(1.0 + (thread + each) % 7) for each in range(300)])

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(8))) == [300] * 8
    finally:
        sys.setswitchinterval(switching)


def test_the_clients_with_the_latest_used_timeouts_are_kept() -> None:
    session = Session.from_boto3(_Clients())
    first, *_ = [session.runtime_client(float(seconds)) for seconds in (1, 2, 3, 4)]
    assert session.runtime_client(1.0) is first
    session.runtime_client(5.0)
    assert session.runtime_client(1.0) is first


def test_invocations_are_tried_once_and_creations_too() -> None:
    session = make_session(region="us-east-1")
    attempts = {
        "runtime": session.client("sagemaker-runtime").meta.config.retries["total_max_attempts"],
        "create": session.creating_client("sagemaker").meta.config.retries["total_max_attempts"],
        "describe": session.client("sagemaker").meta.config.retries["total_max_attempts"],
    }
    assert attempts == {"runtime": 1, "create": 1, "describe": 5}
    assert session.client("sagemaker") is session.client("sagemaker")
