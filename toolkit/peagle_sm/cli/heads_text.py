"""What `heads check` and `heads stage` show: a head's facts and faults, a staging's plan and outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peagle_sm.cli.table import render_fields, render_table
from peagle_sm.core.heads.storage import SOURCE, usd_per_month

if TYPE_CHECKING:
    from peagle_sm.core.heads import HeadReport
    from peagle_sm.service.heads import Staged, StagingPlan

_METHODS = {"p-eagle": "P-EAGLE (one pass)", "eagle3": "EAGLE-3 (one token after the other)"}
_SHOWN_FILES = 12


def size_text(size: int) -> str:
    """`13.7 GB`, `18.1 MB`, `812 bytes`; a GB is 10^9 bytes."""
    for unit, step in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= step:
            return f"{size / step:.1f} {unit}"
    return f"{size} bytes"


def render_report(report: HeadReport) -> str:
    """A head's facts, its files with their sums, and what is wrong with it."""
    lines = [report.place, "", render_fields(_facts(report), indent="  "), "", _files(report)]
    for fault in report.faults:
        lines.append(f"\n{fault.severity}: {fault.code}: {fault.message}")
        if fault.next_step:
            lines.append(f"  next: {fault.next_step}")
    return "\n".join([*lines, "", "This head may be deployed."] if report.ok else lines)


def _facts(report: HeadReport) -> list[tuple[str, str]]:
    def told(value: object) -> str:
        return "not known" if value is None else str(value)

    held = "its config was read" if report.target_known else "its config was not read"
    rows = [
        ("format", f"{told(report.format)}, {told(report.architecture)}"),
        ("method", _METHODS.get(report.method or "", "not known")),
        ("layers", told(report.layers)),
        ("hidden size", f"{told(report.hidden_size)}, reads states of {told(report.target_hidden_size)}"),
        ("vocabulary", f"{told(report.draft_vocab_size)} of {told(report.vocab_size)}"),
        ("mask token", told(report.mask_token_id)),
        ("reads layers", ", ".join(map(str, report.aux_layer_ids)) or "not said"),
        ("trained K", told(report.trained_k)),
        ("weights", f"{report.parameters:,} parameters, {told(report.dtype)}"),
        ("target", f"{told(report.target)} ({held})"),
        ("licence", told(report.licence)),
    ]
    return rows if report.revision is None else [*rows, ("revision", report.revision)]


def _files(report: HeadReport) -> str:
    shown = report.files[:_SHOWN_FILES]
    rows = [(file.name, size_text(file.size), file.sha256 or "-") for file in shown]
    text = render_table(("file", "size", "sha256"), rows, right=("size",))
    more = len(report.files) - len(shown)
    return text + (f"\n... and {more} more" if more else "")


def render_staging(plan: StagingPlan) -> str:
    """What goes where, what it costs, and what is there already."""
    rows = []
    for part in plan.parts:
        commit = part.place.folder.revision
        rows.append(
            (
                part.kind,
                part.place.name,
                (commit or "-")[:12],
                part.licence or "not known",
                str(len(part.names)),
                size_text(part.size),
                plan.uri + part.folder,
            )
        )
    headers = ("what", "from", "revision", "licence", "files", "size", "to")
    lines = [render_table(headers, rows, right=("files", "size"))]
    for part in plan.parts:
        if part.left_out:
            names = ", ".join(part.left_out[:3]) + (" ..." if len(part.left_out) > 3 else "")
            lines.append(
                f"left out of the {part.kind}: {len(part.left_out)} files an engine does not read ({names})"
            )
        asked = part.place.snapshot.asked if part.place.snapshot else None
        if asked and asked != part.place.folder.revision:
            lines.append(
                f"{part.place.name}: {asked} is now at {part.place.folder.revision}, which is recorded"
            )
    there = sum(1 for name in plan.sizes if name in plan.there)
    if there:
        lines.append(f"{there} of {len(plan.sizes)} files are there already, by name and size")
    if plan.incomplete:
        lines.append(f"{len(plan.incomplete)} uploads were begun before: what fits is gone on with")
    lines.append(
        f"to send: {size_text(plan.to_send)}; keeping all of it: {plan.usd_per_month:.2f} USD a month "
        f"({SOURCE})"
    )
    return "\n".join(lines)


def render_staged(staged: Staged, lines: list[str]) -> str:
    """What is in S3 now, and the spec's lines for it."""
    done = f"{staged.sent} files sent, {staged.skipped} were there; every checksum is as it should be"
    price = f"{size_text(staged.size)} at {staged.uri}, {usd_per_month(staged.size):.2f} USD a month"
    return "\n".join([done, price, "", *lines])


def spec_lines(fields: dict[str, str]) -> list[str]:
    """The fields as they stand in a spec."""
    plain = [f"{name}: {value}" for name, value in fields.items() if "." not in name]
    inner = [f"  {name.split('.')[1]}: {value}" for name, value in fields.items() if "." in name]
    return [*plain, "speculation:", *inner] if inner else plain
