"""Broken AWS configurations: each ends in exit code 5, with the profile, the setting and a next step."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import exceptions as botocore

from peagle_sm.aws.session.session import Session, make_session
from peagle_sm.cli.failure import from_exception
from peagle_sm.core.errors import CredentialsError, PeagleError

KEYS = "aws_access_key_id = x\naws_secret_access_key = y\n"
ROLE = "role_arn = arn:aws:iam::123456789012:role/x\n"
SOURCE = f"[profile q]\n{KEYS}"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str | None, config: str, **variables: str
) -> PeagleError:
    (tmp_path / "config").write_bytes(config.encode("latin-1"))
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    settings = {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "HOME": str(tmp_path),
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in (settings | variables).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PeagleError) as caught:
        make_session(profile).api("sagemaker", once=True).list_endpoints()
    return caught.value


def _printing(text: str) -> str:
    return f"credential_process = /bin/echo {json.dumps(text) if text else ''}\n"


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        (_printing("please log in"), "credential_process"),
        (_printing("[1]"), "credential_process"),
        (_printing('{"Version": 1}'), "credential_process"),
        (_printing('{"Version": 2}'), "credential_process"),
        ("credential_process = /nonexistent/tool\n", "credential_process"),
        ("credential_process = /bin/false\n", "credential_process"),
        (f"{KEYS}endpoint_url = localhost:4566\n", "endpoint_url"),
        (f"{KEYS}endpoint_url = http://[broken\n", "endpoint_url"),
        (f"{KEYS}services = s\n[services s]\nsagemaker =\n  endpoint_url = host\n", "endpoint_url"),
        (f"{KEYS}services = gone\n", "services"),
        ("sso_session = s\nsso_account_id = 1\nsso_role_name = r\n", "sso_session"),
        (
            "sso_start_url = https://x\nsso_region = us-east-1\nsso_account_id = 1\nsso_role_name = r\n",
            "sso_start_url",
        ),
        (ROLE, "source_profile"),
        (f"{ROLE}source_profile = gone\n", "source_profile"),
        (f"{ROLE}source_profile = q\n[profile q]\n{ROLE}source_profile = p\n", "source_profile"),
        (f"{ROLE}credential_source = Nowhere\n", "credential_source"),
        (f"role_arn = nonsense\nsource_profile = q\n{SOURCE}", "role_arn"),
        (f"{ROLE}web_identity_token_file = /nonexistent\n", "web_identity_token_file"),
        ("aws_access_key_id = x\n", "aws_secret_access_key"),
        ("metadata_service_timeout = long\n", "metadata_service_timeout"),
        (f"{KEYS}defaults_mode = fastest\n", "defaults mode"),
        (f"{KEYS}s3 =\n  addressing_style = odd\n", "addressing style"),
        (f"{KEYS}s3 =\n  not a setting\n", "config file"),
        (f"{KEYS}request_checksum_calculation = never\n", "request_checksum_calculation"),
        (f"{KEYS}api_versions =\n  sagemaker = 1999-01-01\n", "sagemaker/1999-01-01"),
    ],
)
def test_a_broken_profile_is_named_with_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, setting: str
) -> None:
    error = _fails(tmp_path, monkeypatch, "p", f"[profile p]\n{config}")
    assert from_exception(error).exit_code == 5, error
    assert "p:" in error.message or "profile p" in error.message, error
    assert setting in error.message, error
    assert error.next_step


@pytest.mark.parametrize(
    ("variables", "setting"),
    [
        ({"AWS_ENDPOINT_URL": "localhost:1"}, "AWS_ENDPOINT_URL"),
        ({"AWS_ENDPOINT_URL_SAGEMAKER": "localhost:1"}, "AWS_ENDPOINT_URL_SAGEMAKER"),
        (
            {"AWS_WEB_IDENTITY_TOKEN_FILE": "/gone", "AWS_ROLE_ARN": ROLE[11:-1]},
            "AWS_WEB_IDENTITY_TOKEN_FILE",
        ),
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/"}, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        ({"AWS_METADATA_SERVICE_NUM_ATTEMPTS": "x"}, "metadata_service_num_attempts"),
        ({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "x"}, "Metadata endpoint: x"),
        ({"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE": "x"}, "endpoint mode: x"),
        ({"AWS_STS_REGIONAL_ENDPOINTS": "x", "AWS_SECRET_ACCESS_KEY": "y"}, "STS regional endpoints"),
        ({"AWS_ACCESS_KEY_ID": "x"}, "AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_a_broken_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], setting: str
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "x"} if "AWS_SECRET_ACCESS_KEY" in variables else {}
    error = _fails(tmp_path, monkeypatch, None, "[default]\n", **keys, **variables)
    assert from_exception(error).exit_code == 5, error
    assert setting in f"{error.message} {error.next_step}", error


@pytest.mark.parametrize(
    "text", ["no section\n", "[profile p]\nregion = \xff\xfe\n", "[profile p]\n[profile p]\n"]
)
def test_a_config_file_that_does_not_parse_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    error = _fails(tmp_path, monkeypatch, "p", text)
    assert from_exception(error).exit_code == 5
    assert str(tmp_path / "config") in error.message


@pytest.mark.parametrize("bundle", ["/nonexistent.pem", "/etc/passwd"])
def test_a_ca_bundle_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_port: int, bundle: str
) -> None:
    config = f"[profile p]\n{KEYS}ca_bundle = {bundle}\nendpoint_url = https://127.0.0.1:{silent_port}\n"
    error = _fails(tmp_path, monkeypatch, "p", config)
    assert isinstance(error, CredentialsError)
    assert "ca_bundle" in error.message


@pytest.mark.parametrize(
    ("proxy", "code"), [("http://[broken", 5), ("http://localhost:port", 5), ("http://127.0.0.1:1", 6)]
)
def test_a_broken_proxy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str, code: int
) -> None:
    config = f"[profile p]\n{KEYS}"
    error = _fails(tmp_path, monkeypatch, "p", config, HTTPS_PROXY=proxy, NO_PROXY="")
    assert from_exception(error).exit_code == code
    assert "HTTPS_PROXY" in f"{error.message} {error.next_step}"


def test_a_role_that_aws_refuses_is_an_error_of_the_profile(aws_refusing_roles: Session) -> None:
    with pytest.raises(CredentialsError, match="role_arn"):
        aws_refusing_roles.api("sagemaker").list_endpoints()


@pytest.fixture
def aws_refusing_roles() -> Session:
    """A session whose credentials come from an AssumeRole that AWS refuses."""
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

    class Refusing:
        def assume_role(self, **_: str) -> None:
            answer: Any = {
                "Error": {"Code": "ValidationError", "Message": "DurationSeconds exceeds the maximum"}
            }
            raise botocore.ClientError(answer, "AssumeRole")

    def create(*_: Any, **__: Any) -> Any:
        return Refusing()

    source: Any = boto3.Session("x", "y").get_credentials()
    fetcher = AssumeRoleCredentialFetcher(create, source, ROLE[11:-1])
    session = boto3.Session(region_name="us-east-1")
    below: Any = session._session
    below._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
    return Session.from_boto3(session)


@pytest.mark.parametrize("url", ["//127.0.0.1:1", "127.0.0.1:1"])
def test_an_address_without_a_scheme_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    error = _fails(tmp_path, monkeypatch, "p", f"[profile p]\n{KEYS}endpoint_url = {url}\n")
    assert isinstance(error, CredentialsError)
    assert "endpoint_url" in error.message
    assert "http:// or https://" in str(error.next_step)


def test_the_password_of_an_address_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("https://me:secret@127.0.0.1:1", "http://me:secret@127.0.0.1:x"):
        error = _fails(tmp_path, monkeypatch, "p", f"[profile p]\n{KEYS}endpoint_url = {url}\n")
        assert "secret" not in f"{error.message} {error.next_step} {error.details}"
        assert "127.0.0.1" in error.message
