"""`peagle-sm learn prove`, `promote`, `rollback`: measure a trained head, let it serve, or take it back."""

from __future__ import annotations

import textwrap
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from peagle_learn.commands import learn_spec_argument
from peagle_learn.commands.data import open_work, wrapped
from peagle_sm.cli.arguments import follower, open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.endpoints.deploy import render_update
from peagle_sm.cli.commands.guard import with_guard
from peagle_sm.cli.console import asking, emit, need_terminal, termination_is_ctrl_c
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.words import usd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peagle_learn.core.proof import Proof, Ratio, SetEvidence, SliceEvidence
    from peagle_learn.promote import Promotion
    from peagle_learn.prove import ProveOffer
    from peagle_sm.aws.session.session import Session
    from peagle_sm.cli.progress import Follower
    from peagle_sm.service.lifecycle.existing import UpdateOffer

endpoint_spec_option = click.option(
    "--spec",
    "endpoint_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default="peagle.yaml",
    help="Spec of the endpoint that serves.",
)
_MOST_SLICES = 8  #: that a proof shows; all are in its JSON
_unguarded = click.option("--unguarded", is_flag=True, help="Run without an installed guard.")
_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


@click.command(cls=Command)
@learn_spec_argument
@click.option("--head", metavar="HEAD", required=True,
              help="Folder, s3:// prefix, or s3://…/model.tar.gz of a training job.")  # fmt: skip
@endpoint_spec_option
@click.option("--dry-run", is_flag=True, help="Check the head and show the price; create nothing.")
@_unguarded
@_yes
@global_options
@click.pass_obj
def prove(
    state: State, spec_path: Path, head: str, endpoint_path: Path, dry_run: bool, unguarded: bool, yes: bool
) -> None:
    """Measure a trained head beside the one that serves.

    The head's files are checked first. Then the command shows the price and asks, starts the candidate and
    the target without speculation on endpoints of their own, measures both and the serving endpoint in turns,
    and deletes what it created. The head is offered only if its acceptance is significantly better on the
    held-out prompts, not more than prove.most_general_loss worse on the general ones, and its answers are the
    target's own. Exit code 9 if it is not offered.
    """
    from peagle_learn.prove import plan_prove
    from peagle_learn.prove import prove as measure
    from peagle_learn.train import load_learn_spec
    from peagle_sm.core.errors import NotOffered
    from peagle_sm.service.spec_to_plan import load_spec

    spec, served = load_learn_spec(spec_path), load_spec(endpoint_path)
    need_terminal(
        state,
        yes or dry_run,
        f"peagle-sm learn prove {quote(str(spec_path))} --head {quote(head)} --dry-run{state.flags}",
    )
    session = open_session(state, served.placement.region)
    work = open_work(spec_path, spec, dry_run=dry_run)
    plan = plan_prove(spec, served, head, session, work)
    if dry_run:
        emit(
            state,
            table=lambda: render_prove_offer(plan.offer),
            data=plan.offer.to_dict,
            names=[plan.offer.head],
        )
        return
    with termination_is_ctrl_c(), follower(state) as follow:
        ask = asking(state, yes, "proof", render_prove_offer, prove_question, before=follow.pause)
        proof = with_guard(
            state,
            session,
            follow,
            yes,
            lambda: measure(plan, session, work, confirm=ask, progress=follow, unguarded=unguarded),
        )
    emit(state, table=lambda: render_proof(proof), data=lambda: proof_data(proof), names=[proof.bound.head])
    if not proof.decision.offered:
        raise NotOffered(
            f"head {proof.bound.head[:16]} is not offered: {proof.decision.reasons[0]}",
            next_step="Train longer, with more data or other settings, and prove the new head.",
            details={"reasons": list(proof.decision.reasons)},
        )


def prove_question(offer: ProveOffer) -> str:
    """Return the confirmation prompt of a proof."""
    return f"Create {' and '.join(offer.deploys)}, measure them beside {offer.endpoint}, and delete them?"


