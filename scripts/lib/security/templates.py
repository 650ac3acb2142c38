"""Rules on endpoints, functions and logs in a CloudFormation template; each returns what breaks it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from peagle_sm.core.checks.environment import SECRET_NAME, SECRET_VALUE
from peagle_sm.core.engines import load_forbidden, version_of

Template = Mapping[str, Any]
MAX_LOGPROBS = 20
"""vLLM's own default; -1 would be the whole vocabulary for each token."""
N_LIMIT = "VLLM_MAX_N_SEQUENCES"
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_GATED = "s3://jumpstart-private-cache-prod-"  # the bucket of content with an agreement


def of_type(template: Template, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the logical id and the properties of each resource of a type."""
    for name, resource in template["Resources"].items():
        if resource["Type"] == kind:
            yield name, resource.get("Properties", {})


def models(template: Template) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each CreateModel request: CloudFormation's own, and those that the guard's function sends."""
    yield from of_type(template, "AWS::SageMaker::Model")
    for name, properties in of_type(template, "Custom::PeagleModel"):
        payload = properties["Payload"]
        text = payload["Fn::Sub"] if isinstance(payload, dict) else payload
        yield name, json.loads(text[0] if isinstance(text, list) else text)


def containers(template: Template) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the container of each model."""
    for name, request in models(template):
        yield name, request["PrimaryContainer"]


def settings(template: Template) -> Iterator[tuple[str, str, str]]:
    """Yield each environment variable of a model or a function: where it stands, its name, its value."""
    for name, container in containers(template):
        for key, value in container.get("Environment", {}).items():
            yield name, key, str(value)
    for name, properties in of_type(template, "AWS::Lambda::Function"):
        for key, value in properties.get("Environment", {}).get("Variables", {}).items():
            yield name, key, value if isinstance(value, str) else json.dumps(value)


def sources(template: Template) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each S3 source of a model's files."""
    for name, container in containers(template):
        given = [container.get("ModelDataSource", {}), *container.get("AdditionalModelDataSources", [])]
        for entry in given:
            if "S3DataSource" in entry:
                yield name, entry["S3DataSource"]


def open_networks(template: Template) -> list[str]:
    """A model whose container may make network calls."""
    return [name for name, request in models(template) if request.get("EnableNetworkIsolation") is not True]


def volumes_without_key(template: Template, has_local_disks: Callable[[str], bool]) -> list[str]:
    """An endpoint config without a key of one's own, where the instance's volume would take one."""
    return [
        f"{name}: {variant['InstanceType']}"
        for name, properties in of_type(template, "AWS::SageMaker::EndpointConfig")
        if not properties.get("KmsKeyId")
        for variant in properties["ProductionVariants"]
        if "InstanceType" in variant and not has_local_disks(variant["InstanceType"])
    ]


def images_by_tag(template: Template) -> list[str]:
    """An image that is not named by its digest."""
    return [
        f"{name}: {container['Image']}"
        for name, container in containers(template)
        if not _DIGEST.search(container["Image"])
    ]


def movable_images(template: Template) -> list[str]:
    """An image without a tag, or with one that is made to move."""
    moving = (":latest", ":stable", ":main", ":nightly")
    return [
        f"{name}: {image}"
        for name, container in containers(template)
        if (image := container["Image"]).endswith(moving) or ":" not in image.rpartition("/")[2]
    ]


def unpinned_files(template: Template) -> list[str]:
    """Weights that are named by a prefix alone: CreateModel is given no ETag of what it should find."""
    return [
        f"{name}: {source['S3Uri']}"
        for name, source in sources(template)
        if not (source.get("ETag") or source.get("ManifestEtag"))
    ]


def tacit_licences(template: Template) -> list[str]:
    """A gated JumpStart source without an explicit AcceptEula: true."""
    return [
        f"{name}: {source['S3Uri']}"
        for name, source in sources(template)
        if (source["S3Uri"].startswith(_GATED) or "ModelAccessConfig" in source)
        and source.get("ModelAccessConfig", {}).get("AcceptEula") is not True
    ]


def forbidden_settings(template: Template) -> list[str]:
    """A setting that opens the engine (`peagle_sm.core.engines.load_forbidden` has the reasons)."""
    return [
        f"{where}: {name}"
        for where, name, value in settings(template)
        if (entry := load_forbidden().setting(name, value)) and not entry.gate_only
    ]


def raised_limits(template: Template) -> list[str]:
    """A limit of what one request may ask for that is raised beyond vLLM's own, or lifted."""
    broken = []
    for where, name, value in settings(template):
        if name == "SM_VLLM_MAX_LOGPROBS" and not 0 <= _number(value) <= MAX_LOGPROBS:
            broken.append(f"{where}: {name}={value}")
    return broken


def no_limit_of_sequences(template: Template, highest: int = 64) -> list[str]:
    """A model without a limit of `n`, the sequences that one request may ask for."""
    return [
        f"{name}: {container['Image']}"
        for name, container in containers(template)
        if not 1 <= _number(container.get("Environment", {}).get(N_LIMIT, "0")) <= highest
    ]


def secrets(template: Template) -> list[str]:
    """What looks like a key or a password: by its value anywhere, by its name in an environment."""
    found = [f"the template holds {hit[0][:4]}…" for hit in SECRET_VALUE.finditer(json.dumps(template))]
    named = [
        f"{where}: {name}"
        for where, name, value in settings(template)
        if value and SECRET_NAME.search(name.upper()) and not name.upper().endswith("TOKENS")
    ]
    return found + named


def eternal_logs(template: Template) -> list[str]:
    """A log group that keeps everything for ever."""
    return [
        name
        for name, properties in of_type(template, "AWS::Logs::LogGroup")
        if not properties.get("RetentionInDays")
    ]


def unwatched_functions(template: Template) -> list[str]:
    """A function without a dead-letter queue, a log group of its own, or an alarm on its errors."""
    logged = {properties.get("LogGroupName") for _, properties in of_type(template, "AWS::Logs::LogGroup")}
    alarmed = json.dumps([dict(each) for _, each in of_type(template, "AWS::CloudWatch::Alarm")])
    broken = []
    for name, properties in of_type(template, "AWS::Lambda::Function"):
        function = properties.get("FunctionName", "")
        if not properties.get("DeadLetterConfig"):
            broken.append(f"{name}: no dead-letter queue")
        if f"/aws/lambda/{function}" not in logged:
            broken.append(f"{name}: no log group of its own")
        if '"Errors"' not in alarmed or f'"{function}"' not in alarmed:
            broken.append(f"{name}: no alarm on its errors")
    return broken


def crowds(template: Template, alone: frozenset[str]) -> list[str]:
    """A function that must run alone, and may run twice at once."""
    return [
        name
        for name, properties in of_type(template, "AWS::Lambda::Function")
        if properties.get("FunctionName") in alone
        and not _is_one(properties.get("ReservedConcurrentExecutions"))
    ]


def old_engines(
    template: Template, floor: str, version: Callable[[str], tuple[int, ...] | None]
) -> list[str]:
    """An image whose engine is below the floor of the security advisories, or does not tell its version."""
    return [
        f"{name}: {container['Image']}"
        for name, container in containers(template)
        if (version(container["Image"]) or ()) < version_of(floor)
    ]


def _is_one(given: Any) -> bool:
    """1, or 1 under a condition: accounts with few executions left cannot reserve one."""
    return given == 1 or (isinstance(given, dict) and given.get("Fn::If", [None, None])[1] == 1)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1
