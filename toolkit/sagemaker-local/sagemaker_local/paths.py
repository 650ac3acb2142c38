"""Paths of the project's files, in a checkout or an installed wheel, and of caches."""

import os
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def container_dir(package: Path = PACKAGE) -> Path:
    """Return the directory with ``serve``, ``sagemaker_args.py``, the lock file and the plugins.

    The wheel carries it as ``sagemaker_local/_container``; a checkout has it in its root.

    Raises:
        FileNotFoundError: neither place has it, so the installation is broken.
    """
    for candidate in (package / "_container", package.parents[2] / "container"):
        if (candidate / "sagemaker_args.py").is_file():
            return candidate
    raise FileNotFoundError(f"no container directory in {package} or beside it: reinstall sagemaker-local")


def weights_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the shipped weights; ``PEAGLE_SM_WEIGHTS`` names another.

    It has the small stand-in weights, ``target``, ``eagle3`` and ``p-eagle``, and the heads of SmolLM2 in
    ``smollm2-135m-instruct``.
    """
    return Path(environ.get("PEAGLE_SM_WEIGHTS") or PACKAGE / "weights").resolve()


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return this program's cache directory, by the XDG rules (a relative value there is ignored)."""
    return _xdg(environ, "XDG_CACHE_HOME", ".cache") / "peagle-sm"


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return this program's state directory, by the XDG rules."""
    return _xdg(environ, "XDG_STATE_HOME", ".local/state") / "peagle-sm"


def _xdg(environ: Mapping[str, str], name: str, default: str) -> Path:
    value = environ.get(name, "")
    return Path(value) if os.path.isabs(value) else Path.home() / default
