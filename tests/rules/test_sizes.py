"""Modules are neither fragments nor heaps, and no folder has too many. The lists may only become shorter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.rules.files import ROOT, python_files

#: A module with fewer lines is a fragment: it belongs into the module that uses it.
FEWEST_LINES = 60
#: A module with more lines is several things.
MOST_LINES = 500
#: A folder with more modules needs rooms. A package's face does not count.
MOST_MODULES = 15

MAY_BE_SHORT = """
container/check_base.py
toolkit/sagemaker_local/aws_facts.py
toolkit/sagemaker_local/clock.py
toolkit/sagemaker_local/cloudformation/clients.py
toolkit/sagemaker_local/cloudformation/errors.py
toolkit/sagemaker_local/cloudformation/graph.py
toolkit/sagemaker_local/cloudformation/tools.py
toolkit/sagemaker_local/cloudformation/types.py
toolkit/sagemaker_local/contents/jumpstart.py
toolkit/sagemaker_local/engine/checks.py
toolkit/sagemaker_local/engine/model.py
toolkit/sagemaker_local/errors.py
toolkit/sagemaker_local/faults/events.py
toolkit/sagemaker_local/faults/wires.py
toolkit/sagemaker_local/lambdas/unpack.py
toolkit/sagemaker_local/other_services/s3.py
toolkit/sagemaker_local/other_services/tagging.py
toolkit/sagemaker_local/paths.py
toolkit/sagemaker_local/process/status.py
toolkit/sagemaker_local/runtime/logs.py
toolkit/sagemaker_local/wire/eventstream.py
"""

MAY_BE_LONG = """
"""


def _product() -> list[Path]:
    """The modules of the product; a package's face (``__init__.py``, ``__main__.py``) may be of any size."""
    return [path for path in python_files("toolkit", "stacks", "container") if not path.stem.startswith("__")]


def _lines(path: Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(
    ("fewest", "most", "listed", "advice"),
    [
        (FEWEST_LINES, None, MAY_BE_SHORT, "fold it into the module that uses it"),
        (0, MOST_LINES, MAY_BE_LONG, "split it, each part one thing"),
    ],
    ids=["short", "long"],
)
def test_a_module_is_neither_short_nor_long(fewest: int, most: int | None, listed: str, advice: str) -> None:
    allowed = set(listed.split())
    sizes = {str(path): _lines(path) for path in _product()}
    odd = {path for path, lines in sizes.items() if lines < fewest or (most is not None and lines > most)}
    said = [f"{path} has {sizes[path]} lines: {advice}" for path in sorted(odd - allowed)]
    said += [f"{path} needs no exception any more: take it off the list" for path in sorted(allowed - odd)]
    assert not said, "\n".join(said)


def test_a_folder_has_at_most_fifteen_modules() -> None:
    """The product, the laboratory and the guard's simulator; pytest finds other tests by name."""
    laboratory = [
        path
        for path in python_files("scripts", "tests")
        if path.is_relative_to("scripts") or path.is_relative_to("tests/guard/simulator")
    ]
    counted = [*_product(), *(path for path in laboratory if not path.stem.startswith("__"))]
    folders = Counter(str(path.parent) for path in counted)
    crowded = {folder: count for folder, count in folders.items() if count > MOST_MODULES}
    said = [f"{folder} has {count} modules: group them into rooms" for folder, count in crowded.items()]
    assert not said, "\n".join(said)
