"""`peagle-sm heads`: check draft heads, and stage them to S3 with or without their model.

A head is in a folder, in S3, on the Hugging Face hub or in the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.base import Command, Entry, LazyGroup, State, global_options
from peagle_sm.cli.console import confirmed, emit, need_terminal, note, to_json
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.heads.reading import SOURCE, usd_per_month

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.aws.storage.downloads import Hub
    from peagle_sm.core.heads.layout import HeadReport
    from peagle_sm.service.heads import Sources, Staged, StagingPlan


ENTRIES = (
    Entry("list", "peagle_sm.cli.commands.planning.catalog:list_", "List the draft heads of the catalogue."),
    Entry(
        "check",
        "peagle_sm.cli.commands.planning.heads:check",
        "Say all that is wrong with a head, before an engine loads it.",
    ),
    Entry(
        "stage",
        "peagle_sm.cli.commands.planning.heads:stage",
        "Put a head, or a model with its head, into S3.",
    ),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def heads() -> None:
    """List, check and stage draft heads.

    vLLM loads some broken heads without a word: the answers stay right, and nothing is faster.
    """


@click.command(cls=Command)
@click.argument("head")
@click.option(
    "--target", metavar="TARGET", help="Target to hold it against: as HEAD.  [default: the catalogue's]"
)
@click.option(
    "--mode", type=click.Choice(("eagle3", "p-eagle")), help="How it is to draft.  [default: as it is]"
)
@click.option(
    "--k", type=click.IntRange(1), metavar="K", help="num_speculative_tokens that it is to propose."
)
@click.option("--revision", metavar="COMMIT", help="Commit, branch or tag on the hub.  [default: main]")
@global_options
@click.pass_obj
def check(
    state: State, head: str, target: str | None, mode: str | None, k: int | None, revision: str | None
) -> None:
    """Say all that is wrong with a head, before an engine loads it.

    HEAD is a folder, s3://BUCKET/PREFIX/, OWNER/NAME on the Hugging Face hub, or a head or model of the
    catalogue. Only configs, headers and the vocabulary's map are read; of a folder, every file's sha256 too.
    Ends with exit code 3 when the head must not be deployed.
    """
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.core.heads.layout import refused
    from peagle_sm.service.heads import check_head

    sources = sources_for(state, lambda: open_session(state))
    report = check_head(
        head, target=target, mode=mode, num_speculative_tokens=k, revision=revision, sources=sources
    )
    emit(
        state,
        table=lambda: render_report(report),
        data=report.to_dict,
        names=[fault.code for fault in report.faults if fault.severity == "error"],
    )
    if not report.ok:
        raise refused(report.place, report.faults, shown=state.format == "table")


_EVERY_S = 5.0


@click.command(cls=Command)
@click.argument("what", required=False)
@click.option("--to", "uri", metavar="S3_URI", required=True, help="Prefix of its own: s3://BUCKET/PREFIX/.")
@click.option("--head", metavar="HEAD", help="Head to put below the target.  [default: the catalogue's]")
@click.option("--target", metavar="TARGET", help="Target to put the head below: as WHAT.")
@click.option("--mode", type=click.Choice(("eagle3", "p-eagle")), help="How the head is to draft.")
@click.option("--revision", metavar="COMMIT", help="Commit, branch or tag of the head.  [default: main]")
@click.option("--target-revision", metavar="COMMIT", help="The same of the target.  [default: main]")
@click.option("--write", "spec_path", metavar="SPEC",
              type=click.Path(path_type=Path, dir_okay=False, exists=True),
              help="Write the addresses into this spec.")  # fmt: skip
@click.option(
    "--abort", is_flag=True, help="Remove what an interrupted staging left below --to, and do no more."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and fetch and send nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@global_options
@click.pass_obj
def stage(
    state: State, /, what: str | None, uri: str, abort: bool, dry_run: bool, yes: bool, **given: Any
) -> None:
    """Put a head, or a model with its head, into S3.

    WHAT is a model of the catalogue (target and head go under one prefix, the head as p-eagle/), or a head
    alone: a folder, OWNER/NAME on the Hugging Face hub, a head of the catalogue. The head is checked first,
    every file's checksum afterwards; manifest.json comes last. Run again, it goes on where it ended, and
    sends nothing twice. What the prefix holds already is never written over.
    """
    from peagle_sm.aws.storage.s3 import split_uri
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.core.errors import SpecError

    split_uri(uri)  # an address that is none is said before anybody is asked for --yes
    session = open_session(state)
    if abort:
        _abort(state, uri, session)
        return
    if what is None:
        raise SpecError(
            "WHAT is missing: the model or head to stage.",
            next_step="`peagle-sm heads list` shows the catalogue's.",
        )
    if not dry_run:
        need_terminal(state, yes, f"peagle-sm heads stage {what} --to {uri} --dry-run{state.flags}")
    _stage(state, what, uri, sources_for(state, lambda: session), dry_run, yes, given)


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


def _stage(
    state: State, what: str, uri: str, sources: Sources, dry_run: bool, yes: bool, given: dict[str, Any]
) -> None:
    from peagle_sm import __version__
    from peagle_sm.aws.storage.downloads import cache_dir
    from peagle_sm.cli.console import termination_is_ctrl_c
    from peagle_sm.service.heads import plan_staging
    from peagle_sm.service.heads import stage as carry_out
    from peagle_sm.service.heads.staging import spec_fields

    spec_path = given.pop("spec_path")
    plan = plan_staging(what, uri, sources=sources, **given)
    if dry_run:
        emit(
            state, table=lambda: render_staging(plan), data=lambda: plan_data(plan), names=sorted(plan.sizes)
        )
        return
    note(state, render_staging(plan) + "\n")
    if not confirmed(state, f"Put {len(plan.sizes)} files below {plan.uri}?", yes):
        from peagle_sm.core.errors import Declined

        raise Declined("Nothing was changed: it was not confirmed.", next_step="Run it again and confirm.")
    with termination_is_ctrl_c():
        staged = carry_out(
            plan, sources=sources, cache=cache_dir(state.environ), version=__version__, told=_follow(state)
        )
    fields = spec_fields(plan, staged)
    if spec_path is not None:
        _write(spec_path, fields)
        note(state, f"{spec_path}: written")
    emit(
        state,
        table=lambda: render_staged(staged, spec_lines(fields)),
        data=lambda: staged_data(staged, fields),
        names=[staged.uri],
    )


def plan_data(plan: StagingPlan) -> dict[str, Any]:
    """A staging's plan as plain data."""
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
    """What was staged as plain data."""
    import json

    return {
        "uri": staged.uri,
        "sent": staged.sent,
        "skipped": staged.skipped,
        "spec": fields,
        "manifest": json.loads(staged.manifest.to_json()),
    }


