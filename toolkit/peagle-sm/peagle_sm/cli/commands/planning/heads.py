"""`peagle-sm heads`: check draft heads, or copy them to S3.

A head is in a folder, in S3, on the Hugging Face hub or in the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.aws.files import cache_dir
from peagle_sm.cli.arguments import open_session, write_fields, yes_option
from peagle_sm.cli.base import Command, Entry, LazyGroup, State, global_options
from peagle_sm.cli.console import confirmed, emit, need_terminal, note, termination_is_ctrl_c, to_json
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.errors import Declined, SpecError
from peagle_sm.core.heads.reading import SOURCE, usd_per_month
from peagle_sm.core.spec.modes import WITH_HEAD, Mode, facts_of, title_of

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.aws.storage.downloads import Hub
    from peagle_sm.core.heads.layout import HeadReport
    from peagle_sm.service.heads import Sources, Staged, StagingPlan


ENTRIES = (
    Entry("list", "commands.planning.catalog:list_", "List the draft heads in the catalogue."),
    Entry(
        "check",
        "commands.planning.heads:check",
        "Check a draft head for faults before an engine loads it.",
    ),
    Entry(
        "stage",
        "commands.planning.heads:stage",
        "Copy a draft head, or a model with its head, to S3.",
    ),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def heads() -> None:
    """List draft heads, check them, or copy them to S3.

    vLLM loads some faulty heads without an error: the answers are correct, but not faster.
    """


@click.command(cls=Command)
@click.argument("head")
@click.option(
    "--target",
    metavar="TARGET",
    help="Target model to check against; same forms as HEAD.  [default: the catalogue's]",
)
@click.option("--mode", type=click.Choice(WITH_HEAD), help="Mode to check for.  [default: the head's own]")
@global_options
@click.pass_obj
def check(state: State, head: str, target: str | None, mode: str | None) -> None:
    """Check a draft head for faults before an engine loads it.

    HEAD is a folder, s3://BUCKET/PREFIX/, OWNER/NAME or OWNER/NAME@COMMIT on the Hugging Face hub, or a head
    or model in the catalogue. The command reads only configs, tensor headers and the vocabulary map; in a
    local folder it also reads the weights and computes each file's sha256. Exit code 3 if the head must not
    be deployed. Of heads of modes other than eagle3 and p-eagle, the weights' layout is not checked.
    """
    from peagle_sm.core.heads.layout import refused
    from peagle_sm.service.heads import check_head

    sources = sources_for(state, lambda: open_session(state))
    report = check_head(head, target=target, mode=mode, sources=sources)
    emit(
        state,
        table=lambda: render_report(report),
        data=report.to_dict,
        names=[fault.check for fault in report.faults if fault.severity == "error"],
    )
    if not report.ok:
        raise refused(report.place, report.faults, shown=state.format == "table")


_EVERY_S = 5.0


@click.command(cls=Command)
@click.argument("what", required=False)
@click.option(
    "--to", "uri", metavar="S3_URI", required=True, help="Prefix used only for this: s3://BUCKET/PREFIX/."
)
@click.option(
    "--head", metavar="HEAD", help="Head to copy with the model WHAT.  [default: the catalogue's for WHAT]"
)
@click.option("--write", "spec_path", metavar="SPEC",
              type=click.Path(path_type=Path, dir_okay=False, exists=True),
              help="Write the S3 URIs into this spec.")  # fmt: skip
@click.option("--abort", is_flag=True, help="Only delete the incomplete uploads below --to.")
@click.option("--dry-run", is_flag=True, help="Show what would be copied; copy nothing.")
@yes_option
@global_options
@click.pass_obj
def stage(
    state: State,
    what: str | None,
    uri: str,
    head: str | None,
    spec_path: Path | None,
    abort: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Copy a draft head, or a model with its head, to S3.

    WHAT is a model in the catalogue, or only a head: a folder, OWNER/NAME or OWNER/NAME@COMMIT on the Hugging
    Face hub, or a head in the catalogue. With --head, WHAT is a model in any of these forms. A model and its
    head are copied under one prefix, the head in the folder p-eagle/. The
    command first checks the head. After the upload it verifies each file's checksum and writes manifest.json.
    If it was interrupted, run it again to continue. It never overwrites existing objects under the prefix.
    """
    from peagle_sm import __version__
    from peagle_sm.aws.storage.s3 import split_uri
    from peagle_sm.service.heads import plan_staging
    from peagle_sm.service.heads import stage as carry_out
    from peagle_sm.service.heads.staging import spec_fields

    split_uri(uri)  # raises for a bad URI before the command asks for --yes
    session = open_session(state)
    if abort:
        _abort(state, uri, session)
        return
    if what is None:
        raise SpecError(
            "WHAT is missing: the model or head to copy.",
            next_step="Run `peagle-sm heads list` to see the heads in the catalogue.",
        )
    if not dry_run:
        need_terminal(state, yes, f"peagle-sm heads stage {what} --to {uri} --dry-run{state.flags}")
    sources = sources_for(state, lambda: session)
    plan = plan_staging(what, uri, head=head, sources=sources)
    if dry_run:
        emit(
            state, table=lambda: render_staging(plan), data=lambda: plan_data(plan), names=sorted(plan.sizes)
        )
        return
    note(state, render_staging(plan) + "\n")
    if not confirmed(state, f"Copy {len(plan.sizes)} files to {plan.uri}?", yes):
        raise Declined("Nothing was changed: it was not confirmed.", next_step="Run it again and confirm.")
    with termination_is_ctrl_c():
        staged = carry_out(
            plan,
            sources=sources,
            cache=cache_dir(state.environ),
            version=__version__,
            progress=_follow(state),
        )
    fields = spec_fields(plan, staged)
    if spec_path is not None:
        write_fields(spec_path, fields)
        note(state, f"{spec_path}: written")
    emit(
        state,
        table=lambda: render_staged(staged, spec_lines(fields)),
        data=lambda: staged_data(staged, fields),
        names=[staged.uri],
    )


