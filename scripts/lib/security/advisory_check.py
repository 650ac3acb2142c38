"""`scripts/advisory-check`: known advisories against every pinned version; offline but for --refresh."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.lib.security import osv_client, snapshot
from scripts.lib.security.gate import ALSO_KNOWN_AS, OLD_AFTER_DAYS, Hit, age_days, hits, idle

HOW = (
    "Asked of OSV's API (querybatch by name, then each record) for every package that a lock file pins. "
    "OSV carries GitHub's and PyPA's advisories; what neither has published is not in it."
)


def main(arguments: Sequence[str], *, today: dt.date, api: str = osv_client.API) -> int:
    """Print affected pins; return 1 if one has no waiver, 2 if the snapshot cannot be read."""
    options = _parser().parse_args(arguments)
    path: Path = options.snapshot
    try:
        if options.refresh:
            _refresh(path, today, api)
        known, waived, pins = (
            snapshot.read_snapshot(path),
            snapshot.waivers(options.waivers),
            snapshot.pinned(),
        )
    except (osv_client.OsvError, OSError, ValueError, KeyError) as error:
        print(f"advisory-check: {error}", file=sys.stderr)
        return 2
    found = hits(pins, known.advisories, waived, today)
    unused = idle(waived, found)
    if options.format == "json":
        print(json.dumps([_row(hit) for hit in found], indent=2))
    else:
        print("\n".join(_line(hit) for hit in found))
    for waiver in unused:
        print(f"idle waiver: {waiver.id} for {waiver.where}: nothing needs it; take it out", file=sys.stderr)
    failing = sum(hit.fails for hit in found)
    count = sum(map(len, pins.values()))
    print(
        f"{count} pins in {len(pins)} places, {len(known.advisories)} advisories of {known.made}: "
        f"{len(found)} met, {len(found) - failing} waived, {failing} failing, {len(unused)} idle waivers",
        file=sys.stderr,
    )
    # By the clock alone CI must not turn red: nothing that a change could have broken would be the cause.
    if (age := age_days(known.made, today)) > OLD_AFTER_DAYS:
        print(
            f"warning: the snapshot is {age} days old: run scripts/advisory-check --refresh", file=sys.stderr
        )
    return 1 if failing or unused else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/advisory-check", description=__doc__)
    parser.add_argument("--refresh", action="store_true", help="ask OSV first and write the snapshot anew")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--snapshot", type=Path, default=snapshot.SNAPSHOT, help="another snapshot")
    parser.add_argument("--waivers", type=Path, default=snapshot.WAIVERS, help="other waivers")
    return parser


def _refresh(path: Path, today: dt.date, api: str) -> None:
    names = {pin.key for pins in snapshot.pinned().values() for pin in pins}
    names |= {ALSO_KNOWN_AS[name] for name in names & ALSO_KNOWN_AS.keys()}
    records = osv_client.known(names, api=api)
    text = snapshot.written(today, HOW, records)
    path.write_text(text, encoding="utf-8")
    print(f"{path.name}: {len(records)} advisories for {len(names)} packages", file=sys.stderr)


def _row(hit: Hit) -> dict[str, object]:
    return {
        "fails": hit.fails,
        "where": hit.where,
        "pin": str(hit.pin),
        "id": hit.advisory.id,
        "aliases": list(hit.advisory.aliases),
        "severity": hit.advisory.severity,
        "summary": hit.advisory.summary,
        "url": hit.advisory.url,
        "waived_until": hit.waiver.expires.isoformat() if hit.waiver else None,
        "reason": hit.waiver.reason if hit.waiver else None,
    }


def _line(hit: Hit) -> str:
    if hit.waiver is None:
        state = "FAIL   no waiver"
    else:
        state = f"{'FAIL   waiver expired' if hit.expired else 'waived until'} {hit.waiver.expires}"
    severity = f" ({hit.advisory.severity.lower()})" if hit.advisory.severity else ""
    return (
        f"{state}: {hit.pin} in {hit.where}: {hit.advisory.id}{severity}: {hit.advisory.summary}\n"
        f"       {hit.advisory.url}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], today=dt.datetime.now(dt.UTC).date()))
