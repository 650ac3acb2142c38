"""Add the CDK app, the container's files and the documentation to the wheel of peagle-sm."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGES = ("explanation", "how-to", "reference", "tutorials")


class CheckoutFiles(BuildHookInterface):  # type: ignore[type-arg]
    """`peagle-sm cdk init` copies the app from the wheel; `peagle-sm help TOPIC` prints the pages."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files with their places in the wheel. An editable install reads them in the checkout."""
        if version == "editable":
            return
        checkout = Path(self.root).parents[1]
        app = "peagle_sm/_cdk_app"
        for name in ("app.py", "package.json", "package-lock.json", "stacks", "container"):
            build_data["force_include"][str(checkout / name)] = f"{app}/{name}"
        for folder in PAGES:
            for page in (checkout / "docs" / folder).glob("*.md"):
                build_data["force_include"][str(page)] = f"peagle_sm/_docs/{folder}/{page.name}"
