"""`peagle-sm learn data`: prompts, their split, and the target's own answers, in the spec's bucket."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from peagle_learn.commands import learn_spec_argument
from peagle_sm.cli.arguments import follower, open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import asking, emit, need_terminal, note, termination_is_ctrl_c
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.errors import Declined
from peagle_sm.core.words import elapsed, usd

if TYPE_CHECKING:
    from peagle_learn.core.spec import LearnSpec
    from peagle_learn.data import DataOffer, DataResult
    from peagle_learn.stored_data import StoredData


def open_work(path: Path, spec: LearnSpec, *, dry_run: bool = False) -> Path:
    """Return the folder beside learn.yaml that keeps answers and state, alone in it until the command ends.

    A dry run gets a copy that goes with the command: it changes nothing, and waits for no other command.

    Raises:
        PlanRefused: another process works in it.
    """
    from peagle_learn.work_folder import only_one
    from peagle_sm.traffic.reading import WORK_FOLDER

    folder = path.absolute().parent / WORK_FOLDER / spec.name
    context = click.get_current_context()
    if not dry_run:
        context.with_resource(only_one(folder, context.command_path))
        return folder
    context.with_resource(termination_is_ctrl_c())  # so that the copy is deleted then, too
    copy = Path(context.with_resource(TemporaryDirectory(prefix="peagle-learn-")))
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.is_file():  # answers and marks; what is in folders is fetched or made again
            with suppress(FileNotFoundError):  # a file that another command had for a moment
                shutil.copyfile(file, copy / file.name)
    return copy


@click.command(cls=Command)
@learn_spec_argument
@click.option("--dry-run", is_flag=True, help="Show the prompts and the price; send and store nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@global_options
@click.pass_obj
def data(state: State, spec_path: Path, dry_run: bool, yes: bool) -> None:
    """Make training data: your prompts with the target's own answers.

    SPEC is a learn.yaml. The command reads the prompts, removes secrets and repeats, and splits them by
    conversation, so that no held-out prompt has a near-duplicate in the training data. It shows what it would
    send, and asks. Then the endpoint answers, and the token ids go to the spec's bucket with a manifest. If
    the command was stopped, run it again: no answer is requested twice. Sampling ends at data.budget_usd,
    and five minutes before the endpoint's lifetime does.
    """
    from peagle_learn.data import make_data, plan_data
    from peagle_learn.train import load_learn_spec

    spec = load_learn_spec(spec_path)
    need_terminal(
        state, yes or dry_run, f"peagle-sm learn data {quote(str(spec_path))} --dry-run{state.flags}"
    )
    session = open_session(state)
    work = open_work(spec_path, spec, dry_run=dry_run)
    base = spec_path.absolute().parent
    plan = plan_data(spec, session, work, base=base)
    if dry_run:
        emit(state, table=lambda: render_data_offer(plan.offer), data=plan.offer.to_dict, names=[spec.name])
        return
    with termination_is_ctrl_c(), follower(state) as follow:
        ask = asking(state, yes, "data", render_data_offer, data_question, before=follow.pause)
        result = make_data(plan, session, work, confirm=ask, progress=follow, base=base)
    for line in ending_notes(result):
        note(state, line)
    emit(state, table=lambda: render_data(result), data=result.to_dict, names=[result.data])


@click.command("delete-data", cls=Command)
@learn_spec_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@global_options
@click.pass_obj
def delete_data(state: State, spec_path: Path, yes: bool) -> None:
    """Delete the data that learn data and learn train stored.

    It deletes all sets of the spec: prompts, answers and their older versions in S3, also data that was sent
    for a job that never started. It keeps heads, checkpoints, proofs, and the answers in .peagle-learn beside
    learn.yaml. The command is refused while a training job reads the data.
    """
    from peagle_learn import stored_data
    from peagle_learn.train import load_learn_spec

    spec = load_learn_spec(spec_path)
    need_terminal(state, yes, f"peagle-sm learn data {quote(str(spec_path))} --dry-run{state.flags}")
    session = open_session(state)
    stored = stored_data.find_data(spec, session)
    ask = asking(state, yes, "data", render_stored, lambda data: f"Delete everything below {data.uri}?")
    if not ask(stored):
        raise Declined("Nothing was deleted: it was not confirmed.", next_step="Run it again and confirm.")
    stored_data.delete_data(stored, session)
    emit(state, table=lambda: f"deleted {stored.uri}", data=stored.to_dict, names=[stored.uri])


def render_stored(stored: StoredData) -> str:
    """Render what would be deleted."""
    return render_fields(
        [("below", stored.uri), ("objects", f"{stored.objects:,}"), ("size", f"{stored.bytes / 1e6:,.1f} MB")]
    )


def data_question(offer: DataOffer) -> str:
    """Return the confirmation prompt."""
    writing = f"Let {offer.endpoint} write {offer.to_write:,} prompts, s" if offer.to_write else "S"
    sent = f"{writing}end {offer.to_ask:,} prompts to {offer.endpoint} and s" if offer.to_ask else "S"
    return f"{sent}tore the data below {offer.uri}?"


def render_data_offer(offer: DataOffer) -> str:
    """Render the sets with their lengths and slices, what is left out, and the price."""
    rows = [
        (facts.name, f"{facts.conversations:,}" if facts.name != "general" else "", f"{facts.prompts:,}",
         " / ".join(f"{each:,}" for each in facts.characters))
        for facts in offer.sets
    ]  # fmt: skip
    table = render_table(("set", "conversations", "prompts", "characters: least / median / most"), rows)
    slices = [
        f"  {facts.name}, {dimension}: "
        + ", ".join(f"{value} {count:,}" for value, count in list(values.items())[:5])
        for facts in offer.sets
        for dimension, values in facts.slices.items()
        if len(values) > 1
    ]
    redacted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(offer.redacted.items()))
    left_out = [
        f"{count:,} {what}"
        for count, what in (
            (offer.repeats, "repeats"),
            (offer.near_repeats, "near-duplicates"),
            (offer.like_general, "like general prompts"),
            (offer.token_ids, "of token ids, in which secrets cannot be found"),
        )
        if count
    ]
    budget = "" if offer.budget_usd is None else f"; stops at {usd(offer.budget_usd)}"
    fields = [
        ("left out", ", ".join(left_out)),
        ("redacted", redacted),
        (
            "answers",
            f"{offer.to_ask:,} to ask for, {offer.answered:,} there; at most {offer.most_tokens:,} tokens",
        ),
        ("prompts", f"{offer.to_write:,} the target writes first; then all are split" * bool(offer.to_write)),
        ("endpoint", f"{offer.endpoint}, {usd(offer.usd_per_hour, 'hour')}, also without this"),
        ("time", f"about {elapsed(offer.seconds)} at 10 ms a token"),
        ("cost", f"about {usd(offer.usd)}{budget}"),
        ("until", _until_words(offer)),
        ("stored", offer.uri),
        ("note", wrapped(offer.notes)),
    ]
    parts = [table, "\n".join(slices), render_fields([(name, value) for name, value in fields if value])]
    return "\n\n".join(part for part in parts if part)


def wrapped(notes: Iterable[str]) -> str:
    """Wrap notes for the terminal."""
    return "\n".join(
        textwrap.fill(each, 66, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for each in notes
    )


def _until_words(offer: DataOffer) -> str:
    if offer.until is None:
        return ""
    early = "\nToo early for all answers: it stops 5 minutes before, and another run continues."
    return f"the endpoint's {offer.ending}" + early * offer.ends_early


def ending_notes(result: DataResult) -> list[str]:
    """Return what the reader must know of how sampling ended."""
    end, notes = result.end, []
    if end.waiting:
        why = end.stopped_by or "broken streams"
        notes.append(f"{end.waiting:,} prompts have no answer ({why}); run it again to ask for them")
    if end.left_out:
        notes.append(f"{end.left_out:,} prompts were refused by the endpoint, or their answer had a secret")
    return notes


def render_data(result: DataResult) -> str:
    """Render the stored files."""
    rows = [
        (name, f"{result.rows[name]:,}", f"{result.tokens[name]:,}", f"{result.answer_tokens[name]:,}")
        for name in result.rows
    ]
    table = render_table(("file", "rows", "tokens", "answer tokens"), rows)
    return f"{table}\n\ndata {result.data[:16]} is stored below {result.uri}"
