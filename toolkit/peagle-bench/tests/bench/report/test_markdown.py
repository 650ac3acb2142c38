from __future__ import annotations

from dataclasses import replace

from peagle_bench.report.markdown import markdown
from tests.bench.report import making


def test_a_small_comparison_has_its_warning_headline_and_rows() -> None:
    created = making.stand_in()
    rows = tuple(
        replace(row, faster="a|b" if n == 2 else row.faster) for n, row in enumerate(created.comparisons)
    )
    lines = markdown([replace(created, comparisons=rows, points=())]).splitlines()
    assert "> [!WARNING]" in lines
    assert any("**0.98x** [0.94, 1.03] at c=1" in line for line in lines)
    first, _, third = (line for line in lines if "| c=1 |" in line)
    assert first.startswith("| P-EAGLE | EAGLE-3 | c=1 | 0.98x | [0.94, 1.03] | 96 prompts | 1 | no signif")
    assert third.startswith(
        "| a\\|b | no speculation | c=1 | 1.85x | [1.70, 1.93]".replace("1.70, 1.93", "1.76, 1.95")
    )


def test_long_tables_are_folded() -> None:
    text = markdown([making.compared(), making.tuned(), making.verified()], title="Nightly")
    assert text.startswith("### Nightly\n\n> [!WARNING]\n> **Synthetic data.**")
    assert "<details><summary>Speed-up (23 rows)</summary>\n\n| arm |" in text
    assert "**Best K**" in text
    assert "**9 of 10 checks passed; undecided: parameters (gpt-oss-20b-p-eagle)**" in text
