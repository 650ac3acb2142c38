"""The page of the Python API, from the signatures and docstrings of the public names."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import peagle_sm
from peagle_sm.core.errors import PeagleError

_INTRO = """\
# Python

`scripts/reference` writes this page from the docstrings. Everything here is imported from `peagle_sm`; other
modules are not public and may change.

```python
import peagle_sm

question = [{"role": "user", "content": "How do I reverse a string in Python?"}]
with peagle_sm.deploy("peagle.yaml", local=True, yes=True) as endpoint:
    print(endpoint.invoke(messages=question, max_tokens=256, temperature=0).text)
```
"""
_FIRST = (
    "deploy",
    "connect",
    "plan",
    "doctor",
    "make_session",
    "load_spec",
    "bench",
    "compare",
    "verify",
    "tune",
)
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Example|Examples)::?$", re.MULTILINE)


def python_page() -> str:
    """Return the page: functions, classes, errors."""
    names = [*_FIRST, *(each for each in peagle_sm.__all__ if each not in _FIRST and each != "__version__")]
    objects = {name: getattr(peagle_sm, name) for name in names}
    errors = {
        name: each
        for name, each in objects.items()
        if inspect.isclass(each) and issubclass(each, PeagleError)
    }
    classes = {name: each for name, each in objects.items() if inspect.isclass(each) and name not in errors}
    functions = {name: each for name, each in objects.items() if not inspect.isclass(each)}
    parts = [_INTRO, "## Functions\n"]
    parts += [_entry(name, each) for name, each in functions.items()]
    parts.append("## Classes\n")
    for name, each in sorted(classes.items(), key=lambda item: item[0] != "Endpoint"):
        parts += [_entry(name, each), *_members(each)]
    parts += ["## Errors\n", "Each error has `message`, `next_step`, `details` and `exit_code`.\n"]
    parts += ["| error | is a | exit code | meaning |", "|---|---|---|---|"]
    for name, each in errors.items():
        parts.append(
            f"| `{name}` | `{each.__mro__[1].__name__}` | {each.exit_code} | {_inline(_summary(each))} |"
        )
    return "\n".join(parts).rstrip() + "\n"


def _entry(name: str, target: Any) -> str:
    return (
        f"### {name}\n\n```text\n{_signature(name, target)}\n```\n\n{_prose(inspect.getdoc(target) or '')}\n"
    )


def _signature(name: str, target: Any) -> str:
    """Return the call, one parameter a line where it is long."""
    if hasattr(target, "model_fields"):
        return f"{name}(**fields)"
    try:
        signature = inspect.signature(target)
    except ValueError:
        return name
    written = [str(each).replace("'", "") for each in signature.parameters.values()]
    kinds = [each.kind for each in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        written.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    written = [each for each in written if each != "self"]
    returned = signature.return_annotation
    returns = (
        ""
        if returned is signature.empty or inspect.isclass(target)
        else f" -> {str(returned).strip(chr(39))}"
    )
    line = f"{name}({', '.join(written)}){returns}"
    return line if len(line) <= 80 else f"{name}(\n    " + ",\n    ".join(written) + f",\n){returns}"


def _members(target: type) -> Iterator[str]:
    """Yield the public methods and properties of a class with their first line."""
    members = [
        (name, member)
        for name, member in vars(target).items()
        if not name.startswith(("_", "model_"))
        and (inspect.isfunction(member) or isinstance(member, property))
    ]
    rows = []
    for name, member in members:
        call = f"`{name}`" if isinstance(member, property) else f"`{name}()`"
        rows.append(f"| {call} | {_inline(_summary(member))} |")
    if rows:
        yield "\n".join(["| member | meaning |", "|---|---|", *rows, ""])


def _summary(target: Any) -> str:
    return " ".join((inspect.getdoc(target) or "").partition("\n\n")[0].split())


def _inline(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def _prose(text: str) -> str:
    """Return a docstring as Markdown: its sections in bold, their entries as a list, examples as code."""
    pieces = _SECTION.split(text)
    parts = [_inline(pieces[0].strip())]
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if title.startswith("Example"):
            code, _, rest = textwrap.dedent(body.strip("\n")).partition("\n\n")
            parts.append(f"**{title}**\n\n```python\n{code.rstrip()}\n```")
            parts += [_inline(rest.strip())] if rest.strip() else []
            continue
        entries = re.split(r"\n(?=\S)", inspect.cleandoc("\n" + body))
        parts.append(
            f"**{title}**\n\n" + "\n".join(f"- {_entry_of(each)}" for each in entries if each.strip())
        )
    return "\n\n".join(parts)


def _entry_of(text: str) -> str:
    name, colon, rest = " ".join(text.split()).partition(": ")
    return f"`{name}`: {_inline(rest)}" if colon and " " not in name else _inline(" ".join(text.split()))
