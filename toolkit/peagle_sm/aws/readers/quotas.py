"""Service quotas, what counts against them, and AWS's own prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.prices import listed_price
from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.checks.preflight_facts import Price, Quotas
from peagle_sm.core.checks.supplies import ALL_INSTANCES, quota_name
from peagle_sm.core.plan.resolve import Draft

SERVICE = "sagemaker"
# Neither holds instances any more, nor will again under this name.
_GONE = frozenset({"Deleting", "Failed"})


def read(session: Session, draft: Draft | None) -> Quotas:
    """Read the quotas of the spec's types and count the instances of every endpoint.

    Raises:
        CredentialsError: a permission is missing.
    """
    assert draft is not None
    wanted = {quota_name(name): name for name in draft.instance_types}
    found = _find(session, {*wanted, ALL_INSTANCES})
    in_use, own = _in_use(session, draft.spec.name)
    return Quotas(
        granted={wanted[name]: value for name, value in found.items() if name in wanted},
        in_use=in_use,
        own_in_use=own,
        all_granted=found.get(ALL_INSTANCES),
    )


def _find(session: Session, wanted: set[str]) -> dict[str, float]:
    """Return the quotas of these names: as applied, else as AWS gives them to everybody."""
    found: dict[str, float] = {}
    for operation, called in (
        ("list_service_quotas", "ListServiceQuotas"),
        ("list_aws_default_service_quotas", "ListAWSDefaultServiceQuotas"),
    ):
        for quota in _listed(session, operation, called):
            if quota["QuotaName"] in wanted - found.keys():
                found[quota["QuotaName"]] = float(quota["Value"])
            if len(found) == len(wanted):
                return found
    return found


def _listed(session: Session, operation: str, called: str) -> Iterator[Mapping[str, Any]]:
    with aws_errors(called, session.local_url):
        pages = session.client("service-quotas").get_paginator(operation)
        for page in pages.paginate(ServiceCode=SERVICE, PaginationConfig={"PageSize": 100}):
            yield from page["Quotas"]


def _in_use(session: Session, name: str) -> tuple[dict[str, int], dict[str, int]]:
    """Count the instances of all endpoints by type, and those of the endpoint ``name``."""
    every: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for listed in control.list_endpoints(session):
        if listed.status in _GONE:
            continue
        counts = _instances(session, listed.name)
        every.update(counts)
        if listed.name == name:
            own.update(counts)
    return dict(every), dict(own)


def _instances(session: Session, endpoint: str) -> Counter[str]:
    found = control.describe_endpoint(session, endpoint)
    config = control.describe_endpoint_config(session, found.config_name) if found else None
    counts: Counter[str] = Counter()
    if found is None or config is None:
        return counts
    now = {row["VariantName"]: row for row in found.raw.get("ProductionVariants") or ()}
    for variant in config.raw.get("ProductionVariants") or ():
        pools = variant.get("InstancePools") or [{}]
        kind = variant.get("InstanceType") or pools[0].get("InstanceType")
        shown = now.get(variant["VariantName"], {})
        count = max(shown.get("CurrentInstanceCount", 0), shown.get("DesiredInstanceCount", 0))
        if kind:
            counts[kind] += count or variant.get("InitialInstanceCount", 0)
    return counts


def prices(session: Session, draft: Draft | None) -> tuple[Price, ...]:
    """Ask AWS's price list for each type."""
    assert draft is not None
    return tuple(_price(session, name, draft.region) for name in draft.instance_types)


def _price(session: Session, name: str, region: str) -> Price:
    found = listed_price(session, name, region)
    return Price(name, found.usd_per_hour, found.date) if found else Price(name)