def _follow(state: State) -> Callable[[str, str, int, int], None]:
    """Progress on stderr: a line when something begins, and every few seconds while it goes on."""

    said: dict[tuple[str, str], float] = {}

    def told(step: str, name: str, done: int, size: int) -> None:
        now, last = state.monotonic(), said.get((step, name))
        if state.format == "quiet" or (last is not None and now - last < _EVERY_S and done < size):
            return
        said[(step, name)] = now
        if state.format == "json":
            row = {"progress": {"step": step, "name": name, "bytes": done, "of": size}}
            click.echo(to_json(row, indent=None), err=True)
        elif step in ("fetch", "send"):
            click.echo(f"  {step} {name}: {size_text(done)} of {size_text(size)}", err=True)

    return told


def _write(path: Path, fields: dict[str, str]) -> None:
    from peagle_sm.core.files import write_file
    from peagle_sm.core.spec.editing import edit_spec

    write_file(path, edit_spec(path.read_text(encoding="utf-8"), fields, str(path)))


def sources_for(state: State, session: Callable[[], Session]) -> Sources:
    """The catalogue, S3 by the global options, and the hub by HF_ENDPOINT and HF_TOKEN."""
    from peagle_sm.service.heads import Sources

    def hub() -> Hub:
        from peagle_sm.aws.storage.downloads import Hub

        return Hub(state.environ.get("HF_ENDPOINT") or None, state.environ.get("HF_TOKEN") or None)

    return Sources(session, hub)


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
