"""`peagle-sm lock` against the local server: what people read, what CI gets, and a deploy from the lock."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from peagle_sm.core.jumpstart.resolve import PUBLIC_OVERRIDE
from sagemaker_local.contents.jumpstart_bucket import MANIFEST_KEY, known_spec
from tests.cli.conftest import Run
from tests.local.serving import Server

_numbers = itertools.count(1)
ECR = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
Publish = Callable[..., None]


@pytest.fixture
def bucket(server: Server, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """A JumpStart bucket of the test's own, and a function that publishes versions of gpt-oss-20b in it."""
    name = f"jumpstart-of-a-test-{next(_numbers)}"
    s3 = server.client("s3")
    s3.create_bucket(Bucket=name)
    monkeypatch.setenv(PUBLIC_OVERRIDE, name)
    rows: list[dict[str, str]] = []

    def publish(version: str, change: Callable[[dict[str, Any]], object] = lambda _: None) -> None:
        spec = known_spec() | {"version": version}
        change(spec)
        key = f"specs/{version}.json"
        rows[:] = [row for row in rows if row["version"] != version]
        rows.append(
            {"model_id": spec["model_id"], "version": version, "min_version": "2.0.0", "spec_key": key}
        )
        s3.put_object(Bucket=name, Key=key, Body=json.dumps(spec).encode())
        s3.put_object(Bucket=name, Key=MANIFEST_KEY, Body=json.dumps(rows).encode())

    publish("3.38.0")
    return publish


@pytest.fixture
def gpt(in_empty_folder: Path) -> Path:
    path = in_empty_folder / "peagle.yaml"
    path.write_text("name: locked\nmodel: gpt-oss-20b\n")
    return path


def newer(spec: dict[str, Any]) -> None:
    best = spec["inference_config_components"]["lmi-optimized"]
    for region in best["hosting_instance_type_variants"]["regional_aliases"].values():
        region["gpu_ecr_uri_2"] = region["gpu_ecr_uri_2"].replace("vllm:0.18.0", "vllm:0.19.1")
    variables = best["inference_environment_variables"]
    variables[:] = [one for one in variables if one["name"] != "TIKTOKEN_ENCODINGS_BASE"]
    variables.append({"name": "SM_VLLM_MAX_NUM_SEQS", "default": "64", "type": "text", "scope": "container"})


def test_a_lock_says_what_is_pinned(peagle: Run, bucket: Publish, gpt: Path) -> None:
    result = peagle("lock")
    assert (result.exit_code, result.stderr) == (0, "")
    shown = " ".join(result.stdout.split())
    assert shown.startswith("peagle.local.lock written model openai-reasoning-gpt-oss-20b 3.38.0")
    assert "config lmi-optimized (also: lmi)" in shown
    assert re.search(r"read from s3://jumpstart-of-a-test-\d+/specs/3.38.0.json sha256 [0-9a-f]{64} ", shown)
    assert f"ml.g7e.2xlarge {ECR}/vllm:0.18.0-gpu-py312-cu129-ubuntu22.04-sagemaker s3://" in shown
    assert "/lmi-eagle-heads/models/gpt-oss-20b-p-eagle/ channel eagle" in shown
    assert shown.endswith("licence Apache 2.0: nothing to accept")
    again = peagle("lock")
    assert again.stdout.startswith("peagle.local.lock is up to date\n")
    assert peagle("lock", "--check").exit_code == 0


