"""The cards that notebooks and terminals show."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from peagle_sm.core.display import Card, Note, Shown, Table, text

CARD = Card(
    "bench: results/x.jsonl",
    "P-EAGLE wrote 529 tokens/s at c=1",
    (("model", "tiny-code\n(small)"), ("K", "9")),
    (
        Table("Measured", ("load", "OTPS"), (("c=1", "529"), ("c=16", "1,204")), ("OTPS",)),
        Table("All of it", ("check",), (("greedy",),)),
    ),
    (Note("few requests", "warning"),),
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


def test_a_card_as_text() -> None:
    assert text(CARD) == TEXT


def test_text_goes_to_a_notebook_and_to_a_terminal() -> None:
    thing = Thing("demo")
    shown: list[str] = []
    thing._repr_pretty_(SimpleNamespace(text=shown.append), False)
    assert [str(thing)] == shown == ["demo"]
    assert repr(thing) == "Thing(name='demo')"


def test_what_has_no_card_says_so() -> None:
    with pytest.raises(TypeError, match="Shown has no card"):
        Shown().card()
