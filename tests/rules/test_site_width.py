"""What the documentation site can show beside its sidebars, without a browser.

A drawing made of characters cannot wrap: 100 columns fit at 1280 px, as the site was rendered with Chromium.
The text of an SVG file is legible where the picture is as wide as the style sheet makes it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
CSS = (DOCS / "assets" / "site.css").read_text(encoding="utf-8")
MOST_COLUMNS = 100
NARROWEST_PX = 700  #: of a picture: `min-width` of assets/site.css, at 20 px for 1 rem
SMALLEST_PX = 11


def unwrapped_lines() -> list[str]:
    """Lines of the blocks without a language: the style sheet wraps all others."""
    lines = []
    for page in sorted(DOCS.rglob("*.md")):
        language = None
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            fence = re.match(r"\s*`{3,}\s*(\w*)", line)
            if fence:
                language = (fence[1] or "text") if language is None else None
            elif language == "text":
                lines.append(f"{page.relative_to(DOCS)}:{number}: {line}")
    return lines


def test_a_drawing_of_characters_fits_the_page() -> None:
    lines = unwrapped_lines()
    assert len(lines) > 100
    wide = [line for line in lines if len(line.split(": ", 1)[1]) > MOST_COLUMNS]
    assert not wide, f"give the block a language, or make these shorter than {MOST_COLUMNS + 1}: {wide}"


def test_code_wraps_and_drawings_scroll() -> None:
    assert re.search(r"\.highlight:not\(\.language-text\)[^{]*\{[^}]*white-space: pre-wrap", CSS)
    assert re.search(rf'img\[src\$="\.svg"\] \{{\s*min-width: {NARROWEST_PX / 20:g}rem', CSS)


@pytest.mark.parametrize("picture", sorted(DOCS.rglob("*.svg")), ids=lambda path: path.stem)
def test_the_text_of_a_picture_is_legible(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    box = re.search(r'viewBox="[-\d.]+ 0 ([\d.]+) [\d.]+"', text)
    assert box, picture
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: ?([\d.]+)px", text)]
    assert sizes
    assert min(sizes) * NARROWEST_PX / float(box[1]) >= SMALLEST_PX
