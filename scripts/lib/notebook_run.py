"""Execute one notebook and write it with its outputs; runs in the notebooks' environment.

notebook_run.py SOURCE.py NOTEBOOK.ipynb [PAGE.html]: the kernel works in the current directory. What belongs
to this machine or this run (paths, ports, tokens, process ids) is taken out of the outputs.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from notebook_source import cells

CELL_TIMEOUT_S = 1200  #: `tune` takes three minutes on a quiet machine, and over five beside other tests
_CUTS = (
    (re.compile(r"sagemaker-api-key-[A-Za-z0-9_=\-]+|bedrock-api-key-[A-Za-z0-9_=\-]+"), "TOKEN"),
    (re.compile(r"X-Amz-(Signature|Credential|Security-Token)=[^&\s\"']+"), r"X-Amz-\1=REMOVED"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), r"\1:PORT"),
    (re.compile(r"(--local-port |port )\d{4,5}\b"), r"\1PORT"),
    (re.compile(r"\b(process|pid) \d+\b"), r"\1 PID"),
)


def notebook_of(source: Path) -> Any:
    """Make the notebook of a source without executing it; its ids are stable."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(cells(source.read_text(encoding="utf-8")), start=1):
        make = nbformat.v4.new_markdown_cell if cell.kind == "markdown" else nbformat.v4.new_code_cell
        notebook.cells.append(make(cell.text, id=f"cell-{number}"))
    return notebook


def scrub(value: Any, places: dict[str, str]) -> Any:
    """Remove what belongs to this machine or run; ``places`` maps paths to replacements."""
    if isinstance(value, str):
        for path, word in places.items():
            value = value.replace(path, word)
        for pattern, word in _CUTS:
            value = pattern.sub(word, value)
        return value
    if isinstance(value, dict):
        return {key: scrub(item, places) for key, item in value.items()}
    return [scrub(item, places) for item in value] if isinstance(value, list) else value


def tidy(notebook: Any) -> None:
    """Clean each cell's outputs for publication: scrubbed, with joined streams."""
    places = {
        str(Path(__file__).resolve().parents[2]): "CHECKOUT",
        os.getcwd(): ".",
        tempfile.gettempdir(): "TMP",
        str(Path.home()): "~",
    }
    places = {path: word for path, word in places.items() if len(path) > 1}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        outputs: list[Any] = []
        for output in cell.outputs:
            last = outputs[-1] if outputs else None
            if (
                last is not None
                and output.output_type == "stream" == last.output_type
                and output.name == last.name
            ):
                last.text += output.text
                continue
            output.pop("transient", None)
            outputs.append(output)
        cell.outputs = [nbformat.from_dict(scrub(dict(one), places)) for one in outputs]


def main(source: Path, target: Path, page: Path | None) -> None:
    """Execute, clean and write the notebook."""
    notebook = notebook_of(source)
    # Cells that fail stop it; the error then goes to stderr with the cell's source.
    NotebookClient(notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3").execute()
    tidy(notebook)
    nbformat.validate(notebook)
    target.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    if page is not None:
        from nbconvert import HTMLExporter

        body, _ = HTMLExporter(template_name="lab").from_notebook_node(notebook)
        page.write_text(body, encoding="utf-8")


if __name__ == "__main__":
    names = [Path(each).resolve() for each in sys.argv[1:]]
    main(names[0], names[1], names[2] if len(names) > 2 else None)
