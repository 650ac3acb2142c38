"""`peagle-sm verify`: check that speculation does not change the answers.

It prints one line for each check, and what each check could have detected.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_bench import results_file
from peagle_bench.commands.options import FILE, workload_option
from peagle_bench.verify import CHECKS
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit, note
from peagle_sm.cli.terminal import render_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from peagle_bench.results.records import CheckRecord, Header
    from peagle_bench.verify.run import Verification
    from peagle_sm.core.errors import PeagleError


_EVERY_S = 10.0


@click.command(cls=Command)
@click.argument("endpoint")
@click.option("--baseline", required=True, metavar="ENDPOINT", help="The same target without speculation.")
@workload_option
@click.option(
    "--prompts",
    type=click.IntRange(min=1),
    help="Number of prompts.  [default: up to 164; --quick: up to 32]",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=2),
    help="Maximum tokens of a greedy answer.  [default: 256; --quick: 96]",
)
@click.option(
    "--checks", metavar="LIST", help=f"Run only these, separated by commas.  [default: {','.join(CHECKS)}]"
)
@click.option("--quick", is_flag=True, help="Use a fifth of the tokens; detects only larger faults.")
@click.option("--allow-undecided", is_flag=True, help="Exit with 0 although a check could not be decided.")
@click.option("--out", "-o", type=FILE, help="Results file.  [default: results/verify-NAME-TIME.jsonl]")
@global_options
@click.pass_obj
def verify(
    state: State,
    endpoint: str,
    baseline: str,
    workload: str,
    prompts: int | None,
    max_tokens: int | None,
    checks: str | None,
    quick: bool,
    allow_undecided: bool,
    out: Path | None,
) -> None:
    """Check that speculation does not change the target model's answers.

    ENDPOINT and the baseline are names of endpoints, NAME/COMPONENT, or http(s) URLs of vLLM servers. Greedy
    answers must equal the baseline's, or differ no more than the baseline differs from itself. Sampled tokens
    must have the frequencies that the baseline's probabilities predict. Tool calls, JSON schemas, long
    prompts, log probabilities, stop strings and streaming are compared too. A check that cannot decide
    is "undecided"; it does not pass. A check is "not applicable" if neither side supports it, for example
    tool calls without a tool parser.

    Exit code 0 if all applicable checks passed; 9 if one failed; 10 if none failed but one is undecided.
    """
    from peagle_bench.benchmark.endpoint_arm import is_url
    from peagle_bench.verify.run import prepared
    from peagle_sm.cli.arguments import open_session

    out = out or results_file("verify", endpoint)
    verification = prepared(
        endpoint,
        baseline,
        lambda: None if is_url(endpoint) and is_url(baseline) else open_session(state),
        workload=workload,
        prompts=prompts,
        max_tokens=max_tokens,
        quick=quick,
        checks=[name.strip() for name in (checks or "").split(",") if name.strip()],
        workload_session=lambda: open_session(state),
    )
    _announce(state, verification)
    records = verification.run(out, partial(note, state), _counting(state))
    header = verification.header
    ending = _ending(records, allow_undecided)
    emit(
        state,
        table=lambda: render_checks(records, header, out, concluded=ending is not None),
        data=lambda: checks_data(records, endpoint, baseline, header, out),
        names=[each.name for each in records if not each.passed and each.applicable],
    )
    if ending is not None:
        raise ending


def _counting(state: State) -> Callable[[], None]:
    """Return a callback for each answer that prints progress every few seconds."""
    from peagle_sm.core.words import elapsed

    began = last = state.monotonic()
    answers = 0

    def tick() -> None:
        nonlocal last, answers
        answers += 1
        now = state.monotonic()
        if now - last >= _EVERY_S:
            last = now
            note(state, f"{elapsed(now - began):>7}  {answers} answers so far")

    return tick


def _announce(state: State, verification: Verification) -> None:
    from peagle_bench.verify.run import tokens_asked
    from peagle_sm.core.words import usd

    candidate, plain = verification.candidate.arm, verification.baseline.arm
    rates = [arm.usd_per_hour for arm in (candidate, plain)]
    price = (
        f"{sum(rate for rate in rates if rate is not None):,.2f} USD/hour" if None not in rates else usd(None)
    )
    tokens = tokens_asked(verification.options, len(verification.workload.items), verification.checks)
    note(
        state,
        f"at most about {tokens:,} output tokens from the endpoint, and twice that from the baseline; this "
        "always includes greedy answers, which the other checks need",
    )
    note(state, f"both together are billed {price}, also without this run; nothing is deployed or deleted")
    if candidate.mode == "none":
        note(state, "the endpoint does not speculate either: this compares the target with itself")


def _ending(records: list[CheckRecord], allow_undecided: bool) -> PeagleError | None:
    """Return the error that ends the command; None if all applicable checks passed."""
    from peagle_bench.report.verdict import checked
    from peagle_bench.results.records import all_passed
    from peagle_sm.core.errors import OutputsDiffer, Undecided

    failed = [each.name for each in records if each.passed is False]
    open_ = [each.name for each in records if each.undecided]
    if failed:
        return OutputsDiffer(
            checked(records),
            next_step="serve without speculation until you know the cause; repeat the examples to find it",
            details={"failed": failed, "undecided": open_},
        )
    if all_passed(records) is None and not allow_undecided:
        return Undecided(
            checked(records),
            next_step="fix the cause, skip these checks (--checks), or accept it (--allow-undecided)",
            details={"undecided": open_},
        )
    return None


def render_checks(
    records: Sequence[CheckRecord],
    header: Header,
    out: Path | None = None,
    *,
    concluded: bool = False,
) -> str:
    """Render the table, examples of failures, and what each check can detect.

    ``concluded``: an error message with the conclusion follows, so leave it out here.
    """
    from peagle_bench.report.verdict import checked

    rows = [(record.name, record.result) for record in records]
    width = max((len(name) for name, _ in rows), default=0) + 4
    width += max((len(result) for _, result in rows), default=0)
    lines = render_table(("check", "result"), rows).splitlines()
    parts = [lines[0]]
    for line, record in zip(lines[1:], records, strict=True):
        parts += _wrapped(f"{line.ljust(width)}{record.summary}", width)
        parts += [f"{' ' * width}- {example}" for example in record.examples if record.passed is False]
    tested = [each for each in records if each.passed is not None]
    if tested:
        parts += ["", "What these checks can detect:"]
        name_width = max(len(each.name) for each in tested) + 2
        for each in tested:
            parts += _wrapped(f"{each.name.ljust(name_width)}{each.power}", name_width)
    ending = [] if concluded else [f"{checked(records)}."]
    ending += header.notes
    ending += [] if out is None else [f"results: {out}"]
    parts += ["", *ending] if ending else []
    return "\n".join(parts)


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text,
        110,
        subsequent_indent=" " * indent,
        drop_whitespace=True,
        break_long_words=False,
        replace_whitespace=False,
        break_on_hyphens=False,
    )


def checks_data(
    records: Sequence[CheckRecord], endpoint: str, baseline: str, header: Header, out: Path
) -> dict[str, Any]:
    """Return the results for --format json."""
    from peagle_bench.results.records import all_passed

    return {
        "endpoint": endpoint,
        "baseline": baseline,
        "passed": all_passed(records),
        "checks": [asdict(each) for each in records],
        **header.target_data(),
        "results": str(out),
    }
