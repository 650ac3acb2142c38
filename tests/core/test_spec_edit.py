"""Fields written into a spec's text: the value is read back, and nothing else of the file changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec import parse_spec
from peagle_sm.core.spec_fields import edit_spec

BASES = {
    "bare": "name: demo\nmodel: tiny-code\n",
    "a comment at the end": "name: demo\nmodel: tiny-code  # small\n\n# the end\n",
    "block": (
        "name: demo\nspeculation:\n  mode: eagle3  # slow\n  num_speculative_tokens: 3\nmodel: tiny-code\n"
    ),
    "flow": "name: demo\nmodel: tiny-code\nspeculation: {num_speculative_tokens: 3}  # three\n",
    "an empty flow": "name: demo\nmodel: tiny-code\nspeculation: {}\n",
    "there already": (
        "name: demo\nmodel: tiny-code\nhead_uri: s3://b/old/ # old\nspeculation: {draft_head: x}"
    ),
    "no line end": "name: demo\nmodel: tiny-code",
}
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,20}", fullmatch=True)


@pytest.mark.parametrize("base", BASES)
@settings(max_examples=12)
@given(prefix=NAMES, head=NAMES | st.sampled_from(["yes", "1", "a, b", "{x}", "it's", "#4"]))
def test_what_was_written_is_read_and_the_rest_stays(base: str, prefix: str, head: str) -> None:
    text = BASES[base]
    fields = {
        "head_uri": f"s3://bucket/{prefix}/",
        "speculation.draft_head": head,
        "speculation.mode": "p-eagle",
    }
    written = edit_spec(text, fields)
    before, after = parse_spec(text), parse_spec(written)
    assert (after.head_uri, after.speculation.draft_head, after.speculation.mode) == (
        f"s3://bucket/{prefix}/",
        head,
        "p-eagle",
    )
    same = before.speculation.num_speculative_tokens
    assert after.speculation.num_speculative_tokens == same
    assert edit_spec(written, fields) == written
    for comment in ("# small", "# the end", "# slow", "# three", "# old"):
        assert (comment in text) == (comment in written)


def test_a_value_that_the_spec_does_not_allow_is_refused() -> None:
    with pytest.raises(SpecError):
        edit_spec(BASES["bare"], {"head_uri": "https://bucket/x"})
    with pytest.raises(SpecError):
        edit_spec("name: [", {"head_uri": "s3://b/x/"})
