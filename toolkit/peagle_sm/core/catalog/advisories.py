"""Known faults of engine versions, each with the day from which it must be looked at again."""

from __future__ import annotations

import datetime as dt
from functools import cache
from importlib import resources

import yaml
from pydantic import BaseModel, ConfigDict

from peagle_sm.core.catalog.images import version_of
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.endpoint_spec import Mode


class Advisory(BaseModel):
    """One fault: ``what`` happens, before which vLLM, to which models and modes (None: to all)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    what: str
    security: bool = False
    fixed_in: str | None = None
    models: tuple[str, ...] | None = None
    modes: tuple[Mode, ...] | None = None
    min_context: int | None = None
    source: str
    url: str
    date: dt.date
    expires: dt.date

    def meets(self, draft: Draft) -> bool:
        """Whether the spec can meet it; an image of unknown version cannot be said to."""
        version = draft.image.version if draft.image else None
        return (
            version is not None
            and (self.fixed_in is None or version < version_of(self.fixed_in))
            and (self.models is None or draft.spec.model in self.models)
            and (self.modes is None or draft.mode in self.modes)
            and (self.min_context is None or (draft.max_model_len or 0) >= self.min_context)
        )


@cache
def load_advisories() -> tuple[Advisory, ...]:
    """Read the packaged list."""
    text = resources.files("peagle_sm.core").joinpath("data", "advisories.yaml").read_text(encoding="utf-8")
    return tuple(Advisory.model_validate(row) for row in yaml.safe_load(text))


def expiry_words(expires: dt.date, today: dt.date | None) -> str:
    """Say until when an advisory is believed; ``today`` None leaves the judgement to the reader."""
    if today is not None and today >= expires:
        return f"this advisory expired on {expires}: look whether it still holds, or upgrade peagle-sm"
    return f"believed until {expires}"
