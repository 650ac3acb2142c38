"""Checks on variables that the image does not read as they were meant."""

from __future__ import annotations

import json
from collections.abc import Iterator

from peagle_sm.core.catalog.images import version_of
from peagle_sm.core.checks.base import Check, Edits, Fix, Note, check
from peagle_sm.core.plan.environment import MODEL_MOUNT, environment
from peagle_sm.core.plan.resolve import Draft

_ARGS = "aws/deep-learning-containers: scripts/docker/vllm/sagemaker_args.py"
_DLC = "https://github.com/aws/deep-learning-containers"
_PREFIX = "SM_VLLM_"
# AWS's own examples set true and false from vLLM 0.17 on; the older bash loop passed both as values.
_BOOLEANS_FROM = "0.17.0"
_COMPONENT_ENTRIES = 16
_LONG_CONTEXT_TOKENS = 10_000
_V2_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"


@check(
    "environment-unread",
    why="Only variables that begin with exactly SM_VLLM_ become arguments; others are ignored in silence.",
    source=_ARGS,
    remedy="Write SM_VLLM_<ARGUMENT> in capitals.",
    severity="warning",
    url=_DLC,
)
def environment_unread(draft: Draft) -> Iterator[Note]:
    """Variables that look meant for vLLM and are not read by its image."""
    for name in draft.spec.serving.env:
        upper = name.upper()
        if name.startswith(_PREFIX):
            if name != upper:
                yield Note("warning", f"serving.env.{name}: write it in capitals")
        elif upper.startswith((_PREFIX, "SM_VLM_", "SMVLLM_", "SM_LLM_", "SAGEMAKER_VLLM_")):
            yield Note("warning", f"serving.env.{name}: not read; did you mean {_PREFIX}…?")
        elif upper.startswith("OPTION_") and draft.image is not None and not draft.image.is_lmi:
            yield Note(
                "warning",
                f"serving.env.{name}: OPTION_* is read by the LMI image, and this is {_repo(draft)}",
            )


def _repo(draft: Draft) -> str:
    return draft.image.repository if draft.image else "another"


@check(
    "environment-json",
    why="vLLM refuses to start on broken JSON; an empty list drops the whole argument without a word.",
    source=_ARGS,
    remedy="Correct the JSON; write the list's elements, or remove the variable.",
    url=_DLC,
)
def environment_json(draft: Draft) -> Iterator[Note]:
    """Values that begin like JSON and are none, and empty lists."""
    for name, value in draft.spec.serving.env.items():
        if not name.startswith(_PREFIX) or not value.startswith(("{", "[")):
            continue
        try:
            content = json.loads(value)
        except ValueError as error:
            yield Note("error", f"serving.env.{name}: not JSON: {error}")
            continue
        if content == []:
            yield Note("warning", f"serving.env.{name}: an empty list drops the argument")


@check(
    "environment-booleans",
    why="Images before March 2026 pass true and false on as values, and vLLM refuses to start.",
    source=f"{_ARGS} (before it: a bash loop); that 0.17.0 is the first image with it is assumed",
    remedy=f"Take an image of vLLM {_BOOLEANS_FROM} or newer, or leave the variable out.",
    severity="warning",
    url=_DLC,
)
def environment_booleans(draft: Draft) -> Iterator[Note]:
    """true or false for an image that does not know them."""
    image = draft.image
    if image is None or image.version is None or image.version >= version_of(_BOOLEANS_FROM):
        return
    for name, value in draft.spec.serving.env.items():
        if name.startswith(_PREFIX) and value.lower() in ("true", "false"):
            yield Note(
                "warning", f"serving.env.{name}: vLLM {image.version_text}'s image passes {value!r} on"
            )


