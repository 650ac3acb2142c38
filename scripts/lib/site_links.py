"""Check a built site: every link has a target, and nothing is loaded from other sites."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADS = {("script", "src"), ("img", "src"), ("source", "srcset"), ("iframe", "src")}
_STYLES = {"stylesheet", "preconnect", "icon", "preload"}


class _Page(HTMLParser):
    """Parser of a page's anchors, links and loaded files."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = {"", "top"}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tag names."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.loads += [values[name] for owner, name in _LOADS if tag == owner and name in values]
        if tag == "link" and "href" in values and _STYLES & set(values.get("rel", "").split()):
            self.loads.append(values["href"])


@cache
def _page(path: Path) -> _Page:
    return _Page(path.read_text(encoding="utf-8"))


def faults(site: Path) -> list[str]:
    """Return one line for each broken link and each file loaded from another site."""
    faults = []
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # It is served at any address, so its links are absolute.
            continue
        page = _page(path)
        where = path.relative_to(site)
        faults += [f"{where}: loads {each}" for each in page.loads if urlsplit(each).netloc]
        local = {
            each
            for each in (*page.links, *page.loads)
            if not urlsplit(each).scheme and not urlsplit(each).netloc
        }
        faults += [f"{where}: {each} does not exist" for each in sorted(local) if not _exists(path, each)]
    return faults


def _exists(path: Path, link: str) -> bool:
    parts = urlsplit(link)
    target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file():
        return False
    return target.suffix != ".html" or unquote(parts.fragment) in _page(target).anchors