def test_an_upgrade_shows_what_changes(peagle: Run, bucket: Publish, gpt: Path) -> None:
    peagle("lock")
    before = Path("peagle.local.lock").read_text()
    bucket("3.39.0", newer)
    kept = peagle("lock", "--check")
    assert kept.exit_code == 0, "the version that is locked stays"
    assert "3.38.0 (newest: 3.39.0" in kept.stdout
    shown = peagle("lock", "--upgrade", "--check")
    assert shown.exit_code == 9
    assert shown.stdout.startswith("peagle.local.lock would change\n")
    assert Path("peagle.local.lock").read_text() == before
    done = peagle("lock", "--upgrade")
    changes = " ".join(done.stdout.partition("\n\nChanges\n")[2].split())
    image = f"{ECR}/vllm:{{}}-gpu-py312-cu129-ubuntu22.04-sagemaker"
    for change in (
        "~ jumpstart.version was 3.38.0 now 3.39.0",
        "+ environment.SM_VLLM_MAX_NUM_SEQS now 64",
        f"~ instances.ml.g7e.2xlarge.image was {image.format('0.18.0')} now {image.format('0.19.1')}",
        "- environment.TIKTOKEN_ENCODINGS_BASE was /opt/ml/model",
    ):
        assert change in changes
    assert yaml.safe_load(Path("peagle.local.lock").read_text())["jumpstart"]["version"] == "3.39.0"


def test_an_upgrade_as_json(peagle: Run, bucket: Publish, gpt: Path) -> None:
    assert peagle("lock", "--format", "quiet").stdout == "peagle.local.lock\n"
    bucket("3.39.0", newer)
    data = json.loads(peagle("lock", "--upgrade", "--format", "json").stdout)
    assert (data["path"], data["written"], data["stale"], data["newest_version"]) == (
        "peagle.local.lock",
        True,
        False,
        "3.39.0",
    )
    assert {"field": "jumpstart.version", "before": "3.38.0", "after": "3.39.0"} in data["changes"]
    assert data["lock"]["jumpstart"]["version"] == "3.39.0"


def test_a_check_fails_for_each_way_in_which_a_lock_is_stale(peagle: Run, bucket: Publish, gpt: Path) -> None:
    absent = peagle("lock", "--check")
    assert absent.exit_code == 9
    assert "peagle.local.lock does not exist" in absent.stderr
    assert not Path("peagle.local.lock").exists()
    peagle("lock")
    gpt.write_text(gpt.read_text() + "placement: {instance_types: [ml.p5.48xlarge]}\n")
    stale = peagle("lock", "--check", "--format", "json")
    assert stale.exit_code == 9
    assert "asked.instance_types.0" in json.loads(stale.stderr)["error"]["details"]["changes"]
    assert peagle("plan").exit_code == 3, "a plan refuses it too, and names the command"
    assert peagle("lock").exit_code == 0
    bucket("3.38.0", newer)
    rewritten = peagle("lock", "--check")
    assert rewritten.exit_code == 9, "AWS put another document under the same version"
    assert "vllm:0.19.1" in rewritten.stdout
    Path("peagle.local.lock").write_text("damaged")
    assert peagle("lock", "--check").exit_code == 9
    mended = peagle("lock")
    assert "replaced: peagle.local.lock: found 'damaged'" in mended.stderr
    assert peagle("lock", "--check").exit_code == 0


def test_a_version_that_is_gone_is_told_with_the_way_on(peagle: Run, bucket: Publish, gpt: Path) -> None:
    peagle("lock")
    path = Path("peagle.local.lock")
    path.write_text(path.read_text().replace("version: 3.38.0", "version: 3.1.0"))
    gone = peagle("lock")
    assert gone.exit_code == 4
    assert "no longer has version 3.1.0 of openai-reasoning-gpt-oss-20b; it has 3.38.0" in gone.stderr
    assert "lock --upgrade" in gone.stderr
    assert peagle("lock", "--upgrade").exit_code == 0


def test_a_config_asked_for_is_kept(peagle: Run, bucket: Publish, gpt: Path) -> None:
    result = peagle("lock", "--config", "lmi")
    assert "draft head      none" in result.stdout
    assert peagle("lock").stdout.startswith("peagle.local.lock is up to date")
    refused = peagle("plan")
    assert refused.exit_code == 3
    assert "config lmi of openai-reasoning-gpt-oss-20b has no head" in refused.stdout
    assert peagle("lock", "--config", "lmy").exit_code == 4


