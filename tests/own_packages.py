"""The packages of this project for a Python with other dependencies."""

from __future__ import annotations

from pathlib import Path

import peagle_sm
import sagemaker_local


def link_packages(folder: Path) -> None:
    """Make a folder for PYTHONPATH that has peagle_sm and sagemaker_local alone.

    Links, since their own site-packages would put their dependencies before those of that Python.
    """
    folder.mkdir()
    for package in (peagle_sm, sagemaker_local):
        source = Path(package.__file__ or "").parent
        (folder / source.name).symlink_to(source, target_is_directory=True)
