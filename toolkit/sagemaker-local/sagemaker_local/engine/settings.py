"""From a container's image and environment to the settings of a process on this machine.

Pure. Each setting that differs from what was asked for is reported in one sentence, in logs and status.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagemaker_local.engine.model import ModelFacts

_TAG_VERSION = re.compile(r"^v?(\d+\.\d+(?:\.\d+)?)")
# The tags of this project's own CPU images: one of them is one engine.
_CPU_TAG = re.compile(r"^(\d+\.\d+\.\d+)-cpu$")
REPOSITORY = "vllm"


@dataclass(frozen=True)
class Image:
    """An image URI's parts. ``version`` is what the tag says of vLLM's version, or the tag itself."""

    repository: str
    tag: str

    @property
    def version(self) -> str:
        """The vLLM version that the tag names, shown next to the running version."""
        match = _TAG_VERSION.match(self.tag)
        return match.group(1) if match else self.tag

    @property
    def cpu_version(self) -> str | None:
        """The vLLM version of a CPU image's tag such as ``0.30.0-cpu``; None for any other tag."""
        match = _CPU_TAG.match(self.tag)
        return match.group(1) if match else None


def parse_image(uri: str) -> Image:
    """Split ``registry/path/repository:tag@digest``; the repository is the last part of the path."""
    name = uri.partition("@")[0]
    path, _, last = name.rpartition("/")
    repository, _, tag = last.partition(":")
    return Image(repository if path or repository else name, tag or "latest")


def engine_of(uri: str, versions: Sequence[str]) -> str:
    """Return the version of vLLM that runs an image: its own for a CPU image, else the first of ``versions``.

    An image for GPUs, as AWS's are, runs on the default engine whatever its version is, so that the first
    local deploy of any spec builds one environment.
    """
    wanted = parse_image(uri).cpu_version
    return wanted if wanted is not None and wanted in versions else versions[0]


def refusal(uri: str, versions: Sequence[str]) -> str | None:
    """Return why no local engine (one for each of ``versions``) can run this image, or None if one can."""
    image = parse_image(uri)
    if image.repository != REPOSITORY:
        return (
            f"the image's repository is {image.repository!r}; the local SageMaker runs vLLM for CPU, for "
            f"images of the repository {REPOSITORY!r} only: use one of the image_uris that "
            "`peagle-sm local status` shows"
        )
    if image.cpu_version is not None and image.cpu_version not in versions:
        return (
            f"the image's tag is {image.tag!r}; the local SageMaker has these engines: "
            f"{', '.join(f'{version}-cpu' for version in versions)}"
        )
    return None


ML_ROOT = "/opt/ml"
# The variable of AWS's vLLM image: vLLM's own speculative configuration, as JSON.
SPECULATIVE_CONFIG = "SM_VLLM_SPECULATIVE_CONFIG"
# Only where a path begins and where the name ends: neither /data/opt/ml nor /opt/mlflow is meant.
_ML_PATH = re.compile(r"(?<![\w.-])/opt/ml(?![\w.-])")
# Two requests of SmolLM2's whole context with its P-EAGLE head; vLLM fills it at start: it is real memory.
KV_CACHE_BYTES = 400 * 2**20
MAX_NUM_SEQS = 16
COMPILE_SWITCH = "PEAGLE_SM_LOCAL_COMPILE"
DTYPE_SWITCH = "PEAGLE_SM_LOCAL_DTYPE"
THREADS_SWITCH = "PEAGLE_SM_LOCAL_THREADS"

