"""Names that AWS takes; the toolkit and the guard's Lambdas share the code of the schedules' names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.plan.tags_and_schedules import hard_schedule_name, schedule_name
from peagle_sm.core.resources.naming import names_for
from peagle_sm.core.spec.endpoint_spec import ENDPOINT_NAME

_NAMES = st.from_regex(ENDPOINT_NAME, fullmatch=True)


@given(_NAMES, st.text("0123456789abcdef", min_size=16, max_size=16))
def test_every_name_made_is_one_that_aws_takes(name: str, digest: str) -> None:
    names = names_for(name, digest)
    assert names.endpoint == name
    assert ENDPOINT_NAME.fullmatch(names.config)
    assert len(names.config) <= 63
    assert max(len(names.schedule), len(hard_schedule_name(name)), len(hard_schedule_name(name, 1))) <= 64
    assert names.schedule == schedule_name(name)
    assert digest[:8] in names.config


@given(_NAMES, _NAMES)
def test_different_endpoints_have_different_guards(one: str, other: str) -> None:
    if one != other:
        assert schedule_name(one) != schedule_name(other)
