import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import ENDPOINT_NAME, EndpointSpec, dump_spec, json_schema, parse_spec
from peagle_sm.service.spec_to_plan import load_spec

ROOT = Path(__file__).parents[4]
BASE = "name: demo\nmodel: tiny-code\n"

BAD = [
    pytest.param("nmae: x\nmodel: m", ["'nmae'", "allowed here", "Did you mean 'name'?"], id="unknown field"),
    pytest.param(
        BASE + "speculation: {modes: none}",
        [
            "'speculation.modes'",
            "draft_head, draft_sample_method, draft_tensor_parallel_size",
            "Did you mean 'mode'?",
        ],
        id="unknown nested field",
    ),
    pytest.param(
        BASE + "speculation: {mode: peagle}",
        [
            "speculation.mode: found 'peagle'",
            "none, ngram, suffix, draft-model, mtp, eagle3, dflash, dspark, p-eagle",
            "Did you mean 'p-eagle'?",
        ],
        id="unknown mode",
    ),
    pytest.param(
        BASE + "speculation: {mode: p-eagle, num_speculative_tokens: 0}",
        ["speculation.num_speculative_tokens: found 0", "p-eagle", "1 or more", "mode: none"],
        id="K of 0 with p-eagle",
    ),
    pytest.param("name: -demo\nmodel: m", ["name: found '-demo'", "letters, digits"], id="name AWS refuses"),
    pytest.param(f"name: {'a' * 64}\nmodel: m", ["name: found", "1 to 63"], id="name too long"),
    pytest.param("name: my_endpoint\nmodel: m", ["name: found 'my_endpoint'"], id="underscore in the name"),
    pytest.param("name: demo", ["field 'model' is missing"], id="missing model"),
    pytest.param(BASE + "source: hub", ["source: found 'hub'", "jumpstart, container"], id="unknown source"),
    pytest.param(
        BASE + "placement: {region: us-east1}", ["placement.region: found 'us-east1'"], id="malformed region"
    ),
    pytest.param(
        BASE + "placement: {instance_types: [ml.g7e.2xlarge, ml.g7e.2xlarge]}",
        ["placement.instance_types", "each instance type once"],
        id="repeated instance type",
    ),
    pytest.param(
        BASE + "placement: {instance_types: [a, b, c, d, e, f]}",
        ["at most 5 items"],
        id="too many instance types",
    ),
    pytest.param(
        BASE + "placement: {instance_count: 1.5}", ["found 1.5", "a whole number"], id="half an instance"
    ),
    pytest.param(
        BASE + "lifecycle: {grace_minutes: 5}", ["grace_minutes: found 5", "10 or more"], id="grace"
    ),
    pytest.param(
        BASE + "lifecycle: {max_lifetime_hours: .inf}", ["max_lifetime_hours"], id="an endless lifetime"
    ),
    pytest.param(BASE + "lifecycle: {budget_usd: .nan}", ["budget_usd"], id="no number for a budget"),
    pytest.param(BASE + "startup_timeout_s: 4000", ["found 4000", "3600 or less"], id="timeout AWS refuses"),
    pytest.param(BASE + "tags: {'aws:x': y}", ["tags", "aws:"], id="reserved tag"),
    pytest.param(BASE + "tags: {'peagle-sm:mode': y}", ["tags", "peagle-sm:"], id="our tag"),
    pytest.param(BASE + "tags: {team: 'a&b'}", ["tags", "letters, digits, spaces"], id="tag characters"),
    pytest.param(BASE + "model_uri: /tmp/x", ["model_uri: found '/tmp/x'", "s3://"], id="not an S3 address"),
    pytest.param(BASE + "execution_role_arn: role", ["execution_role_arn", "arn:aws"], id="not a role"),
    pytest.param(BASE + "serving: {env: {'A-B': x}}", ["serving.env", "A-B"], id="name of a variable"),
    pytest.param(
        BASE + "serving: {env: {A: [1]}}", ["serving.env.A: found [1]", "a text"], id="list as a value"
    ),
    pytest.param("", ["found None", "a mapping"], id="an empty file"),
    pytest.param("? [a]\n: b", ["not YAML at line 1"], id="a list as a key"),
    pytest.param("name: [", ["not YAML at line 1"], id="not YAML"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_bad_input_is_named_with_what_is_allowed(text: str, said: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(text, origin="peagle.yaml")
    message = str(caught.value)
    assert message.startswith("peagle.yaml:")
    for part in said:
        assert part in message
    assert caught.value.next_step


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec("name: -x\nmodel: m\nfoo: 1\nserving: {max_model_len: many}")
    fields = [problem["field"] for problem in caught.value.details["problems"]]
    assert sorted(fields) == ["foo", "name", "serving.max_model_len"]


def test_the_constructor_raises_the_same_error() -> None:
    with pytest.raises(SpecError, match="unknown field 'colour'"):
        EndpointSpec(**{"name": "demo", "model": "tiny-code", "colour": "red"})


def test_a_file_that_cannot_be_read_is_a_spec_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file"):
        load_spec(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(SpecError, match="not UTF-8"):
        load_spec(tmp_path / "latin.yaml")


def test_the_environment_takes_yaml_numbers_and_booleans() -> None:
    spec = parse_spec(BASE + "serving: {env: {A: true, B: 8192, C: 0.9, D: 'x'}}")
    assert spec.serving.env == {"A": "true", "B": "8192", "C": "0.9", "D": "x"}


def test_a_prefix_ends_in_a_slash() -> None:
    assert parse_spec(BASE + "model_uri: s3://bucket/target").model_uri == "s3://bucket/target/"


_NAMES = st.from_regex(ENDPOINT_NAME, fullmatch=True)
_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)
_SPECS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"name": _NAMES, "model": st.text("abc-0", min_size=1, max_size=20)},
    optional={
        "source": st.sampled_from(["jumpstart", "container"]),
        "speculation": st.fixed_dictionaries(
            {"mode": st.sampled_from(["none", "eagle3", "p-eagle"])},
            optional={"num_speculative_tokens": st.integers(1, 64), "draft_head": _TEXT.filter(bool)},
        ),
        "serving": st.fixed_dictionaries(
            {},
            optional={
                "tensor_parallel_size": st.integers(1, 8),
                "max_model_len": st.integers(1, 10**6),
                "env": st.dictionaries(
                    st.from_regex(r"[A-Z_][A-Z0-9_]{0,20}", fullmatch=True),
                    _TEXT.filter(lambda text: "\0" not in text),
                    max_size=4,
                ),
            },
        ),
        "lifecycle": st.fixed_dictionaries(
            {}, optional={"max_lifetime_hours": st.floats(0.01, 8760), "budget_usd": st.floats(0.01, 1e6)}
        ),
        "tags": st.dictionaries(
            st.text("abcXYZ 019+-@", min_size=1, max_size=9), st.text("aé 0_"), max_size=3
        ),
        "accept_eula": st.booleans(),
        "head_uri": st.just("s3://bucket/head"),
    },
)


@given(_SPECS)
@example({"name": "demo", "model": "tiny-code", "serving": {"env": {"A": "\x85"}}})
@example({"name": "0E0", "model": "1e5"})
def test_what_is_dumped_is_read_back(data: dict[str, Any]) -> None:
    spec = EndpointSpec(**data)
    assert parse_spec(dump_spec(spec)) == spec


@given(_NAMES)
def test_every_name_that_aws_takes_is_taken(name: str) -> None:
    assert EndpointSpec(name=name, model="m").name == name


@given(st.text(max_size=70))
@example("a" * 64)
@example(f"a{'-' * 62}a")
def test_every_other_name_is_refused_with_its_field(name: str) -> None:
    if ENDPOINT_NAME.fullmatch(name):
        return
    with pytest.raises(SpecError) as caught:
        EndpointSpec(name=name, model="m")
    assert caught.value.details["problems"][0]["field"] == "name"


def test_the_published_schema_is_the_generated_one() -> None:
    published = json.loads((ROOT / "docs" / "reference" / "spec.schema.json").read_text(encoding="utf-8"))
    assert published == json_schema(), (
        "regenerate: python -c 'import json; from peagle_sm.core.spec.endpoint_spec import json_schema; "
        "print(json.dumps(json_schema(), indent=2, ensure_ascii=False))' > docs/reference/spec.schema.json"
    )


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "examples").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_example_meets_the_schema(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), json_schema())
