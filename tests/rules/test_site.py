"""What scripts/docs needs of docs/: links stay inside it and name an anchor, and the menu has every page."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.rules.documents import FENCE, documents, read
from tests.rules.files import ROOT, project_files

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#{1,6} (.+?)(?: *\{[^}]*\})?$", re.MULTILINE)
PAGES = [path for path in documents() if path.parts[0] == "docs"]
LINKS = [
    (page, path, anchor) for page in documents() for path, anchor in LINK.findall(FENCE.sub("", read(page)))
]


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Zensical makes them."""
    titles = (
        re.sub(r"`|\*\*|\[([^\]]*)\]\([^)]*\)", r"\1", each)
        for each in HEADING.findall(FENCE.sub("", read(page)))
    )
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def _target(page: Path, path: str) -> Path:
    return ((ROOT / page).parent / path).resolve().relative_to(ROOT) if path else page


def test_a_link_leads_to_a_heading() -> None:
    anchors: dict[Path, set[str]] = {}
    wrong = []
    for page, path, anchor in LINKS:
        target = _target(page, path)
        if not anchor or target.suffix != ".md":
            continue
        if target not in anchors:
            anchors[target] = _anchors(target)
        if anchor not in anchors[target]:
            wrong.append(f"{page} links to #{anchor} of {target}, which has no such heading")
    assert not wrong, "\n".join(wrong)


def test_a_page_links_to_what_the_site_has() -> None:
    wrong = []
    for page, path, _ in LINKS:
        target = _target(page, path)
        if page not in PAGES:
            continue
        if target.parts[0] != "docs":
            wrong.append(f"{page}: {target} is not in the site; name it in `code` instead")
        elif not (ROOT / target).is_file():
            wrong.append(f"{page}: link to a file, not to the folder {target}")
    assert not wrong, "\n".join(wrong)


def test_the_menu_has_every_page_once() -> None:
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    named = sorted(_named(menu))
    assert named == sorted(str(path.relative_to("docs")) for path in PAGES)


def _named(node: object) -> list[str]:
    if isinstance(node, str):
        return [node]
    inner = node if isinstance(node, list) else list(node.values()) if isinstance(node, dict) else []
    return [name for each in inner for name in _named(each)]


def test_no_page_lies_loose() -> None:
    loose = [path.name for path in project_files() if path.parts[0] == "docs" and len(path.parts) == 2]
    assert loose == ["index.md"], "put it into tutorials, how-to, reference or explanation"