def render_prove_offer(offer: ProveOffer) -> str:
    """Render what is deployed and measured, and the price."""
    most = (
        "" if offer.most_usd is None else f"; at most {usd(offer.most_usd)}, if nothing deleted them earlier"
    )
    fields = [
        ("head", f"{offer.head[:16]}, to {offer.head_uri}"),
        ("beside", f"{offer.endpoint}, which is not changed"),
        ("creates", ", ".join(offer.deploys)),
        ("deletes", ", ".join(f"{name} (of an earlier proof)" for name in offer.leftovers)),
        ("prompts", _prompts(offer)),
        ("time", f"about {offer.minutes:.0f} min"),
        ("price", f"{usd(offer.usd_per_hour, 'hour')} for both"),
        ("cost", f"about {usd(offer.usd)}{most}"),
        ("note", wrapped(offer.warnings)),
    ]
    return render_fields([(name, value) for name, value in fields if value])


def _prompts(offer: ProveOffer) -> str:
    """Name the sets with their conversations, over which the intervals are."""
    counts = {"held out": offer.held_out, "general": offer.general}
    sets = [
        f"{count:,} {name} of {offer.conversations.get(name, count):,} conversations"
        for name, count in counts.items()
    ]
    return f"{', '.join(sets)}, and long ones"


def render_proof(proof: Proof) -> str:
    """Render the evidence and the decision."""
    evidence, parts = proof.evidence, []
    rows = [
        _row(name, measured, evidence.is_busy)
        for name, measured in (
            ("held out", evidence.held_out),
            ("general", evidence.general),
            ("long", evidence.long_context),
        )
        if measured is not None
    ]
    if rows:
        parts.append(render_table(("prompts", "n", "acceptance", "over serving", "speed over serving"), rows))
        confidence = f"{proof.thresholds.confidence:.0%}"
        parts.append(f"({confidence} intervals; acceptance: tokens for each pass, serving -> candidate)")
    if evidence.held_out is not None and evidence.held_out.slices:
        parts.append(render_slices(evidence.held_out.slices))
    if evidence.identity:
        words = {True: "pass", False: "FAIL", None: "undecided"}
        parts.append(
            "answers: " + ", ".join(f"{each.name} {words[each.passed]}" for each in evidence.identity)
        )
    if proof.decision.offered:
        parts.append(f"head {proof.bound.head[:16]} is offered: `peagle-sm learn promote`")
    else:
        reasons = "\n".join(
            textwrap.fill(f"- {each}", 78, subsequent_indent="  ") for each in proof.decision.reasons
        )
        parts.append(f"head {proof.bound.head[:16]} is not offered:\n{reasons}")
    parts += [textwrap.fill(f"note: {each}", 78, subsequent_indent="  ") for each in proof.decision.notes]
    return "\n\n".join(parts)


def render_slices(slices: Sequence[SliceEvidence]) -> str:
    """Render the slices of the held-out prompts in which the candidate is worse, in lines of a terminal."""
    worse = sorted(
        (each for each in slices if each.is_worse),
        key=lambda each: each.acceptance.value if each.acceptance else 1,
    )
    where = f"held out by slice: {len(slices):,} slices, {len(worse) or 'none'} worse"
    heading = f"{where}; decides nothing (all: --format json)"
    if not worse:
        return heading
    rows = [
        (
            textwrap.shorten(f"{each.dimension}: {each.value}", 26, placeholder="…"),
            f"{each.prompts:,}",
            _words(each.acceptance),
            _words(each.speed),
        )
        for each in worse[:_MOST_SLICES]
    ]
    more = f"\n(and {len(worse) - len(rows):,} more)" if len(worse) > len(rows) else ""
    sure = f"({worse[0].confidence:.1%} intervals, so that all cover together in 95% of proofs)"
    return f"{heading}\n{render_table(('slice', 'n', 'acceptance', 'speed'), rows)}{more}\n{sure}"


def _row(name: str, evidence: SetEvidence, busy: bool) -> tuple[str, ...]:
    lengths = [
        f"{each:.2f}" if each is not None else "?"
        for each in (evidence.serving_length, evidence.candidate_length)
    ]
    ratios = [_words(evidence.acceptance), "no verdict" if busy else _words(evidence.speed)]
    return name, f"{evidence.prompts:,}", " -> ".join(lengths), *ratios


