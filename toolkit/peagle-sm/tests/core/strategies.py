"""Values for property tests: whatever JSON can hold, and tables of K."""

from __future__ import annotations

from hypothesis import strategies as st

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10**6) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def k_tables(draw: st.DrawFn) -> tuple[tuple[int, int, int], ...]:
    """Valid tables of K by batch size, up to 8 rows."""
    widths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    ks = draw(st.lists(st.integers(0, 12), min_size=len(widths), max_size=len(widths)).filter(any))
    rows, first = [], 1
    for width, k in zip(widths, ks, strict=True):
        rows.append((first, first + width - 1, k))
        first += width
    return tuple(rows)
