"""Elements of HTML and SVG as text that is escaped unless it is markup already. Pure."""

from __future__ import annotations

from html import escape

VOID = frozenset({"meta", "br", "hr", "link"})


class Safe(str):
    """Text that is markup: it is not escaped again."""

    __slots__ = ()


Content = str | float | None
"""What an element holds: `Safe` goes in as it is, other text is escaped, None is left out."""


def join(*parts: Content, by: str = "") -> Safe:
    """Put parts side by side."""
    return Safe(by.join(_inside(part) for part in parts if part is not None))


def tag(name: str, /, *content: Content, **attributes: Content) -> Safe:
    """One element; ``class_`` loses its underline, inner ones become hyphens; None leaves one out."""
    written = "".join(
        f' {_attribute(key)}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Safe(f"<{name}{written}>")
    return Safe(f"<{name}{written}>{join(*content)}</{name}>")


def _attribute(key: str) -> str:
    return key.removesuffix("_").replace("_", "-") if key != "viewBox" else key


def _inside(part: Content) -> str:
    return part if isinstance(part, Safe) else escape(_plain(part), quote=False)


def _plain(value: Content) -> str:
    if isinstance(value, float):  # coordinates: two decimals are finer than any screen
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)
