"""``scripts/reference [--check]``: write the generated pages, or list outdated ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.bench.learn_record import read_record
from scripts.reference_pages.checks import checks_page
from scripts.reference_pages.commands import cli_page, exit_codes_page
from scripts.reference_pages.engines import engines_page
from scripts.reference_pages.learning_gain import gain_page, tutorial_page
from scripts.reference_pages.modes import drafters_page
from scripts.reference_pages.pack_runs import pack_runs_page
from scripts.reference_pages.python_api import python_page
from scripts.reference_pages.quickstart_picture import picture
from scripts.reference_pages.spec import schema_text, spec_page
from scripts.reference_pages.training_sizes import training_sizes_page
from scripts.reference_pages.troubleshooting import troubleshooting_page

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _picture() -> str:
    return picture((DOCS / "how-to" / "measure.md").read_text(encoding="utf-8"))


def _drafters() -> str:
    return drafters_page((DOCS / "how-to" / "which-drafter.md").read_text(encoding="utf-8"))


def _tutorial() -> str:
    return tutorial_page((DOCS / "tutorials" / "train-a-head.md").read_text(encoding="utf-8"), read_record())


def _pack_runs() -> str:
    record = (DOCS / "reference" / "packs" / "runs.json").read_text(encoding="utf-8")
    return pack_runs_page(json.loads(record))


PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": cli_page,
    "reference/exit-codes.md": exit_codes_page,
    "reference/checks.md": checks_page,
    "reference/engines.md": engines_page,
    "reference/spec.md": spec_page,
    "reference/spec.schema.json": schema_text,
    "reference/pack-runs.md": _pack_runs,
    "reference/python.md": python_page,
    "reference/training-sizes.md": training_sizes_page,
    "reference/troubleshooting.md": troubleshooting_page,
    "how-to/which-drafter.md": _drafters,
    "reference/learning-gain.md": lambda: gain_page(read_record()),
    "tutorials/train-a-head.md": _tutorial,
    "assets/quickstart.svg": _picture,
}


def main(arguments: list[str], docs: Path = DOCS, pages: Mapping[str, Callable[[], str]] = PAGES) -> int:
    """Write the pages into ``docs``; with --check name those that are out of date (exit status 1)."""
    check = "--check" in arguments
    stale = []
    for name, page in pages.items():
        path, text = docs / name, page()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"docs/{name}: {'out of date; run scripts/reference' if check else 'written'}", file=sys.stderr)
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
