"""The regression check of `compare --gate`: its options, what it refuses, and its result.

It judges a run against a record; the gate of the serving image, and the proof of a trained head, are others.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from peagle_bench.commands.options import FILE, Finite
from peagle_sm.cli.base import State
from peagle_sm.cli.console import note
from peagle_sm.cli.terminal import show

if TYPE_CHECKING:
    from peagle_bench.benchmark.endpoint_arm import Described
    from peagle_bench.regression.checks import RecordCheck, Rules
    from peagle_bench.regression.record import RunFacts
    from peagle_bench.results.result_file import Outcome, Results
    from peagle_sm.core.errors import PeagleError
    from peagle_sm.core.planning import Plan

Function = TypeVar("Function", bound=Callable[..., Any])

MARGIN_PERCENT = 5.0
SPREAD_PERCENT = 1.0
_NEED_GATE = ("margin", "endpoint_spread", "changed", "junit", "rates", "allow_undecided")
_OF_THE_RECORD = ("gate", "record", *_NEED_GATE)


def regression_options(command: Function) -> Function:
    """Add the options of the regression check to a command."""
    options = (
        click.option(
            "--gate",
            type=FILE,
            metavar="RECORD",
            help="Judge this run against a record (--record, or a results file of compare): exit code 9 if "
            "worse.",
        ),
        click.option(
            "--margin",
            type=Finite(min=0.5, max=40),
            metavar="PERCENT",
            default=MARGIN_PERCENT,
            help="With --gate: how much lower a speed-up may be; twice as much is always found.",
        ),
        click.option(
            "--endpoint-spread",
            type=Finite(min=0, max=20),
            metavar="PERCENT",
            default=SPREAD_PERCENT,
            help="With --gate: standard deviation of the speed of endpoints of one kind; several deployments "
            "that show more count.",
        ),
        click.option(
            "--changed",
            metavar="LIST",
            help="With --gate: differences from the record that you test: k, engine, instance.",
        ),
        click.option(
            "--rates", is_flag=True, help="With --gate: also judge tokens/s, on dedicated machines."
        ),
        click.option("--junit", type=FILE, help="With --gate: write the checks as JUnit XML."),
        click.option(
            "--allow-undecided",
            is_flag=True,
            help="With --gate: exit with 0 although a check is not decided.",
        ),
        click.option(
            "--record", type=FILE, help="Also write this run as a record for --gate: without texts, small."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True)
class RegressionCheck:
    """A record that a run is judged by; it refuses what cannot be compared with it."""

    path: Path
    record: Results
    facts: RunFacts
    rules: Rules
    junit: Path | None = None
    allow_undecided: bool = False

    def demand_settings(self, config: Mapping[str, Any], plans: Sequence[Plan] = ()) -> None:
        """Refuse settings and plans that cannot be compared with the record, before anything is deployed.

        Raises:
            SpecError: what differs.
        """
        from peagle_bench.regression.record import ArmFacts, RunFacts, refuse_differences, settings_of

        arms: dict[str, ArmFacts] = {}
        for plan in plans:
            draft, image = plan.draft, plan.draft.image
            one_type = len(draft.instance_types) == 1
            arms[plan.spec.speculation.mode] = ArmFacts(
                k=draft.num_speculative_tokens if draft.speculating else None,
                model=plan.target.name,
                instance=f"{plan.spec.placement.instance_count} x {draft.instance_types[0]}"
                if one_type
                else None,
                image=image.uri.rpartition(":")[2] if image is not None else None,
            )
        run = RunFacts(settings_of(config), arms)
        refuse_differences(str(self.path), self.facts, run, self.rules.changed)

    def demand(self, described: Sequence[Described]) -> None:
        """Refuse endpoints that cannot be compared with the record, before anything is sent to them.

        Raises:
            SpecError: what differs.
        """
        from peagle_bench.regression.record import RunFacts, arm_facts, refuse_differences, refuse_modes

        refuse_modes([endpoint.arm.mode for endpoint in described])
        arms = {str(endpoint.arm.mode): arm_facts(endpoint.arm, endpoint.origin) for endpoint in described}
        run = RunFacts(self.facts.settings, arms)
        refuse_differences(str(self.path), self.facts, run, self.rules.changed)

    def judge(self, results: Results) -> list[RecordCheck]:
        """Judge a complete run, and write the JUnit file.

        Raises:
            SpecError: only the run showed that it cannot be compared, as a URL's K does.
        """
        from peagle_bench.regression.judging import judge
        from peagle_bench.regression.junit import junit_xml
        from peagle_bench.regression.record import facts_of, refuse_differences
        from peagle_sm.aws.files import write_file

        refuse_differences(str(self.path), self.facts, facts_of(results), self.rules.changed)
        checks = judge(self.record, results, self.rules)
        if self.junit is not None:
            date = str(results.header.provenance.get("date", ""))[:19]
            xml = junit_xml(checks, name=self.path.name, timestamp=date, allow_undecided=self.allow_undecided)
            write_file(self.junit, xml, parents=True)
        return checks


def regression_check(options: Mapping[str, Any]) -> RegressionCheck | None:
    """Read the record of --gate; None without one.

    Raises:
        SpecError: an option without --gate, a file that is not a record, or a record that nothing can be
            judged by.
    """
    from peagle_bench.regression.checks import Rules
    from peagle_bench.regression.judging import unusable
    from peagle_bench.regression.record import CHANGES, demand_comparison, facts_of
    from peagle_bench.report.merging import missing
    from peagle_bench.results.result_file import read
    from peagle_sm.core.errors import SpecError

    _refuse_alone(options)
    if options["gate"] is None:
        return None
    path: Path = options["gate"]
    if options["record"] is not None and options["record"].absolute() == path.absolute():
        raise SpecError(
            f"--gate and --record: found {path} twice; allowed: two files. The run would replace the "
            "record that judges it.",
            next_step="Give --record another file, and replace the old one when you accept the new figures.",
        )
    changed = [word.strip() for word in (options["changed"] or "").split(",") if word.strip()]
    if unknown := [word for word in changed if word not in CHANGES]:
        raise SpecError(
            f"--changed: found {', '.join(unknown)}; allowed: {', '.join(CHANGES)}.",
            next_step="For example --changed engine",
        )
    if not path.exists():
        raise SpecError(
            f"record {path} not found",
            next_step=f"Make one: the same command with --record {path}, without --gate.",
        )
    record = read(path)
    demand_comparison(str(path), record)
    if (reason := unusable(record)) is not None:
        raise SpecError(
            f"{path}: nothing can be judged by this record: {reason}",
            next_step="Make a new record: peagle-sm compare … --record FILE.",
        )
    if share := missing(record):
        raise SpecError(
            f"{path}: the run of this record was interrupted: {share}",
            next_step="Make a new record: peagle-sm compare … --record FILE.",
        )
    rules = Rules(
        options["margin"] / 100,
        endpoint_spread=options["endpoint_spread"] / 100,
        rates=options["rates"],
        changed=tuple(changed),
    )
    return RegressionCheck(
        path, record, facts_of(record), rules, options["junit"], options["allow_undecided"]
    )


def _refuse_alone(options: Mapping[str, Any]) -> None:
    """Refuse options that need --gate without it, and the check or a record with packs."""
    from peagle_sm.core.errors import SpecError

    context = click.get_current_context()
    unset = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)
    given = [name for name in _OF_THE_RECORD if context.get_parameter_source(name) not in unset]
    words = ", ".join(f"--{name.replace('_', '-')}" for name in given)
    if given and options["packs"] is not None:
        raise SpecError(
            f"{words} cannot be used with --packs: packs have results of their own",
            next_step=f"leave out {words}, or give a workload instead of packs",
        )
    if options["gate"] is None and any(name in _NEED_GATE for name in given):
        words = ", ".join(f"--{name.replace('_', '-')}" for name in given if name in _NEED_GATE)
        raise SpecError(f"{words}: allowed only with --gate", next_step="Add --gate RECORD, or leave it out.")


def refuse_nameless(described: Sequence[Described]) -> None:
    """Refuse endpoints whose run could not be a record, before anything is sent to them.

    Raises:
        SpecError: their modes are not known, not different, or without none.
    """
    from peagle_bench.regression.record import refuse_modes

    refuse_modes([endpoint.arm.mode for endpoint in described])


def write_record(state: State, path: Path, outcome: Outcome) -> str | None:
    """Write a run as a record; return why it was not written, if it cannot be one."""
    from peagle_bench.regression.judging import unusable
    from peagle_bench.regression.record import demand_comparison, slim
    from peagle_bench.results.result_file import to_line
    from peagle_sm.aws.files import write_file

    demand_comparison(str(outcome.path), outcome.results)
    if (reason := unusable(outcome.results)) is not None:
        return reason
    write_file(path, "".join(f"{to_line(each)}\n" for each in slim(outcome.results)), parents=True)
    note(state, f"wrote the record {path}")
    return None


def render_checks(check: RegressionCheck, checks: Sequence[RecordCheck]) -> str:
    """Render a row for each check, then the reasons of those that did not pass."""
    from peagle_bench.regression.checks import figure, percents
    from peagle_sm.core.display import Table

    heads = ("mode", "check", "record", "this run", "change, 99.8% interval", "result")
    rows = tuple(
        (
            each.mode,
            f"{each.name} {each.load.label}",
            figure(each, each.record),
            figure(each, each.run),
            "" if each.change is None else percents(each.change),
            each.result,
        )
        for each in checks
    )
    lines = [show(Table("Against the record", heads, rows, ("record", "this run")))]
    for each in checks:
        if each.reason:
            text = f"{each.mode}, {each.name} {each.load.label}: {each.result}: {each.reason}"
            lines += textwrap.wrap(text, 80, subsequent_indent="  ", break_on_hyphens=False)
    margin = f"{100 * check.rules.margin:.3g}%"
    return "\n".join([f"against the record {check.path}, with a margin of {margin}:", *lines])


def checks_data(check: RegressionCheck, checks: Sequence[RecordCheck]) -> dict[str, Any]:
    """Return the same data for --format json."""
    from peagle_bench.results.result_file import encode

    return {
        "record": str(check.path),
        "margin": check.rules.margin,
        "checks": [{**encode(each), "result": each.result} for each in checks],
        "junit": str(check.junit) if check.junit else None,
    }


def failure_of_checks(check: RegressionCheck, checks: Sequence[RecordCheck]) -> PeagleError | None:
    """Return the error that ends the command; None if every check passed, or only undecided ones did not."""
    from peagle_sm.core.errors import Undecided, WorseThanRecord

    failed = [f"{each.mode}: {each.name}" for each in checks if each.passed is False]
    open_ = [f"{each.mode}: {each.name}" for each in checks if each.undecided]
    details = {"failed": failed, "undecided": open_, "record": str(check.path)}
    if failed:
        return WorseThanRecord(
            f"worse than the record {check.path}: {'; '.join(dict.fromkeys(failed))}",
            next_step="Find what changed since the record. If you accept the new figures, measure again with "
            "--record, and keep that file instead.",
            details=details,
        )
    if open_ and not check.allow_undecided:
        needed = next((each.needed for each in checks if each.undecided and each.needed), None)
        return Undecided(
            f"not decided against the record {check.path}: {'; '.join(dict.fromkeys(open_))}",
            next_step=(f"It needs {needed}. " if needed else "Fix the reason above. ")
            + "Then measure again, or accept it (--allow-undecided).",
            details=details,
        )
    return None