@check(
    "hub-model-id",
    why="The image takes the files in /opt/ml/model first, and an isolated container cannot reach the hub.",
    source=f"{_ARGS}: SM_VLLM_MODEL, else /opt/ml/model, else HF_MODEL_ID",
    remedy="Remove HF_MODEL_ID; model_uri says which files are served.",
    url=_DLC,
)
def hub_model_id(draft: Draft) -> Iterator[Note]:
    """A model named by its id on a hub, in the environment."""
    found = draft.spec.serving.env.get("HF_MODEL_ID")
    if found is not None and not found.startswith(MODEL_MOUNT):
        yield Note("error", f"serving.env.HF_MODEL_ID: found {found!r}; it is not served: model_uri is")


def _without_v2(_: Draft) -> Edits:
    return {f"serving.env.{_V2_RUNNER}": "0"}


@check(
    "v2-model-runner",
    why="That runner drafts a P-EAGLE head one token after the other, or refuses to start.",
    source="vllm-project/vllm pull request 43010",
    remedy=f"Remove {_V2_RUNNER}, or set it to 0.",
    url="https://github.com/vllm-project/vllm/pull/43010",
    fix=Fix(f"set {_V2_RUNNER} to 0", edits=_without_v2),
)
def v2_model_runner(draft: Draft) -> Iterator[Note]:
    """The V2 model runner, which has no parallel drafting."""
    value = environment(draft).get(_V2_RUNNER, "0").lower()
    if draft.mode == "p-eagle" and value not in ("0", "false", ""):
        yield Note("error", f"serving.env.{_V2_RUNNER}: found {value!r} with mode p-eagle; allowed: 0")


@check(
    "metrics-off",
    why="Acceptance is the only witness that the draft head works, and the engine then reports none.",
    source="vLLM: --disable-log-stats turns the engine's Prometheus figures off",
    remedy="Remove SM_VLLM_DISABLE_LOG_STATS.",
    severity="warning",
    url="https://docs.vllm.ai/en/latest/configuration/engine_args/",
)
def metrics_off(draft: Draft) -> Iterator[Note]:
    """The engine's own figures turned off beside a draft head."""
    value = draft.spec.serving.env.get("SM_VLLM_DISABLE_LOG_STATS")
    if draft.speculating and value is not None and value.lower() != "false":
        yield Note("warning", "serving.env.SM_VLLM_DISABLE_LOG_STATS: nobody can see acceptance")


@check(
    "component-environment",
    why="CreateInferenceComponent refuses more entries in a container of its own.",
    source="SageMaker API: InferenceComponentContainerSpecification.Environment (16 entries)",
    remedy="Nothing to do: the plan's component names a model, whose own 100 entries count.",
    severity="info",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/"
    "API_InferenceComponentContainerSpecification.html",
)
def component_environment(draft: Draft) -> Iterator[Note]:
    """More variables than an inference component takes in its container form."""
    count = len(environment(draft))
    if draft.scales_to_zero and count > _COMPONENT_ENTRIES:
        yield Note("info", f"{count} variables; a component's own container would take {_COMPONENT_ENTRIES}")


@check(
    "head-context",
    why="Below 10k tokens the heads' cards prefer the head that was not trained for long context.",
    source="model cards of amazon/gpt-oss-20b-p-eagle-long-context and of its siblings",
    remedy="Take the other head, or measure both: peagle-sm compare.",
    severity="info",
    url="https://huggingface.co/amazon/gpt-oss-20b-p-eagle-long-context",
)
def head_context(draft: Draft) -> Iterator[Note]:
    """A head for long contexts on an endpoint with a short one."""
    longest = draft.max_model_len
    if draft.head_id is None or not draft.head_id.endswith("-long-context") or longest is None:
        return
    if longest <= _LONG_CONTEXT_TOKENS:
        yield Note("info", f"speculation.draft_head: {draft.head_id} with a context of {longest} tokens")


CHECKS: tuple[Check, ...] = (
    environment_unread,
    environment_json,
    environment_booleans,
    hub_model_id,
    v2_model_runner,
    metrics_off,
    component_environment,
    head_context,
)
