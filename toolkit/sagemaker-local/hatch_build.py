"""Add the container's files to the wheel of sagemaker-local: its engine runs what the image runs."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CheckoutFiles(BuildHookInterface):  # type: ignore[type-arg]
    """An editable install reads the files in the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the folder with its place in the wheel."""
        if version != "editable":
            container = Path(self.root).parents[1] / "container"
            build_data["force_include"][str(container)] = "sagemaker_local/_container"
