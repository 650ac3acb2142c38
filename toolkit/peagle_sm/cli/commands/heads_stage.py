"""`peagle-sm heads stage`: a head, or a model with its head, into S3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.confirm import confirmed, need_terminal
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note, to_json
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.service.heads import Sources, Staged, StagingPlan

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
    from peagle_sm.aws.storage.objects import split_uri
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.heads_sources import sources_for
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
    from peagle_sm.aws.session.folders import cache_dir
    from peagle_sm.cli.heads_text import render_staged, render_staging, spec_lines
    from peagle_sm.cli.signals import termination_is_ctrl_c
    from peagle_sm.service.heads import plan_staging
    from peagle_sm.service.heads import stage as carry_out
    from peagle_sm.service.heads.naming import spec_fields

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
    from peagle_sm.cli.heads_text import size_text

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
    from peagle_sm.core.spec.fields import edit_spec

    write_file(path, edit_spec(path.read_text(encoding="utf-8"), fields, str(path)))
