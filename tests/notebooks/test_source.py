"""From a Python file to the cells of a notebook."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.lib.notebook_source import Cell, cells

SOURCE = """
# %% [markdown]
# # A title
#
# Two words.

# %%
one = 1


# A comment of the code.
two = 2

# %%
one + two
"""


def test_cells_of_text_and_of_code() -> None:
    assert cells(SOURCE) == [
        Cell("markdown", "# A title\n\nTwo words."),
        Cell("code", "one = 1\n\n\n# A comment of the code.\ntwo = 2"),
        Cell("code", "one + two"),
    ]


@pytest.mark.parametrize(
    ("source", "message"),
    [("import os\n# %%\n", "before the first cell"), ("# %% [markdown]\nNo comment.\n", "in a cell of text")],
)
def test_what_is_neither_is_refused(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cells(source)


@given(st.lists(st.lists(st.text("ab =1", min_size=1).map(str.strip).filter(bool), min_size=1), min_size=1))
def test_code_comes_back_as_it_was(blocks: list[list[str]]) -> None:
    source = "".join("# %%\n" + "\n".join(lines) + "\n\n" for lines in blocks)
    assert [cell.text for cell in cells(source)] == ["\n".join(lines) for lines in blocks]
