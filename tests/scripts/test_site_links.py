from __future__ import annotations

from pathlib import Path

from scripts.lib.site_links import faults


def _site(folder: Path, **pages: str) -> Path:
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


def test_a_whole_site_has_no_faults(tmp_path: Path) -> None:
    (tmp_path / "a.svg").touch()
    link = '<a href="other.html#part">x</a><a href="https://example.org/x">y</a><a href="#top">z</a>'
    site = _site(tmp_path, index=f'{link}<img src="a.svg">', other='<h2 id="part">Part</h2>')
    assert faults(site) == []


def test_a_missing_page_file_or_anchor_is_named(tmp_path: Path) -> None:
    link = '<a href="gone.html">x</a><a href="#gone">y</a><a href="other.html#gone">z</a><img src="gone.svg">'
    assert faults(_site(tmp_path, index=link, other="")) == [
        "index.html: #gone does not exist",
        "index.html: gone.html does not exist",
        "index.html: gone.svg does not exist",
        "index.html: other.html#gone does not exist",
    ]


def test_what_is_loaded_from_elsewhere_is_named(tmp_path: Path) -> None:
    page = (
        '<script src="https://cdn.example/x.js"></script><link rel="stylesheet" href="//fonts.example/css">'
    )
    assert faults(_site(tmp_path, index=page)) == [
        "index.html: loads https://cdn.example/x.js",
        "index.html: loads //fonts.example/css",
    ]
