"""The two arms of a proof: endpoints of their own, which no proof may leave behind.

Each arm has its own lifetime schedule, so a killed proof leaves nothing that stays. The next proof of the
same learn.yaml and folder finds the remaining arms by their names. It deletes them if their tag is this
folder's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

from peagle_bench.compare.deployments import refuse_taken_names
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.files import write_file
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import delete
from peagle_sm.service.inventory.resources import Belongings, belongings_of
from peagle_sm.service.progress import Progress

MARK = "learn"  #: tag of the arms: the spec's name, and the mark of the folder that the proof runs in
_MARK_FILE, _MARK = "arms", re.compile(r"[0-9a-f]{12}")


def mark_of(owner: str, work: Path) -> str:
    """Return the tag of the arms of a work folder, which keeps its mark from run to run.

    A proof of the same name in another folder or on another machine has another mark: it may still run.
    """
    path = work / _MARK_FILE
    known = path.read_text("utf-8", "replace").strip() if path.is_file() else ""
    if not _MARK.fullmatch(known):
        known = uuid4().hex[:12]
        write_file(path, f"{known}\n", parents=True)
    return f"{owner}/{known}"


def arm_spec(planned: EndpointSpec, owner: str, name: str, hours: float, mark: str) -> EndpointSpec:
    """Name an arm after learn.yaml, so that the next run finds a killed proof's arm, and limit its lifetime.

    One instance is enough: requests are sent one at a time.
    """
    lifetime_hours = min(planned.lifecycle.max_lifetime_hours, hours)
    return planned.model_copy(
        update={
            "name": f"{owner}-proof-{name}",
            "placement": planned.placement.model_copy(update={"instance_count": 1}),
            "lifecycle": planned.lifecycle.model_copy(update={"max_lifetime_hours": lifetime_hours}),
            "tags": {**planned.tags, MARK: mark},
        }
    )


def leftovers_of(session: Session, arms: Collection[EndpointSpec]) -> tuple[str, ...]:
    """Return the arms that a killed proof of the same learn.yaml and folder left behind.

    Everything with an arm's name must have the arm's tag. A schedule has no tags, so it counts only where it
    is the only resource of that name.

    Raises:
        PlanRefused: something else has the name of an arm, perhaps an arm of a proof that still runs.
    """
    remaining = []
    for arm in arms:
        belongings, mark = belongings_of(session, arm.name), arm.tags[MARK]
        marks = [tags.get(MARK, "none") for tags in _tags_of_all(session, belongings)]
        others = sorted({other for other in marks if other != mark})
        if others:
            raise PlanRefused(
                f"endpoint {arm.name} exists, and no proof in this folder created it (its tag {MARK}:"
                f" {', '.join(others)}). Nothing was created.",
                next_step="A proof of the same name may run in another folder or on another machine: wait for"
                " it. If it was killed and its folder is lost, its lifetime schedule deletes it; after that,"
                f" `peagle-sm delete {arm.name}` deletes the rest. Otherwise give learn.yaml another name.",
                details={"findings": [], "marks": marks},
            )
        if marks or (belongings.lifetime is not None and belongings.lifetime.stack is None):
            remaining.append(arm.name)
    refuse_taken_names(session, [arm.name for arm in arms if arm.name not in remaining])
    return tuple(remaining)


def _tags_of_all(session: Session, belongings: Belongings) -> Iterator[Mapping[str, str]]:
    """Yield the tags of everything that peagle-sm created under a name."""
    endpoint = [] if belongings.endpoint is None else [belongings.endpoint.arn]
    described = (
        *(control.describe_endpoint_config(session, name) for name in belongings.configs),
        *(control.describe_model(session, name) for name in belongings.models),
    )
    for arn in (*endpoint, *(facts.arn for facts in described if facts is not None)):
        tags = control.tags_of(session, arn)
        if tags is not None:  # None: deleted since
            yield tags


def remove_leftovers(
    session: Session, arms: Collection[EndpointSpec], shown: Collection[str], progress: Progress | None
) -> None:
    """Delete what a killed proof left: endpoints, configs, models and schedules.

    ``shown`` are the names in the confirmation prompt. A name that is not of that proof any more is kept.

    Raises:
        PlanRefused: something else has the name of an arm by now. Nothing was deleted.
        BillableLeft: a deletion could not be confirmed.
    """
    remaining = [name for name in leftovers_of(session, arms) if name in shown]
    delete(remaining, session=session, progress=progress, missing_ok=True)