def test_what_is_not_jumpstart_s_has_nothing_to_lock(peagle: Run, spec: Callable[..., str]) -> None:
    result = peagle("lock", spec())
    assert (result.exit_code, result.stdout) == (
        0,
        "demo: nothing to lock: with source container the spec has its own image and files\n",
    )
    assert peagle("lock", "-", stdin="name: x").exit_code == 2


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("gpt-oss-120b", "openai-reasoning-gpt-oss-120b"),
        ("gemma-4-31b-it", "huggingface-vlm-gemma-4-31b-it"),
    ],
)
def test_the_other_models_are_found_and_deployed_from_their_lock(
    peagle: Run, server: Server, in_empty_folder: Path, model: str, found: str
) -> None:
    name = f"locked-{next(_numbers)}"
    Path("peagle.yaml").write_text(
        f"name: {name}\nmodel: {model}\nsource: jumpstart\nserving: {{env: {{SCRIPT_INVOKE: sse}}}}\n"
    )
    before = peagle("plan")
    assert before.exit_code == 3
    assert "Run `peagle-sm lock SPEC`" in before.stdout
    locked = json.loads(peagle("lock", "--format", "json").stdout)["lock"]
    assert locked["jumpstart"]["model_id"] == found
    plan = peagle("plan")
    assert plan.exit_code == 0
    assert f"locked       {found} 0.0.1+local, config lmi-optimized, on " in plan.stdout
    assert peagle("deploy", "--yes", "--unguarded", "--format", "quiet").exit_code == 0
    endpoint = server.client("sagemaker").describe_endpoint(EndpointName=name)
    config = server.client("sagemaker").describe_endpoint_config(
        EndpointConfigName=endpoint["EndpointConfigName"]
    )
    sent = server.client("sagemaker").describe_model(ModelName=config["ProductionVariants"][0]["ModelName"])
    container = sent["PrimaryContainer"]
    assert container["Image"] == locked["instances"]["ml.g7e.2xlarge"]["image"]
    assert container["ModelDataSource"]["S3DataSource"]["S3Uri"].endswith("/peagle-sm-local/target/")
    assert container["AdditionalModelDataSources"][0]["ChannelName"] == "eagle"


def test_a_model_whose_jumpstart_id_is_not_known_asks_for_it(peagle: Run, in_empty_folder: Path) -> None:
    Path("peagle.yaml").write_text("name: demo\nmodel: qwen3-coder-30b-a3b-instruct\nsource: jumpstart\n")
    result = peagle("lock")
    assert result.exit_code == 4
    assert "jumpstart: ID" in result.stderr


def test_a_deploy_from_a_lock_looks_nothing_up(
    peagle: Run, bucket: Publish, gpt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peagle("lock")
    first = json.loads(peagle("plan", "--dry-run").stdout)
    monkeypatch.setenv(PUBLIC_OVERRIDE, "a-bucket-that-is-not-there")
    bucket("3.99.0", newer)
    assert json.loads(peagle("plan", "--dry-run").stdout)[1:] == first[1:]
    assert peagle("lock", "--check").exit_code == 4


def test_a_gated_model_is_not_deployed_before_its_terms_are_accepted(
    peagle: Run, bucket: Publish, gpt: Path
) -> None:
    def gate(spec: dict[str, Any]) -> None:
        spec["inference_config_components"]["lmi-optimized"]["hosting_eula_key"] = "terms.txt"

    bucket("3.39.0", gate)
    result = peagle("lock")
    assert "licence         Apache 2.0: must be accepted, s3://" in result.stdout
    assert peagle("plan").exit_code == 3
    gpt.write_text(gpt.read_text() + "accept_eula: true\n")
    accepted = peagle("lock")
    assert "~ licence.accepted\n      was  false\n      now  true" in accepted.stdout
    assert peagle("plan").exit_code == 0
