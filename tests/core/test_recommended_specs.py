"""The recommended specs have no error; what is held against their engine is a warning with a last day."""

from __future__ import annotations

from pathlib import Path

import pytest

from peagle_sm.core.plan import Context, make_plan
from peagle_sm.core.spec import parse_spec
from tests.core.support import LOCAL, NOW

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.yaml"))
ON_AWS = Context("123456789012", "us-east-1", NOW)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_recommended_spec_has_no_error(path: Path) -> None:
    spec = parse_spec(path.read_text(), path.name)
    plan = make_plan(spec, LOCAL if spec.model == "tiny-code" else ON_AWS)
    assert [f"{each.check}: {each.message}" for each in plan.findings if each.severity == "error"] == []
    assert not plan.refused
    held = [each for each in plan.findings if each.check in ("advisories", "known-faults")]
    assert held, "every engine that AWS publishes is below the floor"
    for each in held:
        assert each.severity == "warning"
        assert each.expires is not None
        assert "believed until" in each.message
        assert each.url
