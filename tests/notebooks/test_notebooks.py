"""The notebooks run as they stand, and the outputs that are committed are those of a run.

They share one local SageMaker with the real engine; each deploys what it needs and deletes it. Figures are
not compared: they are those of the machine that ran it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.local_stack import LocalStack
from scripts.lib import notebooks
from scripts.lib.notebook_source import Cell, cells
from tests.rules.documents import LINK
from tests.rules.files import ROOT

SOURCES = notebooks.sources()
LOCAL_ONLY = (
    "session = peagle_sm.make_session(local=True)  # the one line that differs: on AWS, make_session()"
)
# What belongs to a machine, a run or an account; joined, so that this file does not hold what it forbids.
PRIVATE = re.compile(
    "|".join(
        (
            r"/ho" + r"me/",
            r"/ro" + r"ot/",
            r"/tm" + r"p/",
            r"(127\.0\.0\.1|localhost):\d",
            r"api-key-[A-Za-z0-9]",
        )
    )
)


def committed(source: Path) -> dict[str, Any]:
    document = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def shape(notebook: dict[str, Any]) -> list[tuple[str, list[tuple[str, tuple[str, ...]]]]]:
    """Each cell's source, and of what kinds its outputs are."""
    return [
        (
            "".join(cell["source"]),
            [(each["output_type"], tuple(sorted(each.get("data", ())))) for each in cell.get("outputs", ())],
        )
        for cell in notebook["cells"]
    ]


def warnings_in(notebook: dict[str, Any]) -> list[str]:
    """Lines on stderr that are not progress: progress begins with a time, or continues in its column."""
    outputs = [each for cell in notebook["cells"] for each in cell.get("outputs", ())]
    texts = ["".join(each["text"]) for each in outputs if each.get("name") == "stderr"]
    lines = [line for text in texts for line in text.splitlines()]
    return [line for line in lines if not re.match(r" *[\dhms]+  | {9}", line)]


def text_of(notebook: dict[str, Any]) -> str:
    return json.dumps([cell.get("outputs", []) for cell in notebook["cells"]], ensure_ascii=False)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
class TestAsCommitted:
    def test_it_is_written_from_its_source(self, source: Path) -> None:
        rows = [Cell(cell["cell_type"], "".join(cell["source"])) for cell in committed(source)["cells"]]
        assert rows == cells(source.read_text(encoding="utf-8")), f"run scripts/notebooks {source.stem}"

    def test_every_cell_was_executed_and_none_failed(self, source: Path) -> None:
        code = [cell for cell in committed(source)["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        assert not [each for cell in code for each in cell["outputs"] if each["output_type"] == "error"]
        assert warnings_in(committed(source)) == []

    def test_one_line_is_for_the_local_server_and_it_says_so(self, source: Path) -> None:
        lines = source.read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if "local=" in line or "_local" in line] == [LOCAL_ONLY]

    def test_its_outputs_hold_nothing_of_the_machine_that_ran_it(self, source: Path) -> None:
        assert not PRIVATE.findall(text_of(committed(source)))

    def test_its_outputs_need_nothing_from_elsewhere(self, source: Path) -> None:
        assert not re.findall(r"<(?:script|link|img|iframe)\b|@import|url\(", text_of(committed(source)))

    def test_its_links_lead_somewhere(self, source: Path) -> None:
        text = "\n".join(cell.text for cell in cells(source.read_text()) if cell.kind == "markdown")
        assert [target for target in LINK.findall(text) if not (source.parent / target).exists()] == []


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        yield int(str(stack.session.local_url).rpartition(":")[2])
        assert stack.delete_all() == [], "a notebook left something behind"
    assert stack.left == []


@pytest.mark.campaign
@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_it_runs(source: Path, port: int, tmp_path: Path) -> None:
    target = tmp_path / "executed.ipynb"
    try:
        notebooks.execute(source, port, target)
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{source.stem}: {error.stderr[-6000:]}")
    executed = json.loads(target.read_text(encoding="utf-8"))
    assert shape(executed) == shape(committed(source)), f"run scripts/notebooks {source.stem}"
    assert not PRIVATE.findall(text_of(executed))
    assert warnings_in(executed) == []


def test_the_index_names_every_notebook() -> None:
    index = (ROOT / "docs" / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert sorted(target for target in LINK.findall(index) if target.endswith(".ipynb")) == [
        source.with_suffix(".ipynb").name for source in SOURCES
    ]
