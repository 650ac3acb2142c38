"""Checks on what the local SageMaker puts in place of the spec's, and on the region's name."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.catalog.catalog import known_regions
from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.complaints import suggest


@check(
    "local-roles",
    why="The spec's roles live in an AWS account; the local server does not know them and would refuse them.",
    source="this project: docs/explanation/local.md; the server's own roles, from `peagle-sm local status`",
    remedy="Nothing to do: on AWS the roles of the spec are used.",
    severity="info",
)
def local_roles(draft: Draft) -> Iterator[Note]:
    """Roles of the spec that the local server's own roles replace."""
    if not draft.context.local:
        return
    roles = {
        "execution_role_arn": (draft.spec.execution_role_arn, draft.role_arn),
        "scheduler_role_arn": (draft.spec.scheduler_role_arn, draft.scheduler_role_arn),
    }
    for field, (given, used) in roles.items():
        if given is not None and given != used:
            yield Note("info", f"{field}: {given} is replaced by the local server's {used}")


@check(
    "local-region",
    why="A name or an address in the local plan differs from what the same spec makes on AWS.",
    source="this project: docs/explanation/local.md; the local server stands in one region",
    remedy="Nothing to do: on AWS the region of the spec is used.",
    severity="info",
)
def local_region(draft: Draft) -> Iterator[Note]:
    """A region of the spec that the local server's own replaces."""
    given = draft.spec.placement.region
    if draft.context.local and given is not None and given != draft.region:
        yield Note("info", f"placement.region: {given} is replaced by the local server's {draft.region}")


@check(
    "region-name",
    why="In a region that does not exist, or has no SageMaker, no call is answered.",
    source="botocore's endpoint data: regions of SageMaker; regions of AWS's image registries",
    remedy="Correct placement.region, or go on if the region is newer than this botocore.",
    severity="warning",
    url="https://github.com/boto/botocore",
)
def region_name(draft: Draft) -> Iterator[Note]:
    """A region that botocore does not know for SageMaker."""
    given = draft.spec.placement.region
    if given is None or any(gap.field == "placement.region" for gap in draft.gaps):
        return  # as a missing fact it has been named already
    known = known_regions() | draft.catalog.regions.keys()
    if given not in known:
        yield Note("warning", f"placement.region: {given!r} is not a known region.{suggest(given, known)}")


CHECKS: tuple[Check, ...] = (local_roles, local_region, region_name)
