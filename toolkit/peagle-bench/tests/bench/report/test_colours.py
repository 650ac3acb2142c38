"""Every colour of the page can be read on its background: WCAG's contrast, in light, in dark and on paper."""

from __future__ import annotations

import re
from importlib import resources

import pytest

AA_TEXT = 4.5
BACKGROUND = {"warn": "warn-page"}
NOT_TEXT = {"page", "card", "rule", "hair", "warn-page"}


def schemes() -> dict[str, dict[str, str]]:
    style = resources.files("peagle_bench.report").joinpath("templates/page.css").read_text(encoding="utf-8")
    roots = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(roots) == 3
    return {
        name: dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", root))
        for name, root in zip(("light", "dark", "paper"), roots, strict=True)
    }


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("scheme", "colours"), schemes().items())
def test_text_and_lines_can_be_read(scheme: str, colours: dict[str, str]) -> None:
    faint = {
        name: round(contrast(colour, colours[BACKGROUND.get(name, "page")]), 2)
        for name, colour in colours.items()
        if name not in NOT_TEXT and contrast(colour, colours[BACKGROUND.get(name, "page")]) < AA_TEXT
    }
    assert faint == {}, scheme


def test_the_schemes_name_the_same_colours() -> None:
    light, dark, paper = schemes().values()
    assert light.keys() == dark.keys() == paper.keys()