def _abort(state: State, uri: str, session: Any) -> None:
    from peagle_sm.service.heads import abort_staging

    gone = abort_staging(uri, session)
    emit(
        state,
        table=lambda: (
            "\n".join(f"aborted: {each.key}" for each in gone) or f"no incomplete upload below {uri}"
        ),
        data=lambda: [{"key": each.key, "upload_id": each.upload_id} for each in gone],
        names=[each.key for each in gone],
    )


def plan_data(plan: StagingPlan) -> dict[str, Any]:
    """Return the plan of a staging for --format json."""
    return {
        "uri": plan.uri,
        "files": plan.sizes,
        "bytes": plan.size,
        "bytes_to_send": plan.to_send,
        "usd_per_month": round(plan.usd_per_month, 4),
        "incomplete_uploads": [each.key for each in plan.incomplete],
        "parts": [
            {
                "what": part.kind,
                "from": part.place.name,
                "revision": part.place.folder.revision,
                "licence": part.licence,
                "folder": part.folder,
                "left_out": list(part.left_out),
            }
            for part in plan.parts
        ],
        "head": plan.head.to_dict(),
    }


def staged_data(staged: Staged, fields: dict[str, str]) -> dict[str, Any]:
    """Return the result of a staging for --format json."""
    import json

    return {
        "uri": staged.uri,
        "sent": staged.sent,
        "skipped": staged.skipped,
        "spec": fields,
        "manifest": json.loads(staged.manifest.to_json()),
    }


def _follow(state: State) -> Callable[[str, str, int, int], None]:
    """Return a callback that prints progress for each file, every few seconds."""

    printed_at: dict[tuple[str, str], float] = {}

    def follow(step: str, name: str, done: int, size: int) -> None:
        now, last = state.monotonic(), printed_at.get((step, name))
        if state.format == "quiet" or (last is not None and now - last < _EVERY_S and done < size):
            return
        printed_at[(step, name)] = now
        if state.format == "json":
            row = {"progress": {"step": step, "name": name, "bytes": done, "of": size}}
            click.echo(to_json(row, indent=None), err=True)
        elif step in ("fetch", "send"):
            click.echo(f"  {step} {name}: {size_text(done)} of {size_text(size)}", err=True)

    return follow


def sources_for(state: State, session: Callable[[], Session]) -> Sources:
    """Return the sources of heads: catalogue, S3, the hub (HF_ENDPOINT, HF_TOKEN)."""
    from peagle_sm.service.heads import Sources

    def hub() -> Hub:
        from peagle_sm.aws.storage.downloads import Hub

        return Hub(state.environ.get("HF_ENDPOINT") or None, state.environ.get("HF_TOKEN") or None)

    return Sources(session, hub, progress=lambda line: note(state, line))


_SHOWN_FILES = 12


