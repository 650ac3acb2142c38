"""Page of the engine matrix: each vLLM version, and since when it has a setting."""

from __future__ import annotations

from collections.abc import Mapping

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.checks.image import load_advisories
from peagle_sm.core.engines import Range, version_of

_INTRO = """\
# vLLM versions: model runners, settings, faults

`scripts/reference` writes this page from `core/data/engines.yaml`.
`scripts/engine-matrix VERSION` reads a new version from vLLM's source.

P-EAGLE needs vLLM's first model runner, V1: V2 has no parallel drafting. With P-EAGLE, EAGLE-3 and suffix
decoding the plan sets `VLLM_USE_V2_MODEL_RUNNER=0` where vLLM might choose V2;
[Which drafter](../how-to/which-drafter.md) has the runners of every mode. An image with a version that is not
listed gets a warning, and is treated like the nearest older one.
"""


def engines_page() -> str:
    """Return the page: the versions, the settings' ranges, the plugins."""
    matrix = load_catalog().engines
    lines = [
        _INTRO,
        "| vLLM | AWS image | none | EAGLE-3 | P-EAGLE | P-EAGLE on V2 | V1 is set for | faults |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for entry in matrix.versions:
        runners, version = entry.runners, version_of(entry.version)
        pinned = ", ".join(mode for mode in runners if entry.pins_v1(mode)) or "-"
        faults = ", ".join(row.id for row in load_advisories() if row.concerns(version)) or "-"
        cells = (
            entry.version,
            "yes" if entry.aws else "no",
            *(runners[m] for m in ("none", "eagle3", "p-eagle")),
        )
        lines.append(f"| {' | '.join((*cells, entry.p_eagle_on_v2, pinned, faults))} |")
    lines += ["", "`by-model`: V2 for some architectures. `sequential`: it drafts one token at a time."]
    for title, ranges in (
        ("Methods of speculation", matrix.methods),
        ("Fields of the speculative config", matrix.speculative),
        ("Arguments that the toolkit uses (SM_VLLM_...)", matrix.arguments),
        ("Variables", matrix.variables),
    ):
        lines += ["", f"## {title}", "", *_ranges(ranges)]
    lines += ["", "## This project's code inside the engine", "", "| plugin | since | runner | run with |"]
    lines.append("|---|---|---|---|")
    for name, plugin in matrix.plugins.items():
        tested = ", ".join(plugin.tested)
        lines.append(f"| {name} | {plugin.since or '-'} | {plugin.runner or 'any'} | {tested} |")
    return "\n".join([*lines, "", f"Source: {matrix.source}; {matrix.date}."]) + "\n"


def _ranges(ranges: Mapping[str, Range]) -> list[str]:
    rows = [f"| {name} | {span.since or '-'} | {span.until or '-'} |" for name, span in ranges.items()]
    return ["| name | since | until |", "|---|---|---|", *rows]
