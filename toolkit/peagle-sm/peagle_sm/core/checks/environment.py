"""Checks of the container's environment: settings, security.

The checks find variables that the image would read in another way than intended, and variables that expose
something: secrets, flags that open the engine, a volume without your own key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from peagle_sm.core.checks.base import Findings, check
from peagle_sm.core.engines import RUNNER_VARIABLE, load_arguments, load_forbidden
from peagle_sm.core.plan.environment import (
    MODEL_MOUNT,
    OWNED,
    environment,
    extra_variables,
)
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.validation import suggest
from peagle_sm.core.words import Finding


def _given(draft: Draft) -> Iterator[tuple[str, str, str]]:
    """Yield each variable that the spec sets by name: its field, the variable and the value."""
    for name, value in draft.spec.serving.env.items():
        yield f"serving.env.{name}", name, value
    for argument, (name, value) in extra_variables(draft.spec.serving.extra_args).items():
        yield f"serving.extra_args.{argument}", name, value


@check(
    "environment-owned",
    why="A setting in two places can contradict itself.",
    source="this project",
    remedy="Use the field of the spec instead.",
)
def environment_owned(draft: Draft) -> Findings:
    """Variables that a field of the spec sets."""
    for field, name, _ in _given(draft):
        if name in OWNED:
            yield Finding(
                "error",
                f"{field}: not allowed here; the field {OWNED[name]} sets it",
                f"Remove it and set {OWNED[name]}.",
            )
    extra = {name: argument for argument, (name, _) in extra_variables(draft.spec.serving.extra_args).items()}
    for name in draft.spec.serving.env:
        if name in extra and name not in OWNED:
            yield f"serving.env.{name}: not allowed here; serving.extra_args.{extra[name]} sets it"


@check(
    "environment-port",
    why="SageMaker sends /ping to port 8080; on another port the endpoint never becomes InService.",
    source="aws/deep-learning-containers: sagemaker_args.py appends SM_VLLM_PORT after --port 8080",
    remedy="Remove it.",
    url="https://github.com/aws/deep-learning-containers",
)
def environment_port(draft: Draft) -> Findings:
    """A user-defined port or host."""
    for field, name, _ in _given(draft):
        if name in ("SM_VLLM_PORT", "SM_VLLM_HOST"):
            yield f"{field}: not allowed; SageMaker expects the server on port 8080"


@check(
    "environment-empty",
    why="An empty value becomes a flag without a value, which takes the next argument or stops the engine.",
    source="aws/deep-learning-containers: sagemaker_args.py",
    remedy="Write true for a flag without a value, false to drop it, or a value.",
    url="https://github.com/aws/deep-learning-containers",
)
def environment_empty(draft: Draft) -> Findings:
    """An SM_VLLM_* variable without a value."""
    for field, name, value in _given(draft):
        if name.startswith("SM_VLLM_") and not value:
            yield f"{field}: found an empty value"


_ARGS = "aws/deep-learning-containers: scripts/docker/vllm/sagemaker_args.py"
_DLC = "https://github.com/aws/deep-learning-containers"
_PREFIX = "SM_VLLM_"
# AWS's own examples set true and false from vLLM 0.17 on; the older bash loop passed both as values.
_BOOLEANS_FROM = "0.17.0"
_COMPONENT_ENTRIES = 16
_LONG_CONTEXT_TOKENS = 10_000


# Names of arguments of vLLM that PyTorch and other libraries read as variables.
_READ_BY_OTHERS = frozenset({"API_KEY", "LOG_LEVEL", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "ROOT_PATH"})


@check(
    "environment-unread",
    why="Only variables that begin with exactly SM_VLLM_ become arguments; others are silently ignored.",
    source=_ARGS,
    remedy="Write SM_VLLM_<ARGUMENT> in capitals.",
    severity="warning",
    url=_DLC,
)
def environment_unread(draft: Draft) -> Findings:
    """Variables that look like vLLM's, but that the image does not read."""
    for name in draft.spec.serving.env:
        upper = name.upper()
        if name.startswith(_PREFIX):
            if name != upper:
                yield f"serving.env.{name}: write it in capitals"
        elif upper.startswith((_PREFIX, "SM_VLM_", "SMVLLM_", "SM_LLM_", "SAGEMAKER_VLLM_")):
            yield f"serving.env.{name}: not read; did you mean {_PREFIX}…?"
        elif upper.startswith("OPTION_") and draft.image is not None and not draft.image.is_lmi:
            repository = draft.image.repository
            yield f"serving.env.{name}: only the LMI image reads OPTION_*, and this image is {repository}"
        elif name.startswith("VLLM_"):
            yield from _unread(name, draft)
        elif upper.startswith("VLLM_"):
            yield Finding("warning", f"serving.env.{name}: vLLM does not read it; write it in capitals")
        elif name not in _READ_BY_OTHERS and "_" in name and name.lower() in load_arguments().names:
            yield Finding(
                "warning",
                f"serving.env.{name}: not read; only SM_VLLM_{upper} would be",
                f"Remove it and set {_home_of(name.lower())}.",
            )


