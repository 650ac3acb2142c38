from __future__ import annotations

import pytest

from peagle_bench.compare.arms import deployable, name_of, named_modes, parse_modes, spec_of
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.resolve import Context
from peagle_sm.core.planning import Plan, make_plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import MODES


def tiny(**more: object) -> EndpointSpec:
    return EndpointSpec(**{"name": "tiny-code-p-eagle", "model": "tiny-code", **more})


def test_modes_come_slowest_first_each_with_its_k() -> None:
    assert list(parse_modes("p-eagle, none,eagle3")) == ["none", "eagle3", "p-eagle"]
    assert parse_modes("p-eagle=7,none,eagle3") == {"none": None, "eagle3": None, "p-eagle": 7}


@pytest.mark.parametrize(
    "text",
    [
        *("", "none", "none,none", "none,medusa", "p-eagle,eagle4", "none,p-eagle=3,p-eagle=5"),
        *(
            "none=7,p-eagle",
            "none,p-eagle=0",
            "none,p-eagle=x",
            "none,p-eagle=",
            "all,all",
            "all=3",
            "all,none=2",
        ),
    ],
)
def test_wrong_modes_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="two or more of none, ngram"):
        parse_modes(text)


def planned(spec: EndpointSpec) -> Plan:
    role = "arn:aws:iam::123456789012:role/r"
    context = Context("123456789012", "us-east-1", role_arn=role, scheduler_role_arn=role)
    return make_plan(spec, context)


def test_all_is_every_mode_and_keeps_a_k() -> None:
    assert list(parse_modes("all")) == list(MODES)
    assert parse_modes("all, p-eagle=7") == dict.fromkeys(MODES) | {"p-eagle": 7}
    assert named_modes("all, p-eagle=7") == {"p-eagle"}


def test_all_leaves_out_what_the_target_cannot_run_in_with_the_reason() -> None:
    base = EndpointSpec(name="a", model="gpt-oss-20b", source="jumpstart")
    kept, left_out = deployable(base, parse_modes("all"), (), planned)
    assert list(kept) == ["none", "ngram", "p-eagle"]
    assert set(left_out) == {*MODES} - {*kept}
    assert "no default draft head" in left_out["draft-model"]
    assert "arctic-inference" in left_out["suffix"]  # its engine may not start, and all would be deleted
    assert "head" in left_out["eagle3"]


def test_a_mode_that_is_named_beside_all_stays_whatever_its_plan_says() -> None:
    base = EndpointSpec(name="a", model="gpt-oss-20b", source="jumpstart")
    kept, left_out = deployable(base, parse_modes("all,suffix=8"), named_modes("all,suffix=8"), planned)
    assert kept["suffix"] == 8
    assert "suffix" not in left_out


def test_all_of_a_target_that_can_run_in_none_alone_is_refused() -> None:
    def refused(spec: EndpointSpec) -> Plan:
        raise SpecError("no such file")

    with pytest.raises(SpecError, match=r"no mode but none: .*ngram: no such file"):
        deployable(tiny(), parse_modes("all"), (), refused)


def test_a_spec_becomes_one_for_each_mode() -> None:
    base = tiny(speculation={"mode": "p-eagle", "num_speculative_tokens": 9})
    ks = parse_modes("none,eagle3=5,p-eagle")
    specs = {mode: spec_of(base, mode, k=k, deployment=2) for mode, k in ks.items()}
    assert [spec.name for spec in specs.values()] == [
        "cmp-tiny-code-none-2",
        "cmp-tiny-code-eagle3-2",
        "cmp-tiny-code-p-eagle-2",
    ]
    by_name = {
        mode: (spec.speculation.mode, spec.speculation.num_speculative_tokens) for mode, spec in specs.items()
    }
    assert by_name == {"none": ("none", None), "eagle3": ("eagle3", 5), "p-eagle": ("p-eagle", 9)}
    assert specs["eagle3"].speculation.draft_head == "tiny-code-eagle3"
    assert specs["none"].speculation.draft_head is None


def test_a_mode_without_a_head_becomes_a_spec_without_one() -> None:
    base = tiny(speculation={"mode": "p-eagle", "draft_head": "mine"}, head_uri="s3://bucket/mine/")
    spec = spec_of(base, "ngram", k=4)
    assert (spec.name, spec.head_uri) == ("cmp-tiny-code-ngram", None)
    assert spec.speculation.model_dump(exclude_none=True) == {"mode": "ngram", "num_speculative_tokens": 4}


def test_a_modes_own_fields_stay_with_it() -> None:
    base = tiny(speculation={"mode": "ngram", "prompt_lookup_max": 3})
    assert spec_of(base, "ngram", k=2).speculation.prompt_lookup_max == 3
    assert spec_of(base, "p-eagle").speculation.prompt_lookup_max is None


def test_a_head_of_ones_own_stays_with_its_mode_only() -> None:
    base = tiny(
        speculation={"mode": "p-eagle", "draft_head": "mine"},
        head_uri="s3://bucket/mine/",
        source="container",
    )
    assert spec_of(base, "p-eagle").head_uri == "s3://bucket/mine/"
    assert spec_of(base, "p-eagle", head="other").head_uri is None
    assert spec_of(base, "eagle3").head_uri is None
    assert spec_of(base, "eagle3", head="theirs").speculation.draft_head == "theirs"
    assert spec_of(base, "eagle3", head_uri="s3://bucket/theirs/").head_uri == "s3://bucket/theirs/"
    assert spec_of(base, "p-eagle", head_uri="s3://bucket/newer/").head_uri == "s3://bucket/newer/"


def test_a_real_target_has_an_eagle3_head_without_bringing_one() -> None:
    for model in (
        "gpt-oss-20b",
        "gpt-oss-120b",
        "qwen3-coder-30b-a3b-instruct",
        "gemma-4-31b-it",
        "qwen3-8b",
    ):
        spec = spec_of(EndpointSpec(name="a", model=model, source="container"), "eagle3")
        default = load_catalog().model(model).default_heads.get("eagle3")
        assert (spec.speculation.draft_head or default) == f"{model}-eagle3"


def test_a_mode_without_any_head_says_how_to_name_one() -> None:
    with pytest.raises(SpecError, match="no default draft head for gemma-4-31b-it") as caught:
        spec_of(EndpointSpec(name="a", model="gemma-4-31b-it", source="container"), "p-eagle")
    assert "speculation.draft_head" in str(caught.value.next_step)


def test_jumpstarts_own_head_needs_no_name() -> None:
    base = EndpointSpec(name="a", model="gpt-oss-20b", source="jumpstart", speculation={"mode": "none"})
    assert spec_of(base, "p-eagle").speculation.mode == "p-eagle"


def test_nothing_resizes_an_arm_or_turns_it_off_while_it_is_measured() -> None:
    base = tiny(
        hours="Mon-Fri 08:00-19:00 Europe/Berlin",
        autoscaling={"min_instances": 1, "max_instances": 3},
        lifecycle={"max_lifetime_hours": 3, "idle_minutes": 30},
    )
    arm = spec_of(base, "none")
    assert (arm.hours, arm.autoscaling, arm.lifecycle.idle) == (None, None, "turn-off")
    assert (arm.lifecycle.max_lifetime_hours, arm.lifecycle.idle_minutes) == (3, 30)


def test_names() -> None:
    assert name_of("fast", "none") == "cmp-fast-none"
    assert name_of("fast-p-eagle", "p-eagle", "3") == "cmp-fast-p-eagle-3"
    with pytest.raises(SpecError, match="63"):
        spec_of(tiny(name="x" * 60), "none")
