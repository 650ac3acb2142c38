"""The project's own documents, cut into what can be checked: code blocks and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.rules.files import ROOT, project_files

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document, with the line it starts on."""

    path: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def documents() -> list[Path]:
    """Every Markdown file, relative to the root."""
    return [path for path in project_files() if path.suffix == ".md"]


def read(path: Path) -> str:
    """A document's text."""
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(*languages: str) -> list[Block]:
    """The fenced blocks written in one of the languages, in all documents."""
    return [
        Block(path, text.count("\n", 0, match.start()) + 1, match[1], match[2])
        for path in documents()
        for text in (read(path),)
        for match in FENCE.finditer(text)
        if match[1] in languages
    ]


def links() -> list[tuple[Path, str]]:
    """Every relative link, with the document it stands in."""
    return [(path, target) for path in documents() for target in LINK.findall(FENCE.sub("", read(path)))]