def _words(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def proof_data(proof: Proof) -> dict[str, object]:
    """Return the proof for --format json."""
    import json

    document: dict[str, object] = json.loads(proof.to_json())
    return document


@click.command(cls=Command)
@learn_spec_argument
@click.option("--head", metavar="HASH", help="Beginning of the head's hash.  [default: the newest proof's]")
@endpoint_spec_option
@_unguarded
@_yes
@global_options
@click.pass_obj
def promote(
    state: State,
    spec_path: Path,
    head: str | None,
    endpoint_path: Path,
    unguarded: bool,
    yes: bool,
) -> None:
    """Let a proven head serve the endpoint.

    The proof must be of exactly this head, data, target and serving config. The endpoint is updated in place:
    a second fleet starts, and is billed until the first is gone. Alarms on server errors and on acceptance
    roll it back. With several instances, a canary of promote.canary_percent serves first. Then the head's
    fields are written into the endpoint's spec, and its origin into its manifest.
    """
    from peagle_learn.promote import promote as bring
    from peagle_learn.train import load_learn_spec

    spec = load_learn_spec(spec_path)
    need_terminal(state, yes, f"peagle-sm learn prove {quote(str(spec_path))} --dry-run{state.flags}")
    open_work(spec_path, spec)

    def run(session: Session, follow: Follower, ask: Callable[[UpdateOffer], bool]) -> Promotion:
        return bring(
            spec,
            endpoint_path,
            session,
            head=head,
            confirm=ask,
            progress=follow,
            unguarded=unguarded,
        )

    _change(state, endpoint_path, yes, run, lambda offer: f"Promote the head on {offer.name}?")


@click.command(cls=Command)
@learn_spec_argument
@endpoint_spec_option
@_unguarded
@_yes
@global_options
@click.pass_obj
def rollback(state: State, spec_path: Path, endpoint_path: Path, unguarded: bool, yes: bool) -> None:
    """Restore the head that served before the last promotion.

    The endpoint is updated in place; a second fleet is billed meanwhile. The fields of the old head are
    written back into the endpoint's spec.
    """
    from peagle_learn.promote import rollback as take_back
    from peagle_learn.train import load_learn_spec

    spec = load_learn_spec(spec_path)
    need_terminal(state, yes, f"peagle-sm status {spec.endpoint or ''}{state.flags}")

    def run(session: Session, follow: Follower, ask: Callable[[UpdateOffer], bool]) -> Promotion:
        return take_back(spec, endpoint_path, session, confirm=ask, progress=follow, unguarded=unguarded)

    _change(state, endpoint_path, yes, run, lambda offer: f"Restore the previous head on {offer.name}?")


def _change(
    state: State,
    endpoint_path: Path,
    yes: bool,
    run: Callable[[Session, Follower, Callable[[UpdateOffer], bool]], Promotion],
    question: Callable[[UpdateOffer], str],
) -> None:
    from peagle_sm.service.spec_to_plan import load_spec

    session = open_session(state, load_spec(endpoint_path, locks=False).placement.region)
    with termination_is_ctrl_c(), follower(state) as follow:
        ask = asking(state, yes, "update", render_update, question, before=follow.pause)
        promotion = with_guard(state, session, follow, yes, lambda: run(session, follow, ask))
    emit(
        state,
        table=lambda: render_promotion(promotion),
        data=lambda: promotion_data(promotion),
        names=[promotion.head],
    )


def promotion_data(promotion: Promotion) -> dict[str, object]:
    """Return a promotion for --format json."""
    from dataclasses import asdict

    return asdict(promotion)


def render_promotion(promotion: Promotion) -> str:
    """Render what serves now."""
    now = promotion.before if promotion.state == "rolled-back" else promotion.after
    fields = [
        ("endpoint", promotion.endpoint),
        ("state", promotion.state),
        ("head", str(now["speculation.draft_head"] or "the catalogue's")),
        ("head_uri", str(now["head_uri"] or "")),
    ]
    return render_fields([(name, value) for name, value in fields if value])
