from __future__ import annotations

from dataclasses import replace

from peagle_bench.report.markdown import markdown
from tests.bench.report import making


def test_the_whole_text_of_a_small_comparison() -> None:
    created = making.stand_in()
    rows = tuple(
        replace(row, faster="a|b" if n == 2 else row.faster) for n, row in enumerate(created.comparisons)
    )
    measured = replace(
        created.header, provenance={"versions": {"peagle-sm": "0.1.0"}, "date": "2026-11-20T13:52"}
    )
    text = markdown([replace(created, header=measured, comparisons=rows, points=())])
    assert text == (
        "### P-EAGLE report\n\n"
        "> [!WARNING]\n"
        "> **Small stand-in weights.** These figures compare the modes on the machine that ran them. They do"
        " not apply to a large model on a GPU.\n\n"
        "No significant difference between P-EAGLE and EAGLE-3: **0.98x** [0.94, 1.03] at c=1, "
        "in this deployment\n\n"
        "_small stand-in weights; this deployment only; 95% interval over 96 prompts; HumanEval_\n\n"
        "**Speed-up**\n\n"
        "| arm | over | load | speed-up | 95% interval | units | deployments | result |\n"
        "| --- | --- | --- | ---: | --- | --- | ---: | --- |\n"
        "| P-EAGLE | EAGLE-3 | c=1 | 0.98x | [0.94, 1.03] | 96 prompts | 1 | no significant difference"
        " (+-4.7%; +-2% needs about 512 prompts) |\n"
        "| P-EAGLE | no speculation | c=1 | 1.81x | [1.70, 1.93] | 96 prompts | 1 | P-EAGLE is faster in"
        " this deployment |\n"
        "| a\\|b | no speculation | c=1 | 1.85x | [1.76, 1.95] | 96 prompts | 1 | a\\|b is faster in"
        " this deployment |\n\n"
        "<sub>peagle-sm 0.1.0 · run 20261120T135200Z-5f0c (`quickstart`) · 2026-11-20</sub>\n"
    )


def test_long_tables_are_folded() -> None:
    text = markdown([making.compared(), making.tuned(), making.verified()], title="Nightly")
    assert text.startswith("### Nightly\n\n> [!WARNING]\n> **Synthetic data.**")
    assert "<details><summary>Speed-up (23 rows)</summary>\n\n| arm |" in text
    assert "**Best K**" in text
    assert "**9 of 10 checks passed; undecided: seeds (gpt-oss-20b-p-eagle)**" in text
