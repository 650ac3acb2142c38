"""A bad field of a spec is reported with its line in the file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, parse_spec
from peagle_sm.core.spec.validation import SpecPart, line_of, load_yaml

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


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("lifecycle:\n  max_lifetime_hours: 0", "line 4: lifecycle.max_lifetime_hours: found 0;"),
        (
            "autoscaling:\n  max_instances: 2\n  min_instances: 3",
            "line 5: autoscaling.min_instances:",
        ),
        ("model_: m", "line 3: unknown field 'model_'"),
    ],
)
def test_one_problem_is_told_on_one_line(text: str, beginning: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(f"name: demo\nmodel: gpt-oss-20b\n{text}\n", "peagle.yaml")
    assert caught.value.message.startswith(f"peagle.yaml: {beginning}")


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("tags: {team: red, green, blue}", "tags.team"),
        ("tags: {team: 'red', green}", None),
        ("tags:\n  team: red\n  green:", None),
    ],
)
def test_a_text_that_a_comma_cuts_asks_for_quotes(text: str, quoted: str | None) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(f"name: demo\nmodel: gpt-oss-20b\n{text}\n", "peagle.yaml")
    step = str(caught.value.next_step)
    assert f"{quoted!r} in quotes" in step if quoted else "a comma" not in step


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


def _scalars(part: type[SpecPart], prefix: str = "") -> Iterator[tuple[str, set[type]]]:
    """Yield each field of a number, boolean or text alone, with its types; independent of the validator."""
    for name, info in part.model_fields.items():
        hints = str(info.annotation)
        if isinstance(info.annotation, type) and issubclass(info.annotation, SpecPart):
            yield from _scalars(info.annotation, f"{prefix}{name}.")
        elif not set("[(.").intersection(hints.replace(" | None", "")):
            words = {"bool": bool, "int": int, "float": float}
            kinds = {kind for word, kind in words.items() if word in hints}
            if kinds:
                yield f"{prefix}{name}", kinds


SCALARS = [*_scalars(EndpointSpec)]


def test_the_fields_of_numbers_and_booleans_are_found() -> None:
    names = {name for name, _ in SCALARS}
    assert {"accept_eula", "placement.instance_count", "lifecycle.max_lifetime_hours"} <= names


@pytest.mark.parametrize(("field", "kinds"), SCALARS, ids=[name for name, _ in SCALARS])
def test_a_value_of_another_kind_is_refused_with_what_to_do(field: str, kinds: set[type]) -> None:
    wrong = ['"yes"', '"8"', *([] if bool in kinds else ["yes"]), *(["1"] if kinds == {bool} else [])]
    for value in wrong:
        *parents, name = field.split(".")
        text = "name: demo\nmodel: gpt-oss-20b\n" + "".join(
            f"{'  ' * i}{p}:\n" for i, p in enumerate(parents)
        )
        with pytest.raises(SpecError) as caught:
            parse_spec(f"{text}{'  ' * len(parents)}{name}: {value}\n", "peagle.yaml")
        assert f"{field}: found" in caught.value.message
        readable = value == '"8"' and kinds != {bool}  # what would be right without the quotes
        assert ("without quotes" in str(caught.value.next_step)) == (
            readable or (value == '"yes"' and bool in kinds)
        )


@pytest.mark.parametrize(
    ("text", "value"), [("name: yes", "true"), ("hours: 9", "9"), ("tags: {a: off}", "false")]
)
def test_a_text_that_yaml_reads_otherwise_asks_for_quotes(text: str, value: str) -> None:
    start = "" if text.startswith("name") else "name: demo\n"
    with pytest.raises(SpecError) as caught:
        parse_spec(f"{start}model: gpt-oss-20b\n{text}\n", "peagle.yaml")
    assert f"found {value};" in caught.value.message
    assert "in quotes" in str(caught.value.next_step)


@pytest.mark.parametrize("text", ["1e-6", "1E-06", "5e-5", "+2e3", "1.5e-4", "1.e-4", ".5e-3"])
def test_a_number_with_an_exponent_is_a_number(text: str) -> None:
    """YAML 1.1 reads ``1e-6`` as text; in JSON, which a spec may be, it is a number."""
    assert load_yaml(f"rate: {text}") == {"rate": float(text)}
    assert load_yaml(f"rate: '{text}'") == {"rate": text}


@pytest.mark.parametrize("text", ["e5", "1e", "1e-6b", "v1e5", "1e5-2"])
def test_a_text_that_looks_like_an_exponent_is_a_text(text: str) -> None:
    assert load_yaml(f"name: {text}") == {"name": text}


BASE = "name: demo\nmodel: gpt-oss-20b\n"


@pytest.mark.parametrize(
    ("text", "message", "next_step"),
    [
        # a field at another place of the spec: where it belongs
        ("speculation: {head_uri: s3://b/p/}", "speculation.head_uri", "'head_uri'"),
        ("lifecycle: {hours: 9-5}", "lifecycle.hours", "'hours'"),
        ("region: us-east-1", "region", "'placement.region'"),
        ("serving: {max_num_seqs: 8}", "serving.max_num_seqs", "serving.extra_args"),
        # another kind of value: the value as it may be written
        ("placement: {instance_types: ml.g5.2xlarge}", "a list", "instance_types: [ml.g5.2xlarge]"),
        ("speculation: p-eagle", "draft_head, ", "speculation"),
        ('serving: {max_model_len: "4096"}', "4096", "for example 4096"),
        ('lifecycle: {budget_usd: "12.5"}', "12.5", "for example 12.5"),
        ("serving: null", "found null", "serving"),
        ("autoscaling: {min_instances: 0}", "lifecycle.idle: scale-to-zero", "autoscaling.min_instances"),
        ("hours: 9-17", "Mon-Fri 08:00-19:00 Europe/Berlin", "hours"),
    ],
)
def test_a_mistake_is_answered_with_what_to_write(text: str, message: str, next_step: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec(f"{BASE}{text}\n", "peagle.yaml")
    assert message in str(error.value)
    assert next_step in str(error.value.next_step)


def test_a_wrong_field_of_an_own_model_lists_its_fields() -> None:
    with pytest.raises(SpecError, match="config, jumpstart, license") as error:
        parse_spec("name: demo\nmodel: {name: x, config: ., licence: mit}\n", "peagle.yaml")
    assert "Did you mean 'license'?" in str(error.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("lifecycle: {max_lifetime_hours: 1:30}", "found 1:30, which YAML reads as 90"),
        ("lifecycle: {max_lifetime_hours: 012}", "found 012, which YAML reads as 10"),
        ("serving: {max_model_len: 040000}", "found 040000, which YAML reads as 16384"),
        ("serving: {env: {A: 1:30}}", "found 1:30, which YAML reads as 90"),
    ],
)
def test_a_number_that_yaml_reads_otherwise_is_refused(text: str, why: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(f"name: demo\nmodel: gpt-oss-20b\n{text}\n", "peagle.yaml")
    assert why in caught.value.message
    assert "line 3" in caught.value.message


@pytest.mark.parametrize("value", ["7", "07", "0x7", "0", "7.0", "+7"])
def test_a_number_that_yaml_reads_as_one_does_is_read(value: str) -> None:
    parse_spec(f"name: demo\nmodel: gpt-oss-20b\nserving: {{extra_args: {{seed: {value}}}}}\n", "peagle.yaml")


def test_a_date_asks_for_quotes_and_a_text_is_not_told_to_lose_them() -> None:
    for text, found, step in (
        ("tags: {day: 2026-11-26}", "found 2026-11-26;", "in quotes: YAML reads it as a date"),
        ("lifecycle: {max_lifetime_hours: 2h}", "found '2h';", "as a number, for example 8"),
        ("serving: {max_model_len: 16k}", "found '16k';", "as a whole number, for example 8"),
    ):
        with pytest.raises(SpecError) as caught:
            parse_spec(f"name: demo\nmodel: gpt-oss-20b\n{text}\n", "peagle.yaml")
        assert found in caught.value.message
        assert step in str(caught.value.next_step)
