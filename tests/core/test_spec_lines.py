"""A bad field of a spec is reported with its line in the file."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import parse_spec
from peagle_sm.core.spec.validation import line_of

BAD = """\
# a comment
name: demo
model: gpt-oss-20b

speculation:
  mode: medusa      # line 6
serving:
  env:
    1X: a
placement: {instance_types: [ml.g7e.2xlarge, 7], instance_count: 0}
tags:
  team.cost-centre: [1]
lifecycel: {}
"""


def test_each_bad_field_has_its_line() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(BAD, "peagle.yaml")
    lines = {one["field"]: one["line"] for one in caught.value.details["problems"]}
    assert lines["speculation.mode"] == 6
    assert lines["placement.instance_types.1"] == 10
    assert lines["placement.instance_count"] == 10
    assert lines["tags.team.cost-centre"] == 12
    assert lines["lifecycel"] == 13
    assert "\n  line 6: speculation.mode: found 'medusa'" in caught.value.message


def test_one_bad_field_is_one_line() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec("name: demo\nmodel: gpt-oss-20b\nlifecycle:\n  max_lifetime_hours: 0\n", "peagle.yaml")
    assert caught.value.message.startswith("peagle.yaml: line 4: lifecycle.max_lifetime_hours: found 0;")


def test_a_missing_field_has_no_line_of_its_own() -> None:
    with pytest.raises(SpecError, match=r"^peagle.yaml: field 'model' is missing"):
        parse_spec("name: demo\n", "peagle.yaml")


def test_a_rule_over_several_fields_names_the_line_of_its_field() -> None:
    text = "name: demo\nmodel: m\nautoscaling:\n  max_instances: 2\n  min_instances: 3\n"
    with pytest.raises(SpecError, match=r"^peagle.yaml: line 5: autoscaling\.min_instances: found 3"):
        parse_spec(text, "peagle.yaml")


NAMES = st.text("ab.", min_size=1, max_size=3).filter(lambda name: not {name, name[-1], name[0]} & {"."})
TREES = st.recursive(
    st.integers(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


@given(tree=st.dictionaries(NAMES, TREES, min_size=1, max_size=4), field=st.text("ab.01", max_size=9))
def test_any_field_of_any_text_has_a_line_of_the_text_or_none(tree: dict[str, object], field: str) -> None:
    text = yaml.safe_dump(tree)
    line = line_of(text, field)
    assert line is None or 1 <= line <= text.count("\n")
    for name in tree:
        assert line_of(text, name) is not None
