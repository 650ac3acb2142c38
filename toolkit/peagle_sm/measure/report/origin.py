"""Where the figures come from, and how to have them again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peagle_sm.core.display.markup import Safe, join, tag
from peagle_sm.measure.records import Header
from peagle_sm.measure.report import words
from peagle_sm.measure.report.section import Section, folded
from peagle_sm.measure.report.view import View

_FIRST = ("date", "region", "git_revision", "seed")


def origin(view: View) -> Section:
    """Provenance of every file, and the warnings that reading them gave."""
    parts = [_file(header) for header in view.headers]
    if told := (*view.warnings, *view.empty, *view.interrupted):
        parts.append(tag("ul", *(tag("li", text) for text in told), class_="warnings"))
    parts.append(
        tag(
            "p",
            f"Every line of the files ({words.plural(view.requests, 'request')}) is inside this page: ",
            tag("code", "peagle-sm report THIS.html"),
            " reads them like the files they came from, and the button writes them out. ",
            tag("button", "Save the data", id="save", type="button", hidden=""),
            class_="note",
        )
    )
    return Section("provenance", "Provenance", "", join(*parts))


def _file(header: Header) -> Safe:
    told = header.provenance
    facts: list[tuple[str, str]] = [("run", f"{header.run_id}, peagle-sm {header.command}")]
    facts += [(name.replace("_", " "), str(told[name])) for name in _FIRST if told.get(name) is not None]
    for name in ("versions", "machine"):
        if isinstance(told.get(name), Mapping):
            facts.append((name, ", ".join(f"{key} {value}" for key, value in told[name].items())))
    facts += [("weights", "small stand-ins")] if header.stand_in_weights else []
    rows = [join(tag("dt", name), tag("dd", value)) for name, value in facts]
    rest = {key: value for key, value in told.items() if key not in (*_FIRST, "versions", "machine")}
    more = [*flat(header.config, "config"), *flat(rest)]
    listed = tag("dl", *(join(tag("dt", name), tag("dd", value)) for name, value in more), class_="fine")
    return join(
        tag("dl", *rows, class_="facts"), folded("Settings, engines and hashes", listed) if more else None
    )


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as ``a.b.0`` and text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        if all(not isinstance(inner, Mapping | list | tuple) for inner in value):
            yield name, "; ".join(str(inner) for inner in value)
        else:
            for at, inner in enumerate(value):
                yield from flat(inner, f"{name}.{at}")
    elif value is not None:
        yield name, str(value)
