"""The cards that notebooks show: as HTML, and as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.display import Card, Note, Shown, Table, html, text

CARD = Card(
    "bench: results/x.jsonl",
    "P-EAGLE wrote 529 tokens/s at c=1",
    "good",
    (("model", "tiny-code\n(small)"), ("K", "9")),
    (
        Table("Measured", ("load", "OTPS"), (("c=1", "529"), ("c=16", "1,204")), ("OTPS",)),
        Table("All of it", ("check",), (("greedy",),), folded=True),
    ),
    (Note("few requests", "caution", "warning"),),
)

TEXT = """\
bench: results/x.jsonl
P-EAGLE wrote 529 tokens/s at c=1

  model  tiny-code
         (small)
  K      9

Measured
  load   OTPS
  c=1     529
  c=16  1,204

All of it
  check
  greedy

warning: few requests"""


@dataclass(frozen=True)
class Thing(Shown):
    name: str

    def card(self) -> Card:
        return Card(self.name)


class Elements(HTMLParser):
    """What a browser would see: the elements that are open, the text, the attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_a_card_as_text() -> None:
    assert text(CARD) == TEXT


def test_a_folded_table_opens_by_its_title() -> None:
    assert '<details><summary style="cursor:pointer">All of it</summary><table' in html(CARD)


def test_both_forms_go_to_a_notebook_and_text_to_a_terminal() -> None:
    thing = Thing("demo")
    assert thing._repr_mimebundle_() == {"text/html": html(Card("demo")), "text/plain": "demo"}
    assert thing._repr_html_() == html(Card("demo"))
    assert (str(thing), repr(thing)) == ("demo", "Thing(name='demo')")


def test_what_has_no_card_says_so() -> None:
    with pytest.raises(TypeError, match="Shown has no card"):
        Shown().card()


texts = st.text(max_size=20)


@given(texts, texts, st.lists(st.tuples(texts, texts), max_size=3), texts)
def test_no_text_becomes_markup(title: str, headline: str, pairs: list[tuple[str, str]], note: str) -> None:
    table = Table(title, ("one", "two"), tuple(pairs), ("two",))
    card = Card(title, headline, fields=tuple(pairs), tables=(table,), notes=(Note(note),))
    seen = Elements()
    seen.feed(html(card))
    seen.close()
    assert seen.open == []
    assert seen.tags <= {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "span"}
    assert seen.attributes <= {"style", "scope", "aria-hidden"}
    assert note.replace("\r", "\n").strip() in "".join(seen.words).replace("\r", "\n")


def test_it_needs_nothing_from_elsewhere_and_fits_both_themes() -> None:
    created = html(CARD)
    assert not re.findall(r"<(?:script|style|link|img)|url\(|class=|prefers-color-scheme", created)
    # The page's own colour for everything that is read; what is coloured stands beside it.
    assert re.findall(r"(?<![-\w])color:[^;\"]+", created) == ["color:#c07f00"]
