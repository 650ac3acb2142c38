"""Every rule over all that ships; and for each a fixture with the fault that it is there for."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from importlib.resources import files as packaged
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.catalog import HeadEntry, load_catalog
from peagle_sm.service.spec_to_plan import load_spec
from scripts.lib.security import files, iam, image, templates
from scripts.lib.security.check import as_json, idle, outcomes, table
from scripts.lib.security.explained import EXPLAINED, Explained, sorted_out
from scripts.lib.security.rules import RULES
from scripts.lib.security.subjects import Subjects, collect
from tests.stacks.support import EXAMPLES, template

Template = dict[str, Any]


def guard() -> Template:
    """The guard's template as it ships, a copy."""
    found = json.loads((packaged("peagle_sm") / "guard_assets" / "template.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def subjects() -> Subjects:
    names = [load_spec(path).name for path in EXAMPLES]
    return collect({"PeagleGuard": guard(), **{f"Peagle-{name}": template(name) for name in names}})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_nothing_that_ships_breaks_a_rule(subjects: Subjects, rule: Any) -> None:
    broken, _ = sorted_out(rule.id, rule.look(subjects))
    assert broken == []


def test_every_explanation_is_needed_and_gives_its_reason(subjects: Subjects) -> None:
    assert idle(outcomes(subjects)) == []
    assert [each for each in EXPLAINED if len(each.why) < 40] == []
    assert {each.rule for each in EXPLAINED} <= {rule.id for rule in RULES}


def test_the_table_has_a_line_for_each_rule_and_says_what_was_looked_at(subjects: Subjects) -> None:
    found = outcomes(subjects)
    text = table(found, subjects)
    assert [line.split()[0] for line in text.splitlines()[1 : len(RULES) + 1]] == [rule.id for rule in RULES]
    assert "BROKEN" not in text
    assert f"{len(RULES)} rules over 9 templates" in text
    assert [row["rule"] for row in json.loads(as_json(found))] == [rule.id for rule in RULES]


def test_an_explanation_covers_its_own_rule_and_place_alone() -> None:
    one = Explained("root", "container/Dockerfile: *", "because")
    assert sorted_out("root", ["container/Dockerfile: no USER", "other: no USER"], [one]) == (
        ["other: no USER"],
        [("container/Dockerfile: no USER", one)],
    )
    assert sorted_out("base-digest", ["container/Dockerfile: x"], [one])[0] == ["container/Dockerfile: x"]


# --- templates ----------------------------------------------------------------------------------------


def model(**changes: Any) -> Template:
    """A template with one model that breaks nothing, but for what is changed; None takes a member out."""
    container: dict[str, Any] = {
        "Image": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/vllm@sha256:" + "0" * 64,
        "Environment": {"VLLM_MAX_N_SEQUENCES": "16"},
        "ModelDataSource": {"S3DataSource": {"S3Uri": "s3://b/target/", "ETag": "abc"}},
    }
    request = {"EnableNetworkIsolation": True, "PrimaryContainer": container}
    for name, value in changes.items():
        place = request if name == "EnableNetworkIsolation" else container
        place[name] = value
    return {"Resources": {"Model": {"Type": "AWS::SageMaker::Model", "Properties": request}}}


def made_by_the_guard(found: Template) -> Template:
    """The same model as the guard's function makes it: its request is text, with a value to be filled in."""
    text = json.dumps(found["Resources"]["Model"]["Properties"] | {"ExecutionRoleArn": "${Role}"})
    payload = {"Fn::Sub": [text, {"Role": {"Fn::ImportValue": "Role"}}]}
    return {"Resources": {"Model": {"Type": "Custom::PeagleModel", "Properties": {"Payload": payload}}}}


def _source(uri: str, **more: Any) -> dict[str, Any]:
    return {"S3DataSource": {"S3Uri": uri, "ETag": "abc", **more}}


def _version(uri: str) -> tuple[int, ...] | None:
    return load_catalog().images.describe(uri).version


def _old(found: Template) -> list[str]:
    return templates.old_engines(found, "0.33.0", _version)


_JUMPSTART = "s3://jumpstart-private-cache-prod-eu-west-1/x/"
_ECR = "1.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("rule", "changes", "found"),
    [
        (templates.open_networks, {"EnableNetworkIsolation": False}, ["Model"]),
        (templates.open_networks, {"EnableNetworkIsolation": None}, ["Model"]),
        (templates.images_by_tag, {"Image": f"{_ECR}/vllm:0.33.0"}, [f"Model: {_ECR}/vllm:0.33.0"]),
        (templates.movable_images, {"Image": f"{_ECR}/vllm:latest"}, [f"Model: {_ECR}/vllm:latest"]),
        (templates.movable_images, {"Image": f"{_ECR}/vllm"}, [f"Model: {_ECR}/vllm"]),
        (
            templates.unpinned_files,
            {"AdditionalModelDataSources": [{"S3DataSource": {"S3Uri": "s3://b/head/"}}]},
            ["Model: s3://b/head/"],
        ),
        (templates.tacit_licences, {"ModelDataSource": _source(_JUMPSTART)}, [f"Model: {_JUMPSTART}"]),
        (
            templates.tacit_licences,
            {"ModelDataSource": _source("s3://b/", ModelAccessConfig={"AcceptEula": False})},
            ["Model: s3://b/"],
        ),
        (
            templates.forbidden_settings,
            {"Environment": {"SM_VLLM_TRUST_REMOTE_CODE": "true"}},
            ["Model: SM_VLLM_TRUST_REMOTE_CODE"],
        ),
        (
            templates.forbidden_settings,
            {"Environment": {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "0"}},
            ["Model: VLLM_ALLOW_RUNTIME_LORA_UPDATING"],
        ),
        (
            templates.forbidden_settings,
            {"Environment": {"SM_VLLM_ALLOWED_LOCAL_MEDIA_PATH": "/", "SM_VLLM_PROFILER_CONFIG": "{}"}},
            ["Model: SM_VLLM_ALLOWED_LOCAL_MEDIA_PATH", "Model: SM_VLLM_PROFILER_CONFIG"],
        ),
        (
            templates.raised_limits,
            {"Environment": {"SM_VLLM_MAX_LOGPROBS": "-1"}},
            ["Model: SM_VLLM_MAX_LOGPROBS=-1"],
        ),
        (
            templates.no_limit_of_sequences,
            {"Environment": {"VLLM_MAX_N_SEQUENCES": "16384"}, "Image": "x"},
            ["Model: x"],
        ),
        (templates.no_limit_of_sequences, {"Environment": {}, "Image": "x"}, ["Model: x"]),
        (_old, {"Image": f"{_ECR}/vllm:0.32.0"}, [f"Model: {_ECR}/vllm:0.32.0"]),
        (_old, {"Image": f"{_ECR}/vllm:0.33.0"}, []),
        (templates.secrets, {"Environment": {"DB_PASSWORD": "x"}}, ["Model: DB_PASSWORD"]),
        (
            templates.secrets,
            {"Environment": {"X": "hf_" + "a" * 30, "MAX_TOKENS": "5"}},
            ["the template holds hf_a…"],
        ),
    ],
)
def test_a_fault_in_a_model_is_found(
    rule: Callable[[Template], list[str]], changes: dict[str, Any], found: list[str]
) -> None:
    assert rule(model(**changes)) == found
    assert rule(made_by_the_guard(model(**changes))) == found


@pytest.mark.parametrize(
    "rule",
    [
        templates.open_networks,
        templates.images_by_tag,
        templates.movable_images,
        templates.unpinned_files,
        templates.tacit_licences,
        templates.forbidden_settings,
        templates.raised_limits,
        templates.no_limit_of_sequences,
        templates.secrets,
    ],
)
def test_a_model_without_fault_passes(rule: Callable[[Template], list[str]]) -> None:
    assert rule(model()) == rule(made_by_the_guard(model())) == []


@pytest.mark.parametrize(
    ("key", "instance_type", "found"),
    [
        (None, "ml.m7i.2xlarge", ["Config: ml.m7i.2xlarge"]),
        ("alias/ours", "ml.m7i.2xlarge", []),
        (None, "ml.g7e.2xlarge", []),
    ],
)
def test_a_volume_that_would_take_a_key(key: str | None, instance_type: str, found: list[str]) -> None:
    properties = {"KmsKeyId": key, "ProductionVariants": [{"InstanceType": instance_type}]}
    planted = {"Resources": {"Config": {"Type": "AWS::SageMaker::EndpointConfig", "Properties": properties}}}
    disks = {name for name, entry in load_catalog().instances.items() if entry.local_storage}
    assert templates.volumes_without_key(planted, lambda name: name in disks) == found


def _resource(found: Template, kind: str) -> dict[str, Any]:
    return next(each for each in found["Resources"].values() if each["Type"] == kind)


def test_a_log_group_without_an_end_is_found() -> None:
    planted = guard()
    del _resource(planted, "AWS::Logs::LogGroup")["Properties"]["RetentionInDays"]
    assert len(templates.eternal_logs(planted)) == 1


def test_a_function_that_nobody_watches_is_found() -> None:
    planted = guard()
    del planted["Resources"]["Sweeper"]["Properties"]["DeadLetterConfig"]
    planted["Resources"]["Switch"]["Properties"]["FunctionName"] = "another"
    assert templates.unwatched_functions(planted) == [
        "Sweeper: no dead-letter queue",
        "Switch: no log group of its own",
        "Switch: no alarm on its errors",
    ]


@pytest.mark.parametrize("given", [None, 2, {"Fn::If": ["ReservesConcurrency", 5, {"Ref": "AWS::NoValue"}]}])
def test_two_sweeps_at_once_are_found(given: Any) -> None:
    planted = guard()
    planted["Resources"]["Sweeper"]["Properties"]["ReservedConcurrentExecutions"] = given
    assert templates.crowds(planted, frozenset({"peagle-guard-sweeper"})) == ["Sweeper"]


def _policy(found: Template, **changes: Any) -> Template:
    statement = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:x"], **changes}
    document = {"Version": "2012-10-17", "Statement": [statement]}
    role = {"Type": "AWS::IAM::Role", "Properties": {"Policies": [{"PolicyDocument": document}]}}
    return {"Resources": {**copy.deepcopy(found)["Resources"], "Planted": role}}


@pytest.mark.parametrize(
    ("rule", "changes", "found"),
    [
        (
            iam.wildcards_that_destroy_or_pass,
            {"Action": "sagemaker:DeleteEndpoint", "Resource": "*"},
            ["Planted: sagemaker:DeleteEndpoint"],
        ),
        (iam.wildcards_that_destroy_or_pass, {"Action": "*", "Resource": "*"}, ["Planted: *"]),
        (iam.wildcard_actions, {"Action": "sagemaker:*"}, ["Planted: sagemaker:*"]),
        (iam.loose_pass_role, {"Action": "iam:PassRole", "Resource": "*"}, ["Planted"]),
        (
            iam.loose_pass_role,
            {"Action": "iam:PassRole", "Resource": "arn:aws:iam::1:role/peagle-x", "Condition": {}},
            ["Planted"],
        ),
        (iam.untagged_deletion, {"Action": "sagemaker:DeleteModel"}, ["Planted: sagemaker:DeleteModel"]),
        (iam.untagged_creation, {"Action": "sagemaker:CreateModel"}, ["Planted: sagemaker:CreateModel"]),
    ],
)
def test_a_planted_permission_is_found(
    rule: Callable[[Template], list[str]], changes: dict[str, Any], found: list[str]
) -> None:
    assert rule(_policy(guard(), **changes)) == found


def test_a_policy_of_its_own_is_read_too() -> None:
    document = {"Statement": [{"Effect": "Allow", "Action": "iam:PassRole", "Resource": "*"}]}
    policy = {"Type": "AWS::IAM::ManagedPolicy", "Properties": {"PolicyDocument": document}}
    assert iam.loose_pass_role({"Resources": {"P": policy}}) == ["P"]


def test_full_access_is_found() -> None:
    arns = ["arn:aws:iam::aws:policy/AmazonSageMakerFullAccess", "arn:aws:iam::aws:policy/ReadOnlyAccess"]
    planted = {"Resources": {"R": {"Type": "AWS::IAM::Role", "Properties": {"ManagedPolicyArns": arns}}}}
    assert iam.broad_policies(planted) == [f"R: {arns[0]}"]


# --- image files --------------------------------------------------------------------------------------

_BASE = "FROM python:3.12-slim@sha256:" + "a" * 64 + "\n"


@pytest.mark.parametrize(
    ("rule", "text", "found"),
    [
        (image.bases_by_tag, "FROM python:3.12\n", ["line 1: FROM python:3.12"]),
        (image.bases_by_tag, "ARG BASE=python:3.12\nFROM ${BASE}\n", ["line 2: FROM python:3.12"]),
        (image.bases_by_tag, "ARG BASE\nFROM $BASE AS b\nFROM b\n", ["line 2: FROM $BASE"]),
        (image.bases_by_tag, _BASE.replace("FROM", "FROM --platform=linux/amd64") + "FROM scratch\n", []),
        (image.bases_by_tag, _BASE.strip() + " AS built\nFROM built\n", []),
        (image.runs_as_root, _BASE, ["no USER"]),
        (image.runs_as_root, _BASE + "USER 0:0\n", ["USER 0:0"]),
        (image.runs_as_root, _BASE + "USER root\n", ["USER root"]),
        (image.runs_as_root, "ARG RUN_AS=1000:1000\n" + _BASE + "USER ${RUN_AS}\n", []),
        (image.runs_as_root, _BASE + "USER 1000\n" + _BASE, ["no USER"]),
        (image.unhashed_installs, "RUN pip install vllm\n", ["line 1: pip install vllm"]),
        (
            image.unhashed_installs,
            "RUN true && \\\n    # why\n    python3 -m pip install -r x.lock\n",
            ["line 1: python3 -m pip install -r x.lock"],
        ),
        (image.unhashed_installs, "RUN <<EOF\npip install vllm\nEOF\nUSER 1\n", ["line 1: pip install vllm"]),
        (image.unhashed_installs, "RUN pip install --require-hashes -r x.lock\n", []),
        (image.unchecked_downloads, "ADD https://x/y.tar /\n", ["line 1: ADD https://x/y.tar /"]),
        (image.unchecked_downloads, "RUN curl -O https://x/y\n", ["line 1: curl -O https://x/y"]),
        (image.unchecked_downloads, "RUN curl -O https://x/y && echo a y | sha256sum -c\n", []),
        (image.forbidden_settings, "ENV VLLM_SERVER_DEV_MODE=1 A=b\n", ["line 1: VLLM_SERVER_DEV_MODE"]),
        (image.forbidden_settings, 'CMD ["serve", "--trust-remote-code"]\n', ["line 1: --trust-remote-code"]),
        (image.forbidden_settings, "ENV VLLM_SERVER_DEV_MODE=0\n", []),
        (image.secrets, "ARG HF_TOKEN=\n", ["line 1: HF_TOKEN"]),
        (image.secrets, "ENV X=hf_" + "b" * 30 + "\n", ["a value begins with hf_b"]),
        (image.secrets, "ENV PEAGLE_GATE_MAX_TOKENS=5\n", []),
    ],
)
def test_a_fault_in_a_dockerfile_is_found(
    rule: Callable[[str], list[str]], text: str, found: list[str]
) -> None:
    assert rule(text) == found


def test_a_refusal_that_the_container_lacks_is_found() -> None:
    flags = {"--trust-remote-code": ""}
    missing = image.missing_refusals(flags, {"VLLM_SERVER_DEV_MODE": ""})
    assert "trust_remote_code" not in missing
    assert "VLLM_SERVER_DEV_MODE" not in missing
    assert {"allowed_local_media_path", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"} <= set(missing)


# --- files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["modeling.py", "pytorch_model.bin", "weights.pkl"])
def test_weights_that_run_code_are_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "config.json").write_text("{}")
    assert files.unsafe_weights(tmp_path) == []
    (tmp_path / name).write_bytes(b"")
    assert [found for found in files.unsafe_weights(tmp_path) if name in found]


def test_an_auto_map_is_found(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "team/code--modeling.Mine"}}')
    assert files.unsafe_weights(tmp_path) == [
        "config.json has an auto_map that names code: team/code--modeling.Mine"
    ]


def test_a_head_without_a_commit_is_found() -> None:
    heads = load_catalog().heads
    fetched = next(head for head in heads.values() if head.hub_id)
    pinned: dict[str, HeadEntry] = {"a": fetched.model_copy(update={"revision": "0" * 40})}
    assert files.unpinned_heads(pinned) == []
    assert files.unpinned_heads({"a": fetched.model_copy(update={"revision": None})}) == ["a"]


def test_a_key_in_a_file_is_found() -> None:
    planted = [(Path("a.md"), "key: AKIA" + "Q" * 16), (Path("b.md"), "AKIAEXAMPLE")]
    assert files.secrets(planted) == ["a.md: AKIA…"]