def _home_of(argument: str) -> str:
    """Return the field of the spec that sets an argument."""
    return OWNED.get(f"{_PREFIX}{argument.upper()}", f"serving.extra_args.{argument}")


def _unread(name: str, draft: Draft) -> Findings:
    """Find a variable that the image's vLLM does not read."""
    arguments, version = load_arguments(), draft.image.version if draft.image else None
    if version is None or not arguments.covers(version) or arguments.reads_variable(name, version):
        return
    argument, span = name.removeprefix("VLLM_").lower(), arguments.variables_sometimes.get(name)
    if argument in arguments.names:
        step = f"Remove it and set {_home_of(argument)}."
    else:
        step = f"Remove it.{suggest(name, arguments.variables | arguments.variables_sometimes.keys())}"
    reads = f"; {span.text} does" if span else ""
    text = ".".join(map(str, version))
    yield Finding("warning", f"serving.env.{name}: vLLM {text} does not read it{reads}", step)


@check(
    "environment-json",
    why="vLLM refuses to start with invalid JSON; an empty list silently drops the whole argument.",
    source=_ARGS,
    remedy="Correct the JSON; add elements to the list, or remove the variable.",
    url=_DLC,
)
def environment_json(draft: Draft) -> Findings:
    """Values that look like JSON but do not parse, and empty lists."""
    for field, name, value in _given(draft):
        if not name.startswith(_PREFIX) or not value.startswith(("{", "[")):
            continue
        try:
            content = json.loads(value)
        except ValueError as error:
            yield f"{field}: not JSON: {error}"
            continue
        if content == []:
            yield Finding("warning", f"{field}: an empty list drops the argument")


@check(
    "hub-model-id",
    why="The image prefers the files in /opt/ml/model, and an isolated container cannot reach the hub.",
    source=f"{_ARGS}: SM_VLLM_MODEL, else /opt/ml/model, else HF_MODEL_ID",
    remedy="Remove HF_MODEL_ID; model_uri selects the files that are served.",
    url=_DLC,
)
def hub_model_id(draft: Draft) -> Findings:
    """A hub's model id in the environment."""
    model_id = draft.spec.serving.env.get("HF_MODEL_ID")
    if model_id is not None and not model_id.startswith(MODEL_MOUNT):
        yield f"serving.env.HF_MODEL_ID: found {model_id!r}, which is ignored: model_uri is served"