def size_text(size: int) -> str:
    """Render a size: `13.7 GB`, `18.1 MB`, `812 bytes`; a GB is 10^9 bytes."""
    for unit, step in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= step:
            return f"{size / step:.1f} {unit}"
    return f"{size} bytes"


def render_report(report: HeadReport) -> str:
    """Render a head's facts, its files with checksums, and its faults."""
    lines = [report.place, "", render_fields(_facts(report), indent="  "), "", _files(report)]
    for fault in report.faults:
        lines.append(f"\n{fault.severity}: {fault.check}: {fault.message}")
        if fault.next_step:
            lines.append(f"  next: {fault.next_step}")
    return "\n".join([*lines, "", "This head may be deployed."] if report.ok else lines)


def _method(mode: Mode | None) -> str:
    if mode is None:
        return "unknown"
    passes = "one pass for all draft tokens" if facts_of(mode).one_pass else "one pass per token"
    return f"{title_of(mode)} ({passes})"


def _facts(report: HeadReport) -> list[tuple[str, str]]:
    def text(value: object) -> str:
        return "unknown" if value is None else str(value)

    read = "its config was read" if report.target_known else "its config was not read"
    rows = [
        ("format", f"{text(report.format)}, {text(report.architecture)}"),
        ("method", _method(report.method)),
        ("layers", text(report.layers)),
        ("hidden size", f"{text(report.hidden_size)}, of the target {text(report.target_hidden_size)}"),
        ("vocabulary", f"{text(report.draft_vocab_size)} of {text(report.vocab_size)}"),
        ("mask token", text(report.mask_token_id)),
        ("aux layers", ", ".join(map(str, report.aux_layer_ids)) or "unknown"),
        ("trained K", text(report.trained_k)),
        ("weights", f"{report.parameters:,} parameters, {text(report.dtype)}"),
        ("target", f"{text(report.target)} ({read})"),
        ("licence", text(report.licence)),
    ]
    if report.vllm is not None:
        rows.append(("vLLM", f"{report.vllm} or later ({report.vllm_reason})"))
    return rows if report.revision is None else [*rows, ("revision", report.revision)]


def _files(report: HeadReport) -> str:
    shown = report.files[:_SHOWN_FILES]
    rows = [(file.name, size_text(file.size), file.sha256 or "-") for file in shown]
    text = render_table(("file", "size", "sha256"), rows, right=("size",))
    more = len(report.files) - len(shown)
    return text + (f"\n... and {more} more" if more else "")


def render_staging(plan: StagingPlan) -> str:
    """Render the parts to copy, their target, what exists already, and the cost."""
    rows = []
    for part in plan.parts:
        commit = part.place.folder.revision
        rows.append(
            (
                part.kind,
                part.place.name,
                (commit or "-")[:12],
                part.licence or "unknown",
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
                f"skipped: {len(part.left_out)} files of the {part.kind} that engines do not read ({names})"
            )
        revision = part.place.snapshot.asked if part.place.snapshot else None
        if revision and revision != part.place.folder.revision:
            lines.append(
                f"{part.place.name}: {revision} is now commit {part.place.folder.revision}, which is recorded"
            )
    existing = sum(1 for name in plan.sizes if name in plan.there)
    if existing:
        lines.append(f"{existing} of {len(plan.sizes)} files exist already, by name and size")
    if plan.incomplete:
        lines.append(f"{len(plan.incomplete)} incomplete uploads are continued, if their parts match")
    lines.append(
        f"to upload: {size_text(plan.to_send)}; storage of all files: {plan.usd_per_month:.2f} USD a month "
        f"({SOURCE})"
    )
    return "\n".join(lines)


def render_staged(staged: Staged, lines: list[str]) -> str:
    """Render what is in S3 now, and the lines for the spec."""
    done = f"{staged.sent} files uploaded, {staged.skipped} existed already; every checksum matches"
    price = f"{size_text(staged.size)} at {staged.uri}, {usd_per_month(staged.size):.2f} USD a month"
    return "\n".join([done, price, "", *lines])


def spec_lines(fields: dict[str, str]) -> list[str]:
    """Render the fields as lines of a spec."""
    plain = [f"{name}: {value}" for name, value in fields.items() if "." not in name]
    inner = [f"  {name.split('.')[1]}: {value}" for name, value in fields.items() if "." in name]
    return [*plain, "speculation:", *inner] if inner else plain
