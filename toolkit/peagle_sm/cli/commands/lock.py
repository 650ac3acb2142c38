"""`peagle-sm lock`: write down what JumpStart resolves a spec to, show what changed, or check it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note
from peagle_sm.cli.spec_file import spec_argument
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.service.planning.locking import Locking


@click.command(cls=Command)
@spec_argument
@click.option("--upgrade", is_flag=True, help="Move to JumpStart's newest version, and show what changes.")
@click.option("--check", is_flag=True, help="Write nothing; exit code 14 if the lock would change.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and write nothing.")
@click.option("--config", metavar="NAME", help="One of JumpStart's configs, instead of the best with a head.")
@global_options
@click.pass_obj
def lock(
    state: State, spec_path: Path, upgrade: bool, check: bool, dry_run: bool, config: str | None
) -> None:
    """Write down what JumpStart resolves a spec to; check or upgrade it.

    SPEC is a YAML file (default: peagle.yaml); the lock lies beside it: peagle.lock, and with --local
    peagle.local.lock. It pins version, image, files, environment and licence with the hash of AWS's
    document. plan, deploy and cdk synth read it and look nothing up.

    The version that is locked stays until --upgrade.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.lock_text import lock_data, render_lock
    from peagle_sm.core.errors import SpecError
    from peagle_sm.core.spec.endpoint_spec import load_spec
    from peagle_sm.service.planning.locking import make_lock, resolves_by_jumpstart, write_lock

    if str(spec_path) == "-":
        raise SpecError(
            "SPEC: found -; allowed: a file, since the lock is written beside it",
            next_step="Save the spec as peagle.yaml.",
        )
    spec = load_spec(spec_path, locks=False)
    if not resolves_by_jumpstart(spec):
        nothing = f"{spec.name}: source container names its own image and files: there is nothing to lock"
        emit(state, table=lambda: nothing, data=lambda: {"path": None, "written": False}, names=[])
        return
    session = open_session(state, spec.placement.region)
    made = make_lock(spec, spec_path, session, upgrade=upgrade, config=config)
    if made.unreadable:
        note(state, f"replaced: {made.unreadable}")
    written = made.stale and not check and not dry_run
    if written:
        write_lock(made)
    emit(
        state,
        table=lambda: render_lock(made, written=written),
        data=lambda: lock_data(made, written=written),
        names=[str(made.path)],
    )
    if check:
        _refuse_if_stale(state, made, str(spec_path))


def _refuse_if_stale(state: State, made: Locking, spec_path: str) -> None:
    if not made.stale:
        return
    from peagle_sm.core.errors import LockStale

    details: dict[str, Any] = {"path": str(made.path), "changes": [one.field for one in made.changes]}
    what = "is not there" if made.before is None else f"is stale: {len(made.changes)} fields would change"
    raise LockStale(
        f"{made.path} {what}",
        next_step=f"Run `peagle-sm lock{state.flags} {spec_path}`, read what changes, and commit it.",
        details=details,
    )