# What the process itself needs, whatever the container's environment says.
ENGINE_ENVIRONMENT = {
    # torch brings GNU's OpenMP. Its threads spin while they wait: engines that shared few cores took 5 to 10
    # times longer a step with two of them.
    "OMP_WAIT_POLICY": "PASSIVE",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # bound threads of two engines would share one core
    # Threads that share the context of one token sum it in another order, which changed greedy answers.
    "VLLM_CPU_ATTN_SPLIT_KV": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the worker lives in the engine core: one process less
    # The engine core imports nothing a second time; needs the plugin peagle_cpu_fixes, else it is a spawn.
    "VLLM_WORKER_MULTIPROC_METHOD": "fork",
    "VLLM_HOST_IP": "127.0.0.1",  # also the engine's inner sockets stay on loopback
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONUNBUFFERED": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# Of the gate in container/peagle_gate, where the environment does not say otherwise.
GATE_SETTINGS = {
    "PEAGLE_GATE_CANARY_PROMPTS": ("8", "each takes 0.1 s of CPU time"),
    "PEAGLE_GATE_DRAIN_S": ("5", "the local server kills an engine 8 s after SIGTERM"),
}
# Dropped, with the reason: settings that a CPU cannot apply.
_GPU_ONLY = {
    "SM_VLLM_QUANTIZATION": "the local weights are not quantised",
    "SM_VLLM_KV_CACHE_DTYPE": "the CPU engine keeps the KV cache in the model's dtype",
    "SM_VLLM_ATTENTION_BACKEND": "the CPU engine has only one attention backend",
    "SM_VLLM_MOE_BACKEND": "the local model has no experts",
    "SM_VLLM_ENABLE_EXPERT_PARALLEL": "the local model has no experts",
    "SM_VLLM_GPU_MEMORY_UTILIZATION": "the CPU engine has no GPU memory",
    "SM_VLLM_ASYNC_SCHEDULING": "the CPU engine supports only synchronous scheduling",
}
_DTYPE_REASONS = {
    "bfloat16": "the weights have this dtype and this CPU supports it",
    "float32": "every CPU supports it",
}


@dataclass(frozen=True)
class LocalSettings:
    """The environment of the local process, and a sentence for each override."""

    environment: dict[str, str]
    overrides: tuple[str, ...]


def local_settings(
    environment: Mapping[str, str],
    *,
    ml_root: Path,
    port: int,
    model: ModelFacts,
    aws_image: bool = False,
) -> LocalSettings:
    """Return the environment for a process that replaces the container.

    Args:
        environment: as CreateModel gave it.
        ml_root: the directory that stands for ``/opt/ml``.
        port: the loopback port to serve on.
        model: what is known of the served model.
        aws_image: whether it stands in for an image of AWS's, before whose engine there is no gate.
    """
    local = {name: rewrite_paths(value, str(ml_root)) for name, value in environment.items()}
    overrides = [f"/opt/ml: replaced by {ml_root} in every environment value"]
    for name, reason in _GPU_ONLY.items():
        if name in local:
            overrides.append(f"{_words(name)}: {local.pop(name)!r} is ignored, because {reason}")
    for name, value, reason in _forced(environment, port, model.dtype):
        given = local.get(name)
        if given != value:
            overrides.append(f"{_words(name)}: {_change(given, value)}, because {reason}")
        local[name] = value
    # vLLM names the model in its answers as it was given: in the container that is no path of this machine.
    local.setdefault("SM_VLLM_SERVED_MODEL_NAME", environment.get("SM_VLLM_MODEL", f"{ML_ROOT}/model"))
    local.setdefault("SM_VLLM_MAX_NUM_SEQS", str(MAX_NUM_SEQS))
    if "SM_VLLM_MAX_NUM_SEQS" not in environment:
        overrides.append(f"max_num_seqs: {MAX_NUM_SEQS} (none was set), to start fast")
    overrides += _shorten_context(local, model.context)
    overrides += _adapt_speculation(local)
    overrides += _gate(local, aws_image)
    threads, sentences = _threads(environment)
    return LocalSettings(local | ENGINE_ENVIRONMENT | threads, (*overrides, *sentences))


def rewrite_paths(value: str, ml_root: str) -> str:
    """Return the value with ``/opt/ml`` replaced by ``ml_root``, inside JSON strings too.

    A value without such a path comes back letter for letter.
    """
    if not _ML_PATH.search(value):
        return value
    try:
        parsed = json.loads(value)
    except ValueError:
        return _ML_PATH.sub(lambda _: ml_root, value)
    return json.dumps(_rewrite(parsed, ml_root), separators=(",", ":"), ensure_ascii=False)


def _rewrite(node: Any, ml_root: str) -> Any:
    if isinstance(node, str):
        return _ML_PATH.sub(lambda _: ml_root, node)
    if isinstance(node, list):
        return [_rewrite(item, ml_root) for item in node]
    if isinstance(node, dict):
        return {key: _rewrite(item, ml_root) for key, item in node.items()}
    return node


def _forced(environment: Mapping[str, str], port: int, dtype: str) -> list[tuple[str, str, str]]:
    forced = [
        ("SM_VLLM_HOST", "127.0.0.1", "only this machine may connect"),
        ("SM_VLLM_PORT", str(port), "engines share one machine, each with its own port"),
        (
            "SM_VLLM_DTYPE",
            environment.get(DTYPE_SWITCH, dtype),
            f"{DTYPE_SWITCH} is set" if DTYPE_SWITCH in environment else _DTYPE_REASONS[dtype],
        ),
        ("SM_VLLM_TENSOR_PARALLEL_SIZE", "1", "there is only one device"),
        ("SM_VLLM_DATA_PARALLEL_SIZE", "1", "there is only one device"),
        ("SM_VLLM_PIPELINE_PARALLEL_SIZE", "1", "there is only one device"),
        ("SM_VLLM_KV_CACHE_MEMORY_BYTES", str(KV_CACHE_BYTES), "engines share this machine's memory"),
    ]
    if environment.get(COMPILE_SWITCH, "").lower() not in ("1", "true"):
        forced.append(
            (
                "SM_VLLM_ENFORCE_EAGER",
                "true",
                f"compiling adds 30 s to each start; {COMPILE_SWITCH}=1 turns it on",
            )
        )
    # What stays at vLLM's own default needs no flag and no sentence.
    optional = {
        "SM_VLLM_TENSOR_PARALLEL_SIZE",
        "SM_VLLM_DATA_PARALLEL_SIZE",
        "SM_VLLM_PIPELINE_PARALLEL_SIZE",
    }
    return [item for item in forced if item[0] not in optional or item[0] in environment]


def _shorten_context(local: dict[str, str], model_context: int | None) -> list[str]:
    name = "SM_VLLM_MAX_MODEL_LEN"
    length = local.get(name, "")
    if model_context is None or not length.isdecimal() or int(length) <= model_context:
        return []
    local[name] = str(model_context)
    return [f"max_model_len: {_change(length, str(model_context))}, the model's context length"]


def _threads(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the number of threads of a step: one, or what the model's environment asks for."""
    wanted = environment.get(THREADS_SWITCH, "1")
    if wanted.isascii() and wanted.isdecimal() and int(wanted) > 0:
        return _thread_variables(wanted), []
    sentence = f"threads: 1, because {THREADS_SWITCH} is {wanted!r}, which is not a number from 1"
    return _thread_variables("1"), [sentence]


def _thread_variables(threads: str) -> dict[str, str]:
    """Return the environment variables that limit an engine to so many threads.

    ngram searches with numba. Numba uses all cores, and sets OpenMP's number of threads in the whole engine:
    with two threads on two cores, an answer took almost twice as long.
    """
    return {"OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads}


def _adapt_speculation(local: dict[str, str]) -> list[str]:
    """Remove settings that need several devices or quantised weights from the speculative config."""
    try:
        config = json.loads(local.get(SPECULATIVE_CONFIG, ""))
    except ValueError:
        return []  # the engine itself says what is wrong with it
    if not isinstance(config, dict):
        return []
    overrides = []
    if config.get("draft_tensor_parallel_size") not in (None, 1):
        overrides.append(
            f"draft_tensor_parallel_size: {_change(config['draft_tensor_parallel_size'], 1)}, "
            "because there is only one device"
        )
        config["draft_tensor_parallel_size"] = 1
    if config.get("quantization") is not None:
        overrides.append(
            f"draft quantization: {config.pop('quantization')!r} is ignored, as the head is not quantised"
        )
    if overrides:
        local[SPECULATIVE_CONFIG] = json.dumps(config, separators=(",", ":"), ensure_ascii=False)
    return overrides


def _gate(local: dict[str, str], aws_image: bool) -> list[str]:
    """Configure the gate in front of the engine as in the image that the model names."""
    if aws_image:
        local["PEAGLE_GATE"] = "off"
        return []
    if local.get("PEAGLE_GATE", "on").lower() == "off":
        return []
    overrides = []
    for name, (value, reason) in GATE_SETTINGS.items():
        if name not in local:
            local[name] = value
            overrides.append(f"{name.removeprefix('PEAGLE_').lower()}: {value}, because {reason}")
    return overrides


def _words(name: str) -> str:
    return name.removeprefix("SM_VLLM_").lower()


def _change(given: object, value: object) -> str:
    return str(value) if given is None else f"{value} instead of {given}"
