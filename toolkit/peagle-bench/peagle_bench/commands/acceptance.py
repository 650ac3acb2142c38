"""`peagle-sm acceptance`: acceptance of an endpoint's traffic by slice, and the slices in which it fell."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.arguments import endpoint_argument
from peagle_sm.cli.base import Command, State, as_seconds, global_options
from peagle_sm.cli.console import emit, note

if TYPE_CHECKING:
    from peagle_sm.core.drift import AcceptanceFall
    from peagle_sm.service.inventory.acceptance import AcceptanceReport


_DAY_S = 86_400.0


@click.command(cls=Command)
@endpoint_argument
@click.option(
    "--since",
    metavar="DURATION",
    default=None,
    callback=lambda ctx, param, value: None if value is None else as_seconds(ctx, param, value),
    help="How far back the figures go; a fall is compared with the week before, too.  [default: 24h; with"
    " --records, all of them]",
)
@click.option(
    "--records",
    metavar="FILE",
    help="Read recorded traffic instead of the log: a file, a folder or s3://BUCKET/PREFIX.",
)
@click.option("--component", help="Inference component of the endpoint.")
@global_options
@click.pass_obj
def acceptance(
    state: State,
    name: str,
    since: float | None,
    records: str | None,
    component: str | None,
) -> None:
    """Show the acceptance of an endpoint's traffic by slice, and where it fell.

    The figures come from the log of an endpoint whose spec has metrics.slices (this project's image counts
    them), or with --records from what `peagle-sm serve --record` wrote, for any endpoint. All intervals of
    the table hold together in 95% of reports.

    A fall is found by comparing requests with earlier ones of the same slices and the same K, so a change of
    the mix of traffic is no fall. Exit code 9 if the acceptance length fell in a slice, and is still low.
    """
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.core.errors import AcceptanceFell
    from peagle_sm.service.inventory.acceptance import acceptance_from_log

    if records is None:
        report = acceptance_from_log(open_session(state), name, since or _DAY_S, component)
    else:
        report = _of_records(state, records, name, since)
    for line in report.notes:
        note(state, f"note: {line}")
    emit(
        state,
        table=lambda: render_acceptance(name, report),
        data=lambda: {"endpoint": name, **report.to_dict()},
        names=[change.slice for change in report.changes],
    )
    if report.changes:
        fell = ", ".join(change.slice for change in report.changes)
        raise AcceptanceFell(
            f"the acceptance length fell in {fell}",
            next_step=f"run `peagle-sm verify {name}` to check the draft head; answers stay correct",
            details={"slices": [change.slice for change in report.changes]},
        )


def _of_records(state: State, target: str, name: str, since: float | None) -> AcceptanceReport:
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.core.errors import NotFound
    from peagle_sm.service.inventory.acceptance import acceptance_from_records
    from peagle_sm.traffic.reading import read

    # Files need no AWS, so the session is opened only for S3.
    traffic = read(target, lambda: open_session(state))
    of_endpoint = [record for record in traffic.records if record.endpoint == name]
    if not of_endpoint:
        endpoints = ", ".join(sorted({record.endpoint for record in traffic.records}))
        raise NotFound(
            f"{target} has no request of endpoint {name!r}; it has those of {endpoints}",
            next_step="give one of these names",
        )
    return acceptance_from_records(of_endpoint, datetime.now(UTC), since, source=target, notes=traffic.notes)


_HEADERS = ("slice", "acceptance", "interval", "requests", "drafts", "at K")


def render_acceptance(name: str, report: AcceptanceReport) -> str:
    """Render a row a slice, then the falls."""
    from peagle_sm.cli.terminal import render_table

    rows = [
        (
            each.slice,
            f"{each.acceptance_length:.2f}",
            "-" if each.low is None else f"[{each.low:.2f}, {each.high:.2f}]",
            f"{each.requests:,}",
            f"{each.drafts:,}",
            "" if len(each.by_k) == 1 else " ".join(f"{k}:{value:.2f}" for k, value in each.by_k.items()),
        )
        for each in report.slices
    ]
    several = any(row[-1] for row in rows)
    headers = _HEADERS if several else _HEADERS[:-1]
    parts = [f"{name} since {report.since:%Y-%m-%d %H:%M} UTC, from {report.source}", ""]
    if rows:
        table = [row if several else row[:-1] for row in rows]
        parts += [render_table(headers, table, right=("acceptance", "requests", "drafts")), ""]
    else:
        parts += ["no drafts in this time", ""]
    if report.uncounted:
        parts.append(f"{report.uncounted:,} requests are not counted: cancelled, or with several sequences")
    parts += [change_line(change) for change in report.changes]
    if not report.changes:
        compared = f"{report.compared_since:%Y-%m-%d %H:%M} UTC"
        parts.append(f"no fall found in any slice, compared with the requests since {compared}")
    return "\n".join(parts)


def change_line(change: AcceptanceFall) -> str:
    """Render a fall: which slice, since when, by how much."""
    since = datetime.fromtimestamp(change.since, UTC)
    return (
        f"FELL  {change.slice}: {change.before:.2f} to {change.after:.2f}, "
        f"{-change.fall:.0%} [{-change.high:.0%}, {-change.low:.0%}]\n"
        f"      since about {since:%Y-%m-%d %H:%M} UTC ({change.drafts:,} drafts)"
    )
