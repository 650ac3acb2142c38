"""The CDK app that `peagle-sm cdk init` copies into the user's folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.core.words import EXTRAS

PACKAGE = Path(__file__).resolve().parents[1]
#: Copied unchanged. The image stack builds the serving image from the files below container/.
_FILES = ("app.py", "package.json", "package-lock.json")
_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc")
#: A bootstrap stack of its own: narrow policies must not replace those of the account's other CDK apps.
BOOTSTRAP: dict[str, Any] = {
    "toolkitStackName": "PeagleToolkit",
    "context": {"@aws-cdk/core:bootstrapQualifier": "peagle"},
}
_REQUIREMENTS = """\
# The CDK's own packages. peagle-sm itself is installed already: it wrote this file.
{packages}
"""


def write_project(target: Path, package: Path = PACKAGE) -> list[Path]:
    """Write the CDK app below ``target``: app.py, settings, stacks/ and container/.

    Raises:
        SpecError: one of them already exists; nothing is written.
        PeagleError: this installation lacks them.
    """
    sources = _sources(package)
    planned = [target / name for name in (*sources, "cdk.json", "requirements.txt")]
    taken = [path for path in planned if path.exists()]
    if taken:
        raise SpecError(
            f"already exists: {', '.join(str(path) for path in taken)}. Nothing was written.",
            next_step="Name another folder: peagle-sm cdk init FOLDER",
        )
    try:
        _write(target, sources)
    except OSError as error:
        for path in planned:  # none of these existed before
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
        raise SpecError(
            f"the CDK app could not be written to {target}: {error.strerror or error}",
            next_step="Free some space, or name another folder: peagle-sm cdk init FOLDER",
        ) from error
    return planned


def _write(target: Path, sources: dict[str, Path]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name, source in sources.items():
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=_SKIPPED)
        else:
            shutil.copyfile(source, target / name)
    # `python3` is the interpreter of the environment that runs `cdk`: it has the packages.
    settings = {"app": "python3 app.py", **BOOTSTRAP}
    (target / "cdk.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    packages = _REQUIREMENTS.format(packages="\n".join(EXTRAS["cdk"]))
    (target / "requirements.txt").write_text(packages, encoding="utf-8")


def _sources(package: Path) -> dict[str, Path]:
    """Find the app in the wheel, or in the checkout.

    Raises:
        PeagleError: neither has it.
    """
    for app in (package / "_cdk_app", package.parents[2]):
        if (app / "app.py").is_file() and (app / "stacks").is_dir():
            return {name: app / name for name in (*_FILES, "stacks", "container")}
    raise PeagleError(f"the CDK app is not in {package}", next_step="Install peagle-sm again from its wheel.")
