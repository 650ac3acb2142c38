"""Turn the environment of a SageMaker container into arguments of the vLLM server.

The rules are those of the AWS vLLM image (aws/deep-learning-containers,
``scripts/docker/vllm/sagemaker_args.py``, August 2026), so that an environment means the same here, in
our own image and in AWS's:

* Only names that begin with exactly ``SM_VLLM_`` count. The rest of the name becomes the flag: lower
  case, ``_`` to ``-``. Flags come in the order of their sorted names.
* ``true`` gives a bare flag, ``false`` drops it, in any case and with blanks around.
* An empty value gives a bare flag.
* One JSON object stays one token, letter for letter. Several objects, separated by blanks, give one token
  each. A JSON array gives one token per element; an empty array drops the flag. Four flags whose value
  is itself an array (``SINGLE_TOKEN_FLAGS``) are left alone.
* ``--port 8080`` comes first and nothing is excluded, so ``SM_VLLM_PORT`` follows it and wins.
* The model is ``SM_VLLM_MODEL``, else the model directory when it has files, else ``HF_MODEL_ID``.

Standard library only, and pure: no file, no environment and no output is touched here. ``serve`` does that.
"""

import json
from collections.abc import Mapping
from typing import Any

PREFIX = "SM_VLLM_"
DEFAULT_PORT = "8080"
MODEL_DIR = "/opt/ml/model"

# vLLM takes the array itself as the value of the first three, and one value per occurrence of the fourth.
SINGLE_TOKEN_FLAGS = frozenset(
    {"--allowed-origins", "--allowed-methods", "--allowed-headers", "--middleware"}
)


def build_args(
    environ: Mapping[str, str], model_dir_has_files: bool, model_dir: str = MODEL_DIR
) -> list[str]:
    """Return the arguments of the vLLM server, without the program itself.

    Args:
        environ: the container's environment.
        model_dir_has_files: whether ``model_dir`` exists and is not empty.
        model_dir: where the model is mounted; elsewhere than ``/opt/ml/model`` only outside a container.
    """
    args = ["--port", DEFAULT_PORT, *_model_args(environ, model_dir_has_files, model_dir)]
    for name in sorted(environ):
        if name.startswith(PREFIX):
            args += _flag_args(_flag(name), environ[name])
    return args


def _model_args(environ: Mapping[str, str], model_dir_has_files: bool, model_dir: str) -> list[str]:
    if environ.get(f"{PREFIX}MODEL"):
        return []
    if model_dir_has_files:
        return ["--model", model_dir]
    hub_id = environ.get("HF_MODEL_ID")
    return ["--model", hub_id] if hub_id else []


def _flag(name: str) -> str:
    return "--" + name.removeprefix(PREFIX).lower().replace("_", "-")


def _flag_args(flag: str, value: str) -> list[str]:
    """Return the flag with its values, or nothing when the value drops it."""
    switch = value.strip().lower()
    if switch == "false":
        return []
    if switch == "true" or not value:
        return [flag]
    if flag in SINGLE_TOKEN_FLAGS:
        return [flag, value]
    elements = _array(value)
    if elements is not None:
        return [flag, *map(_token, elements)] if elements else []
    objects = _objects(value)
    if len(objects) > 1:
        return [flag, *map(_token, objects)]
    return [flag, value]


def _array(value: str) -> list[Any] | None:
    text = value.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        parsed = json.loads(text)
    except ValueError:
        return None  # vLLM reports the value as it was written
    return parsed if isinstance(parsed, list) else None


def _objects(value: str) -> list[dict[str, Any]]:
    """Return the JSON objects that make up the value, or nothing if it is anything else."""
    text = value.strip()
    if not text.endswith("}"):
        return []
    decoder = json.JSONDecoder()
    objects: list[dict[str, Any]] = []
    at = 0
    while at < len(text):
        try:
            parsed, at = decoder.raw_decode(text, at)
        except ValueError:
            return []
        if not isinstance(parsed, dict):
            return []
        objects.append(parsed)
        while at < len(text) and text[at].isspace():
            at += 1
    return objects


def _token(element: Any) -> str:
    """One element as one token: compact JSON for what is nested, vLLM's spelling for the rest."""
    if isinstance(element, dict | list):
        return json.dumps(element, separators=(",", ":"))
    if isinstance(element, bool):
        return str(element).lower()
    return "" if element is None else str(element)
