"""Price of a job's instance: AWS's price list, else the spec's, else the catalogue's price of hosting."""

from __future__ import annotations

from peagle_sm.aws.control.price_file import USE_WORDS, Use
from peagle_sm.aws.control.prices import find_listed
from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.prices import NOT_ASKED, PriceEntry


def find_job_price(
    session: Session | None,
    instance_type: str,
    region: str,
    use: Use,
    given: float | None = None,
    field: str = "",
) -> tuple[PriceEntry | None, str]:
    """Return the price of one instance of a job that counts, and its source or why there is none.

    The order: AWS's price list, ``given`` (the spec's ``field``), and last the catalogue's price of hosting,
    since it has none of jobs.
    """
    listed = NOT_ASKED if session is None else find_listed(session, instance_type, region, use)
    if listed.entry is not None:
        differs = given is not None and abs(given - listed.entry.usd_per_hour) > 0.005
        return listed.entry, f"{listed.entry}" + (
            f"; {field} of the spec differs: {given:g}" if differs else ""
        )
    if given is not None:
        source = f"{field} of the spec"
        entry = PriceEntry(
            instance=instance_type, region=region, usd_per_hour=given, kind="spec", source=source
        )
        return entry, f"{source} ({listed.why})"
    hosting = load_catalog().price(instance_type, region)
    if hosting is None:
        return None, listed.why
    return (
        hosting,
        f"{hosting}; the price of hosting, since that of {USE_WORDS[use]} is not known ({listed.why})",
    )
