"""The published tables: complete, with sources, and within what the catalogue can deploy."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from peagle_bench.compare.published import specs_for
from peagle_bench.published import FigureGroup, PublishedTable, load_published
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.resolve import Context
from peagle_sm.core.planning import make_plan
from tests.core.support import ROLE, SCHEDULER_ROLE

PUBLISHED, CATALOG = load_published(), load_catalog()
TABLES = list(PUBLISHED.tables.items())


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_every_figure_has_a_source_a_date_and_how_it_was_read(name: str, table: PublishedTable) -> None:
    for source in PUBLISHED.sources_of(table).values():
        assert source.title
        assert source.url.startswith("https://")
        assert datetime.fromisoformat(source.date) < datetime(2026, 12, 31)
        assert "read" in source.checked or "notes" in source.checked
    rows = list(table.rows())
    assert rows
    for figure in rows:
        assert figure.mode in table.k
        assert figure.over is None or figure.over in table.k
        assert figure.concurrency is None or figure.concurrency in table.concurrency


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_every_set_up_is_a_plan_that_nothing_refuses(name: str, table: PublishedTable) -> None:
    (specs,) = specs_for(
        name,
        table,
        table.modes,
        {mode: k for mode, k in table.k.items() if k is not None},
        CATALOG,
        artifacts="s3://bucket/published/",
        minutes=60,
    )
    context = Context(
        "123456789012",
        "us-east-1",
        datetime(2026, 11, 24, tzinfo=UTC),
        role_arn=ROLE,
        scheduler_role_arn=SCHEDULER_ROLE,
    )
    for mode, spec in specs.items():
        plan = make_plan(spec, context)
        assert [each.message for each in plan.findings if each.severity == "error"] == []
        assert plan.requests
        assert plan.usd_per_hour is not None
        assert spec.speculation.num_speculative_tokens == table.k[mode]
        assert (spec.head_uri is None) == (mode == "none")


def test_the_figures_of_a_table() -> None:
    rows = list(PUBLISHED.table("gpt-oss-20b-mt-bench").rows())
    assert [(row.label, row.concurrency, row.text) for row in rows[:2] + rows[-1:]] == [
        ("p-eagle over eagle3", 1, "1.55"),
        ("p-eagle over eagle3", 2, "1.29"),
        ("AL eagle3, K=7", None, "3.27"),
    ]
    assert rows[0].k == {"p-eagle": 7, "eagle3": 3}
    assert rows[-1].k == {"eagle3": 7}
    speed = next(PUBLISHED.table("qwen3-coder-humaneval").rows())
    assert (speed.label, speed.text, speed.rounding) == ("tokens/s p-eagle", "1,167", 0.5)


def test_an_unknown_name_is_told_with_the_closest_one() -> None:
    with pytest.raises(SpecError, match="Did you mean 'gpt-oss-20b-mt-bench'"):
        PUBLISHED.table("gpt-oss-20b-mtbench")


@pytest.mark.parametrize(
    "fields",
    [
        {"value": 1.0},
        {"otps": "none", "acceptance": "p-eagle", "value": 1.0},
        {"otps": "none"},
        {"otps": "none", "value": 1.0, "values": {1: 1.0}},
    ],
)
def test_a_group_of_two_kinds_or_without_values_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="one kind of figure"):
        FigureGroup.model_validate(fields)


def test_a_head_that_is_not_in_the_catalogue_is_replaced_by_the_models_own() -> None:
    table = PUBLISHED.table("gpt-oss-120b-mt-bench")
    assert table.heads["p-eagle"] == "AWS's head with 2 layers, not published"
    assert table.used_heads(CATALOG) == {"eagle3": "gpt-oss-120b-eagle3", "p-eagle": "gpt-oss-120b-p-eagle"}
