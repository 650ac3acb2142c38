"""JSON of JumpStart's bucket becomes typed records, or an error that names the document and the field."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from peagle_sm.core.errors import ServiceFault, SpecError
from peagle_sm.core.spec.complaints import explain, show

AnyRecord = TypeVar("AnyRecord", bound=BaseModel)

_STEP = (
    "AWS's document is not as it used to be: say so at this project's issues, and meanwhile use source: "
    "container with model_uri and head_uri."
)


class Record(BaseModel):
    """A part of a document; fields that nothing here needs are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class CatalogueDamaged(ServiceFault):
    """A manifest or spec of JumpStart's that cannot be read: a fault on AWS's side."""


def load_json(content: bytes, origin: str) -> Any:
    """Read JSON; ``origin`` (an S3 URI, say) opens the message.

    Raises:
        CatalogueDamaged: not UTF-8, or not JSON.
    """
    try:
        return json.loads(content)
    except UnicodeDecodeError as error:
        raise CatalogueDamaged(f"{origin}: not UTF-8 text: {error.reason}", next_step=_STEP) from error
    except json.JSONDecodeError as error:
        raise CatalogueDamaged(
            f"{origin}: not JSON at line {error.lineno}, column {error.colno}: {error.msg}", next_step=_STEP
        ) from error
    except RecursionError as error:
        raise CatalogueDamaged(f"{origin}: nested too deeply", next_step=_STEP) from error


def check_record(model: type[AnyRecord], data: Any, origin: str) -> AnyRecord:
    """Make a record of JSON's data.

    Raises:
        CatalogueDamaged: a field is missing or of another kind; the message names each.
    """
    try:
        # strict as JSON is: a list stands for a tuple, and a text never for a number
        return model.model_validate_json(json.dumps(data))
    except ValidationError as error:
        told: SpecError = explain(error, origin=origin, model=model)
        raise CatalogueDamaged(told.message, next_step=_STEP, details=told.details) from error


def damaged(origin: str, found: Any, allowed: str) -> CatalogueDamaged:
    """The error for a value that is not what it must be."""
    return CatalogueDamaged(f"{origin}: found {show(found)}; allowed: {allowed}", next_step=_STEP)
