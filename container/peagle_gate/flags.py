"""Arguments and variables with which the container does not start. Pure.

The toolkit refuses the same ones before a deployment (check `forbidden-flags`); this holds where somebody
deploys the image by other means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_SECURITY = "https://docs.vllm.ai/en/latest/usage/security/"
_SERVER = "https://docs.vllm.ai/en/latest/cli/serve/"


@dataclass(frozen=True)
class Forbidden:
    """What must not be set: why, and where that is written."""

    why: str
    source: str = _SECURITY


FLAGS = {
    "--trust-remote-code": Forbidden("runs Python that comes with the weights"),
    "--enable-prompt-embeds": Forbidden("lets requests bring tensors, which have crashed the engine"),
    "--allowed-local-media-path": Forbidden("lets requests read files of the container"),
    "--trust-request-chat-template": Forbidden("lets requests bring a template, which is code"),
    "--trust-request-mm-kwargs": Forbidden("lets requests reconfigure the media processor", _SERVER),
    "--config": Forbidden("brings flags from a file, past this check: set each as SM_VLLM_*", _SERVER),
    "--api-key": Forbidden(
        "guards the paths under /v1 alone, not /invocations, and can be read by DescribeModel"
    ),
    "--enable-log-requests": Forbidden("writes what users ask into the log", _SERVER),
    "--enable-log-outputs": Forbidden("writes what users get into the log", _SERVER),
    "--disable-log-stats": Forbidden("stops the metrics by which acceptance is watched", _SERVER),
    "--tool-server": Forbidden("runs tools, and with `demo` code that the model wrote", _SERVER),
    "--tool-parser-plugin": Forbidden("runs a Python file", _SERVER),
    "--reasoning-parser-plugin": Forbidden("runs a Python file", _SERVER),
    "--logits-processors": Forbidden("runs Python by its name", _SERVER),
    "--worker-extension-cls": Forbidden("runs Python by its name", _SERVER),
    "--worker-cls": Forbidden("runs Python by its name", _SERVER),
    "--profiler-config": Forbidden("opens routes that record what the engine does", _SERVER),
    "--uds": Forbidden("listens where SageMaker does not ask", _SERVER),
    "--override-generation-config.": Forbidden(
        "replaces the limit of output tokens: write --override-generation-config as one JSON", _SERVER
    ),
}
VARIABLES = {
    "VLLM_ALLOW_INSECURE_SERIALIZATION": Forbidden("unpickles what it is sent"),
    "VLLM_SERVER_DEV_MODE": Forbidden("opens routes that pause and change the engine"),
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": Forbidden("lets requests load weights"),
    "VLLM_TORCH_PROFILER_DIR": Forbidden("opens routes that record what the engine does"),
    "VLLM_API_KEY": Forbidden("guards the paths under /v1 alone, not /invocations"),
    "VLLM_DEBUG_LOG_API_SERVER_RESPONSE": Forbidden("writes what users get into the log"),
}
_OFF = ("", "0", "false")


def refusals(args: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each argument or variable that must not be there."""
    for argument in args:
        # vLLM takes _ for - in a flag, and any beginning of one that is no other's.
        name = argument.partition("=")[0].replace("_", "-") if argument.startswith("--") else ""
        for flag, forbidden in FLAGS.items():
            if name and _means(name, flag):
                variable = "SM_VLLM_" + flag[2:].upper().replace("-", "_")
                yield f"{flag} ({variable}) is forbidden: it {forbidden.why} ({forbidden.source})"
    for name, forbidden in VARIABLES.items():
        if environ.get(name, "").strip().lower() not in _OFF:
            yield f"{name} is forbidden: it {forbidden.why} ({forbidden.source})"


def _means(name: str, flag: str) -> bool:
    """Whether argparse takes ``name`` for ``flag``: all of it, or a beginning that is no flag itself.

    A ``flag`` that ends with a dot stands for all of vLLM's dotted forms (``--flag.key value``).
    """
    if flag.endswith("."):
        return name.startswith(flag)
    return name == flag or (len(name) > len("--") and flag.startswith(name) and name not in _FLAGS_THEMSELVES)


#: Flags of vLLM that are the beginning of a forbidden one.
_FLAGS_THEMSELVES = frozenset({"--reasoning-parser"})
