"""`peagle-sm learn run`: all steps of learn.yaml, one after the other; after a stop it continues."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from peagle_learn.commands import learn_spec_argument
from peagle_learn.commands.data import open_work, wrapped
from peagle_learn.commands.prove import endpoint_spec_option, proof_data, render_proof
from peagle_sm.cli.arguments import follower, open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.guard import with_guard
from peagle_sm.cli.console import asking, emit, need_terminal, note, termination_is_ctrl_c
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.words import usd

if TYPE_CHECKING:
    from peagle_learn.core.proof import Proof
    from peagle_learn.core.spec import LearnSpec
    from peagle_learn.core.steps import RunState
    from peagle_learn.run import RunOffer
    from peagle_sm.aws.session.session import Session


@click.command(cls=Command)
@learn_spec_argument
@endpoint_spec_option
@click.option("--until", type=click.Choice(("data", "train", "prove", "promote")),
              help="Last step.  [default: promote]")  # fmt: skip
@click.option("--unguarded", is_flag=True, help="Run without an installed guard.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@global_options
@click.pass_obj
def run(
    state: State, spec_path: Path, endpoint_path: Path, until: str | None, unguarded: bool, yes: bool
) -> None:
    """Make data, train, prove and promote; after a stop, continue.

    Before it starts, the command shows what each step costs and when a head would have paid for itself, and
    asks once. Finished steps are not repeated. With other prompts, or in another account, region or local
    server, all steps start again. A head that is not offered is not promoted (exit code 9). The training job
    continues if this command is stopped, up to its own limits. Run the command again to follow it.
    """
    from peagle_learn.run import run as go
    from peagle_learn.steps import RunSteps
    from peagle_learn.train import load_learn_spec
    from peagle_sm.service.inventory.guard_state import require_guard
    from peagle_sm.service.spec_to_plan import load_spec

    spec, served = load_learn_spec(spec_path), load_spec(endpoint_path, locks=False)
    need_terminal(state, yes, f"peagle-sm learn data {quote(str(spec_path))} --dry-run{state.flags}")
    session = open_session(state, served.placement.region)
    work = open_work(spec_path, spec)
    with termination_is_ctrl_c(), follower(state) as follow:
        if not unguarded:
            trains = until != "data"
            with_guard(state, session, follow, yes, lambda: require_guard(session, training=trains))
        run_steps = RunSteps(
            spec, endpoint_path, spec_path.absolute().parent, session, work, follow, unguarded
        )
        ask = asking(state, yes, "run", render_run_offer, lambda _: f"Run {spec.name}?", before=follow.pause)
        run_state = go(
            spec,
            run_steps.steps(),
            session,
            work,
            until=until,  # type: ignore[arg-type]  # click has checked it
            usd_per_hour=run_steps.usd_per_hour(),
            confirm=ask,
            progress=follow,
        )
    proof = proof_of(state, spec, session, run_state) if until == "prove" else None
    emit(
        state,
        table=lambda: "\n\n".join([render_run(run_state), *([] if proof is None else [render_proof(proof)])]),
        data=lambda: run_data(run_state, proof),
        names=list(run_state.steps),
    )


def proof_of(state: State, spec: LearnSpec, session: Session, run_state: RunState) -> Proof | None:
    """Return the proof with which a run ended; None, with a note, if it cannot be read."""
    from peagle_learn.prove import stored_proof

    try:
        return stored_proof(spec, session, str(run_state.steps["prove"].result["head"]))
    except PeagleError as error:
        note(state, f"the proof cannot be shown: {error.message}")
        return None


def render_run_offer(offer: RunOffer) -> str:
    """Render each step's price, the sum, and when the head would have paid for itself."""
    rows = [
        (
            each.step,
            each.what,
            "" if each.is_done else usd(each.usd),
            "" if each.is_done else usd(each.most_usd),
        )
        for each in offer.costs
    ]
    table = render_table(("step", "what", "about", "at most"), rows)
    unknown = [f"{each.step}: {each.unknown}" for each in offer.costs if each.unknown]
    # A command stays in one line, so that it can be copied.
    others = [
        f"{wrapped([finding.message])}\n  {finding.next_step}".rstrip()
        for each in offer.costs
        for finding in each.findings
    ]
    notes = [f"{each.step}: {note}" for each in offer.costs for note in each.notes]
    fields = [
        ("cost", f"about {usd(offer.usd)}, at most {usd(offer.most_usd)}"),
        ("not known", wrapped(unknown)),
        ("other jobs", "\n".join(others)),
        ("endpoint", usd(offer.usd_per_hour, "hour")),
        ("paid back", wrapped([_paid_back(offer)])),
        ("note", wrapped(notes)),
    ]
    return f"{table}\n\n{render_fields([(name, value) for name, value in fields if value])}"


def _paid_back(offer: RunOffer) -> str:
    """Say after how many days of full use each speed-up has saved the cost."""
    if offer.usd is None or offer.usd_per_hour is None:
        return f"unknown, as the {'cost' if offer.usd is None else 'price of the endpoint'} is"
    if offer.usd == 0:
        return "at once: nothing is billed"
    days = ", ".join(
        f"{each.ratio:g} times as fast: " + ("never" if each.days is None else f"{each.days:,.1f} days")
        for each in offer.pays_back
    )
    return f"{days} (in full use, if a faster endpoint means fewer hours)"


def render_run(run_state: RunState) -> str:
    """Render the finished steps, and what each gives to the next one."""
    rows = [(name, each.at[:16].replace("T", " "), usd(each.usd)) for name, each in run_state.steps.items()]
    results = [
        (f"{name}.{key}", _short(str(value)))
        for name, each in run_state.steps.items()
        for key, value in each.result.items()
        if isinstance(value, str | int)
    ]
    return f"{render_table(('step', 'done', 'cost'), rows)}\n\n{render_fields(results)}"


def _short(value: str) -> str:
    """Shorten hashes; an address stays whole, so that it can be copied."""
    return value[:16] if len(value) == 64 and value.isalnum() else value


def run_data(run_state: RunState, proof: Proof | None) -> dict[str, object]:
    """Return the state for --format json, and the proof of a run that ended with it."""
    from dataclasses import asdict

    return asdict(run_state) | ({} if proof is None else {"proof": proof_data(proof)})
