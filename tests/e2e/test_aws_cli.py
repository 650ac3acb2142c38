"""The AWS CLI, as it is, against the local server: only the endpoint's URL and keys are given to it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.serving import IMAGE, Server, eventually

pytestmark = pytest.mark.slow
NAME = "by-the-aws-cli"
# "There were errors from either the CLI or the service": the return codes of version 1.
REFUSED = 255
Aws = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def aws(aws_program: Path, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Aws:
    """Runs the AWS CLI in a folder of its own, with nothing in its environment but where and who."""
    home = tmp_path_factory.mktemp("home")
    environ = {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_DEFAULT_REGION": server.status.region,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
        "HOME": str(home),
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
    }

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [aws_program, *words],
            cwd=home,
            env=environ,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, f"aws {' '.join(words)}: {done.stdout}\n{done.stderr}"
        return done

    return run


def asked(aws: Aws, *words: str) -> Any:
    return json.loads(aws(*words, "--output", "json").stdout)


@pytest.fixture(scope="module")
def endpoint(aws: Aws, server: Server) -> Iterator[str]:
    """An endpoint InService, made and afterwards deleted by the AWS CLI."""
    container = {"Image": IMAGE, "Environment": {"SCRIPT_VERSION": "seven"}}
    role = server.status.role_arn
    model = ["--model-name", NAME, "--execution-role-arn", role]
    aws("sagemaker", "create-model", *model, "--primary-container", json.dumps(container))
    # The CLI's own shorthand, as its documentation writes it.
    variant = f"VariantName=AllTraffic,ModelName={NAME},InstanceType=ml.g5.2xlarge,InitialInstanceCount=1"
    config = ["--endpoint-config-name", NAME]
    aws("sagemaker", "create-endpoint-config", *config, "--production-variants", variant)
    created = asked(aws, "sagemaker", "create-endpoint", "--endpoint-name", NAME, *config)
    assert created["EndpointArn"].endswith(f":endpoint/{NAME}")
    # The waiter looks every 30 s, the first time at once: so it is asked when there is nothing to wait for.
    server.until(NAME, "InService")
    aws("sagemaker", "wait", "endpoint-in-service", "--endpoint-name", NAME)
    yield NAME
    aws("sagemaker", "delete-endpoint", "--endpoint-name", NAME)
    sagemaker = server.client("sagemaker")
    eventually(lambda: not sagemaker.list_endpoints(NameContains=NAME)["Endpoints"])
    aws("sagemaker", "wait", "endpoint-deleted", "--endpoint-name", NAME)
    aws("sagemaker", "delete-endpoint-config", *config)
    aws("sagemaker", "delete-model", "--model-name", NAME)
    assert asked(aws, "sagemaker", "list-models", "--name-contains", NAME) == {"Models": []}


def test_it_knows_who_it_is(aws: Aws) -> None:
    assert asked(aws, "sts", "get-caller-identity")["Account"] == "123456789012"


def test_it_describes_and_lists_an_endpoint(aws: Aws, endpoint: str) -> None:
    described = asked(aws, "sagemaker", "describe-endpoint", "--endpoint-name", endpoint)
    assert described["EndpointStatus"] == "InService"
    assert described["ProductionVariants"][0]["VariantName"] == "AllTraffic"
    listed = asked(aws, "sagemaker", "list-endpoints", "--name-contains", endpoint)["Endpoints"]
    assert [row["EndpointName"] for row in listed] == [endpoint]
    assert listed[0]["CreationTime"] == described["CreationTime"]


def test_it_invokes_an_endpoint(aws: Aws, endpoint: str, tmp_path: Path) -> None:
    request, answer = tmp_path / "request.json", tmp_path / "answer.json"
    request.write_text('{"prompt": "naïve"}')
    words = ["--endpoint-name", endpoint, "--content-type", "application/json"]
    invoked = asked(
        aws, "sagemaker-runtime", "invoke-endpoint", *words, "--body", f"fileb://{request}", str(answer)
    )
    assert invoked["InvokedProductionVariant"] == "AllTraffic"
    received = json.loads(answer.read_text())
    assert received["path"] == "/invocations"
    assert (received["body"], received["version"]) == (request.read_text(), "seven")


def test_what_is_not_there_is_refused_in_awss_words(aws: Aws, tmp_path: Path) -> None:
    refused = aws("sagemaker", "describe-endpoint", "--endpoint-name", "nobody", code=REFUSED)
    assert "(ValidationException) when calling the DescribeEndpoint operation" in refused.stderr
    assert "Could not find endpoint" in refused.stderr
    words = ["--endpoint-name", "nobody", "--body", "{}", str(tmp_path / "answer")]
    refused = aws("sagemaker-runtime", "invoke-endpoint", *words, code=REFUSED)
    assert "Endpoint nobody of account 123456789012 not found" in refused.stderr


def test_it_keeps_files_in_s3(aws: Aws, server: Server, tmp_path: Path) -> None:
    seeded = aws("s3", "ls", server.status.artifacts["p-eagle"]).stdout
    assert seeded.split()[3::4] == ["config.json", "model.safetensors"]
    head = tmp_path / "my head"
    (head / "nested").mkdir(parents=True)
    (head / "config.json").write_text("{}")
    # Above 8 MiB the CLI uploads, and downloads, in several parts.
    weights = bytes(range(256)) * (9 * 4096)
    (head / "nested" / "model.safetensors").write_bytes(weights)
    aws("s3", "mb", "s3://made-by-the-cli")
    aws("s3", "cp", "--recursive", str(head), "s3://made-by-the-cli/my head/")
    back = tmp_path / "back"
    aws("s3", "sync", "s3://made-by-the-cli/my head/", str(back))
    assert (back / "nested" / "model.safetensors").read_bytes() == weights
    aws("s3", "rb", "--force", "s3://made-by-the-cli")
    buckets = server.client("s3").list_buckets()["Buckets"]
    assert "made-by-the-cli" not in [bucket["Name"] for bucket in buckets]
