"""Fields are written into a spec's text; nothing else of the file changes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.editing import edit_spec, write_fields
from peagle_sm.core.spec.endpoint_spec import parse_spec

TEXT = """\
# mine
name: demo   # its name
model: gpt-oss-20b

serving:
  # how it runs
  tensor_parallel_size: 1   # one
  env: {SM_VLLM_MAX_NUM_SEQS: "64"}  # short
placement: {region: us-east-1, instance_types: [ml.g7e.2xlarge]}
speculation:
lifecycle:
  max_lifetime_hours: 8
# the end
"""


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("accept_eula", True, "accept_eula: true"),
        ("serving.tensor_parallel_size", 2, "  tensor_parallel_size: 2   # one"),
        ("serving.data_parallel_size", 8, "  data_parallel_size: 8"),
        (
            "serving.env.PROCESS_AUTO_RECOVERY",
            "false",
            """  env: {SM_VLLM_MAX_NUM_SEQS: "64", PROCESS_AUTO_RECOVERY: 'false'}  # short""",
        ),
        (
            "placement.inference_ami_version",
            "a",
            "placement: {region: us-east-1, instance_types: [ml.g7e.2xlarge], inference_ami_version: a}",
        ),
        ("speculation.num_speculative_tokens", 7, "speculation: {num_speculative_tokens: 7}"),
        ("security.network_isolation", True, "  network_isolation: true"),
    ],
)
def test_a_field_is_written_where_it_belongs(field: str, value: Any, line: str) -> None:
    written = write_fields(TEXT, {field: value})
    assert line in written.split("\n")
    changed = set(TEXT.split("\n")) - set(written.split("\n"))
    assert len(changed) <= 1, "only the line that holds the field"
    assert "# mine" in written
    assert "# the end" in written


def test_what_cannot_be_found_is_told_and_not_guessed() -> None:
    with pytest.raises(SpecError, match=r"no place found for serving\.env\.A") as caught:
        write_fields(
            "name: x\nserving: &a\n  env:\n    B: |\n      two\n      lines\nmodel: *a\n",
            {"serving.env.A": "1"},
        )
    assert "serving.env.A" in (caught.value.next_step or "")


WORD = st.text("abcdefgh", min_size=1, max_size=4)
LEAF = st.one_of(st.integers(0, 9), st.booleans(), st.text("xyz: #'\"", max_size=5), st.none())
TREE = st.dictionaries(
    WORD, st.recursive(LEAF, lambda each: st.dictionaries(WORD, each, max_size=3), max_leaves=6)
)


@given(tree=TREE.filter(bool), path=st.lists(WORD, min_size=1, max_size=3), value=LEAF, flow=st.booleans())
def test_it_says_what_was_wanted_or_refuses(
    tree: dict[str, Any], path: list[str], value: Any, flow: bool
) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow or None, sort_keys=False)
    try:
        written = write_fields(text, {".".join(path): value})
    except SpecError:
        return
    safe_load = yaml.safe_load(written)
    for key in path:
        safe_load = safe_load[key]
    assert safe_load == value


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
