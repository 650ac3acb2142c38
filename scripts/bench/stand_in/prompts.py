"""Prompts for the stand-in's heads, from what Python and public packages ship; no model hub is needed.

    python -m scripts.bench.stand_in.prompts FOLDER

writes one JSON Lines file for each kind. Code, JSON and summaries come from Python's own documentation and
source, and languages from Django's translations. HumanEval is left out: heads are measured on it.
The prompts ask for a greedy answer and for one of temperature 0.7, in turns.
"""

from __future__ import annotations

import ast
import http
import json
import random
import sys
import sysconfig
import zoneinfo
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path
from pydoc_data.topics import topics
from typing import TypeVar

Item = TypeVar("Item")
_TEMPERATURES = (0.0, 0.7)
_SYSTEM_TOOLS = (
    "You can call these functions:\n{tools}\nAnswer with one JSON object and nothing else:"
    ' {{"name": the function, "arguments": an object}}.'
)
_LANGUAGES = {"fr": "French", "es": "Spanish", "de": "German", "it": "Italian", "pt": "Portuguese"}
_LEFT_OUT = ("test", "idlelib", "site-packages", "lib2to3", "turtledemo", "__pycache__", "ensurepip")


@dataclass(frozen=True)
class Function:
    """A documented function of Python's library."""

    module: str
    name: str
    arguments: str
    doc: str
    source: str

    @property
    def summary(self) -> str:
        """First paragraph of its docstring, in one line."""
        return " ".join(self.doc.split("\n\n")[0].split())


def main(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    functions = shuffled(library_functions())
    for kind, prompts in (
        ("code", code_prompts(functions)),
        ("json", json_prompts(functions)),
        ("tools", tool_prompts(functions)),
        ("summary", summary_prompts()),
        ("languages", language_prompts()),
    ):
        lines = [
            {
                "id": f"{kind}-{number:04}",
                "messages": [
                    *([{"role": "system", "content": system}] if system else []),
                    {"role": "user", "content": text},
                ],
                "category": kind,
                "temperature": _TEMPERATURES[number % len(_TEMPERATURES)],
            }
            for number, (system, text) in enumerate(prompts)
        ]
        content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / f"{kind}.jsonl").write_text(content, encoding="utf-8")
        print(f"{kind}: {len(lines)} prompts")


def shuffled(items: Iterable[Item]) -> list[Item]:
    """Return the items in an order that is the same in every run."""
    listed = list(items)
    random.Random(0).shuffle(listed)
    return listed


Prompt = tuple[str, str]  #: a system message, perhaps empty, and the user's text


def library_modules() -> Iterator[tuple[str, str, ast.Module]]:
    """Yield name, source and syntax tree of each module of Python's library; tests are left out."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if any(part in _LEFT_OUT for part in parts):
            continue
        try:
            source = path.read_text(encoding="utf-8")
            yield ".".join(parts), source, ast.parse(source)
        except (SyntaxError, UnicodeDecodeError):
            continue


def library_functions() -> Iterator[Function]:
    """Yield the public functions of Python's library with a docstring and at most 40 lines."""
    for module, source, tree in library_modules():
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            doc, text = ast.get_docstring(node), ast.get_source_segment(source, node) or ""
            if doc and len(doc) > 40 and text.count("\n") < 40:
                yield Function(module, node.name, ast.unparse(node.args), doc, text)


def code_prompts(functions: list[Function]) -> list[Prompt]:
    """Return code to write, to explain and to test."""
    asks: tuple[Callable[[Function], str], ...] = (
        lambda each: f"Write a Python function `{each.name}({each.arguments})`. {each.summary}",
        lambda each: f"Explain what this Python code does:\n\n```python\n{each.source}\n```",
        lambda each: f"Write a Python function for this task, with an example of its use: {each.summary}",
        lambda each: f"Write unit tests with pytest for this function:\n\n```python\n{each.source}\n```",
        lambda each: f"How do I use {each.module}.{each.name} in Python? Show an example.",
    )
    return [
        ("", text)
        for text in shuffled(asks[number % len(asks)](each) for number, each in enumerate(functions * 2))
        if len(text) < 2500
    ]