@check(
    "v2-model-runner",
    why="That runner drafts one token at a time with a P-EAGLE head, or refuses to start.",
    source="vllm-project/vllm pull request 43010",
    remedy=f"Remove {RUNNER_VARIABLE}, or set it to 0.",
    url="https://github.com/vllm-project/vllm/pull/43010",
)
def v2_model_runner(draft: Draft) -> Findings:
    """A model runner that lacks the mode, or does not run on a CPU."""
    value = environment(draft).get(RUNNER_VARIABLE)
    if value is not None and value not in ("0", "1"):
        # vLLM reads int(value): anything else ends the engine, "false" and "" too
        yield f"serving.env.{RUNNER_VARIABLE}: found {value!r}; allowed: 0 or 1"
        return
    if value == "1" and draft.context.local:
        yield (
            f"serving.env.{RUNNER_VARIABLE}: found '1' on a CPU; allowed: 0, since the V2 model runner needs "
            "Triton"
        )
        return
    if draft.image is None or draft.image.is_lmi:
        return
    runners = draft.mode_facts.runners
    if draft.context.local and "v1" not in runners:
        yield Finding(
            "error",
            f"speculation.mode: found {draft.mode} on a CPU; allowed: a mode of the V1 model runner, since "
            f"only V2 has {draft.mode}, and V2 needs Triton",
            "Choose another mode, or deploy on AWS.",
        )
    elif value is not None and draft.mode != "p-eagle" and f"v{int(value) + 1}" not in runners:
        only = "1" if value == "0" else "0"
        yield f"serving.env.{RUNNER_VARIABLE}: found {value!r} with mode {draft.mode}; allowed: {only}"
    if draft.mode != "p-eagle":
        return
    entry = draft.catalog.engines.nearest(draft.image.version)
    if not entry.runs_p_eagle:
        yield Finding(
            "error",
            f"image: vLLM {entry.version} has only the V2 model runner, which has no parallel drafting",
            "Use an image with an older vLLM (`peagle-sm help engines` lists them), or mode eagle3.",
        )
    elif value == "1" and entry.p_eagle_on_v2 != "parallel":
        yield f"serving.env.{RUNNER_VARIABLE}: found {value!r} with mode p-eagle; allowed: 0"


_SECURITY = "https://docs.vllm.ai/en/latest/usage/security/"
SECRET_NAME = re.compile(r"(^|_)(SECRET|PASSWORD|PASSWD|TOKEN|PRIVATE_KEY|ACCESS_KEY)(_|$)")
SECRET_VALUE = re.compile(
    r"\b(AKIA|ASIA)[A-Z0-9]{16}\b|\bhf_[A-Za-z0-9]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


def has_gate(draft: Draft) -> bool:
    """Return whether the gate of this project's image checks the arguments at start."""
    return draft.has_own_image and environment(draft).get("PEAGLE_GATE", "on").strip().lower() != "off"


@check(
    "environment-secrets",
    why="DescribeModel shows a model's environment to everyone who may read models.",
    source="SageMaker API: DescribeModel returns ContainerDefinition.Environment",
    remedy="Remove the secret; an isolated container that reads S3 with its role needs none.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeModel.html",
)
def environment_secrets(draft: Draft) -> Findings:
    """A variable that looks like a secret."""
    for field, name, value in _given(draft):
        if SECRET_VALUE.search(value):
            yield f"{field}: its value looks like a key or token"
        elif value and SECRET_NAME.search(name.upper()) and not name.upper().endswith("TOKENS"):
            yield Finding("warning", f"{field}: its name suggests a secret")


@check(
    "forbidden-flags",
    why="Each flag gives requests, or the weights, control over the engine.",
    source="vLLM: security; security advisories",
    remedy="Remove it.",
    url=_SECURITY,
)
def forbidden_flags(draft: Draft) -> Findings:
    """Flags that open the engine to requests or code."""
    given = list(_given(draft))
    if not given:
        return
    listed = load_forbidden()
    for field, name, value in given:
        entry = listed.setting(name, value)
        if entry is None:
            continue
        part = f" with {' or '.join(sorted(entry.keys))}" if entry.keys else ""
        if not entry.gate_only:
            yield f"{field}: not allowed{part}: it {entry.why}"
        elif field.startswith("serving.extra_args.") or has_gate(draft):
            yield f"{field}: not allowed{part}: the gate in the container refuses it: it {entry.why}"


@check(
    "api-key",
    why="vLLM checks the key only below /v1; SageMaker sends requests to /invocations.",
    source="vLLM: --api-key protects the paths below /v1; /invocations, /pause and others are not protected",
    remedy="Remove it: IAM decides who may invoke an endpoint.",
    severity="warning",
    url=_SECURITY,
)
def api_key(draft: Draft) -> Findings:
    """An API key, which has no effect on SageMaker."""
    for name in ("SM_VLLM_API_KEY", "VLLM_API_KEY"):
        if draft.spec.serving.env.get(name):
            yield f"serving.env.{name}: has no effect on SageMaker, and others can read it"
