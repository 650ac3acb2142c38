"""What an installation sends: the template that ships, and the Lambdas' package made from what ships."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from peagle_sm.core.errors import PeagleError
from peagle_sm.core.guard.package import digest, object_key, package_files, zipped

PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class GuardFiles:
    """The guard of this installation of peagle-sm."""

    template: str
    content: dict[str, bytes]
    version: str

    @cached_property
    def digest(self) -> str:
        """16 hex digits over the package's content."""
        return digest(self.content)

    @property
    def key(self) -> str:
        """The key of the package in the bucket."""
        return object_key(self.digest)

    def archive(self) -> bytes:
        """Return the package as a zip."""
        return zipped(self.content)

    @cached_property
    def parameter_names(self) -> frozenset[str]:
        """The names of the template's parameters."""
        return frozenset(json.loads(self.template)["Parameters"])


def runtime_dir(package: Path = PACKAGE) -> Path:
    """Return the folder with ``peagle_guard``: in the wheel, or in the checkout.

    Raises:
        PeagleError: neither has it, so the installation is broken.
    """
    for app in (package / "_cdk_app", package.parent.parent):
        candidate = app / "stacks" / "guard" / "runtime"
        if (candidate / "peagle_guard" / "__init__.py").is_file():
            return candidate
    raise PeagleError(
        f"the guard's own code is not in {package}", next_step="Install peagle-sm again from its wheel."
    )


def shipped() -> GuardFiles:
    """Read what ships.

    Raises:
        PeagleError: the installation is broken.
    """
    template = files("peagle_sm") / "guard_assets" / "template.json"
    return GuardFiles(
        template=template.read_text(encoding="utf-8").strip(),
        content=package_files(runtime_dir(), files("tzdata")),
        version=version("peagle-sm"),
    )