def json_prompts(functions: list[Function]) -> list[Prompt]:
    """Return requests for one JSON object or array."""
    texts = [
        f"Describe the Python function {each.module}.{each.name} as a JSON object with the keys name, module,"
        f" parameters and summary. Its documentation: {each.summary}"
        for each in functions
    ]
    texts += [
        f"Write a JSON object about the HTTP status {status.value}, with the keys code, phrase, meaning and"
        " is_error. Only JSON."
        for status in http.HTTPStatus
    ]
    texts += [
        f"Give a JSON object with the keys city, country, continent and language for {zone.split('/')[-1]}."
        for zone in sorted(zoneinfo.available_timezones())
        if zone.startswith(("Europe/", "America/", "Asia/", "Africa/", "Australia/")) and zone.count("/") == 1
    ]
    texts += [
        "Extract the most important terms of this text as a JSON array of strings, at most five:\n\n" + text
        for text in paragraphs(150, 700)[:400]
    ]
    return [("", text) for text in shuffled(texts)[:1000]]


def tool_prompts(functions: list[Function]) -> list[Prompt]:
    """Return requests that one of three functions answers, with the call as JSON."""
    chance = random.Random(1)
    prompts = []
    for each in functions:
        offered = [*chance.sample(functions, 2), each]
        chance.shuffle(offered)
        tools = "\n".join(f"- {tool.name}({tool.arguments}): {tool.summary[:120]}" for tool in offered)
        prompts.append((_SYSTEM_TOOLS.format(tools=tools), f"I need this: {each.summary[:200]}"))
    return prompts[:400]


def summary_prompts() -> list[Prompt]:
    """Return texts to summarize, or to answer a question from."""
    asks = (
        "Summarize this text in two sentences:\n\n{}",
        "What are the main points of this text? Answer with a short list.\n\n{}",
        "Context:\n{}\n\nUsing only the context, explain this to a beginner.",
        "Rewrite this text in simple words:\n\n{}",
    )
    texts = paragraphs(300, 2500)
    return [("", asks[number % len(asks)].format(text)) for number, text in enumerate(texts)][:900]


def paragraphs(least: int, most: int) -> list[str]:
    """Return pieces of Python's documentation and of its modules' docstrings; lengths in characters."""
    documents = [*topics.values(), *(ast.get_docstring(tree) or "" for _, _, tree in library_modules())]
    pieces: list[str] = []
    for document in documents:
        piece = ""
        for part in document.split("\n\n"):
            if len(piece) + len(part) > most:
                pieces.append(piece)
                piece = ""
            piece = f"{piece}\n\n{part}".strip()
        pieces.append(piece)
    return shuffled(dict.fromkeys(piece for piece in pieces if least <= len(piece) <= most))


def language_prompts() -> list[Prompt]:
    """Return translations from and into languages that Django's messages have."""
    prompts: list[str] = []
    for code, language in _LANGUAGES.items():
        pairs = shuffled(translations(code))[:140]
        for number, (english, other) in enumerate(pairs):
            prompts.append(
                (
                    f"Translate into {language}: {english}",
                    f"Translate into English: {other}",
                    f"Write three short sentences in {language} that begin with: {other.split('.')[0]}",
                )[number % 3]
            )
    return [("", text) for text in shuffled(prompts)]


def translations(code: str) -> Iterator[tuple[str, str]]:
    """Yield Django's messages of one line, English and translated."""
    for path in sorted(str(each) for each in files("django") or () if each.name.endswith(".po")):
        if f"/{code}/" not in path:
            continue
        [place] = [each for each in files("django") or () if str(each) == path]
        english = ""
        for line in Path(place.locate()).read_text(encoding="utf-8").splitlines():
            if line.startswith('msgid "'):
                english = ast.literal_eval(line.removeprefix("msgid "))
            elif line.startswith('msgstr "') and english:
                other = ast.literal_eval(line.removeprefix("msgstr "))
                if len(english) > 25 and other and "%" not in english + other:
                    yield english, other
                english = ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
