"""The lines of a spec that name what was staged."""

from __future__ import annotations

from peagle_sm.service.heads.planning import StagingPlan
from peagle_sm.service.heads.staging import Staged


def spec_fields(plan: StagingPlan, staged: Staged) -> dict[str, str]:
    """Fields by their dotted names: addresses, mode, and what the head is called."""
    head = plan.part("head")
    assert head is not None  # a staging without a head is not planned
    fields = {} if staged.model_uri is None else {"source": "container", "model_uri": staged.model_uri}
    fields["head_uri"] = staged.head_uri
    if plan.head.method is not None:
        fields["speculation.mode"] = plan.head.method
    fields["speculation.draft_head"] = head.place.head_id or head.place.name.rpartition("/")[2]
    return fields
