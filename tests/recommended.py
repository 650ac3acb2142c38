"""The five recommended specs (docs/examples) on the two instance types they are recommended on."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service.spec_to_plan import load_spec

GPUS = {"ml.g7e.2xlarge": 1, "ml.p6-b200.48xlarge": 8}
_FOLDER = Path(__file__).parents[1] / "docs" / "examples"
PATHS = sorted(path for path in _FOLDER.glob("*.yaml") if not path.name.startswith("smollm2-"))
PLACES = [(path.stem, instance_type) for path in PATHS for instance_type in GPUS]


@cache
def placed(stem: str, instance_type: str) -> EndpointSpec:
    """An example on an instance type: a replica on every GPU, and a budget that two hours stay within."""
    spec = load_spec(_FOLDER / f"{stem}.yaml")
    fields = spec.model_dump()
    fields["placement"]["instance_types"] = [instance_type]
    fields["serving"] |= {"tensor_parallel_size": 1, "data_parallel_size": GPUS[instance_type]}
    fields["lifecycle"] |= {"max_lifetime_hours": 2, "budget_usd": 300}
    return EndpointSpec.model_validate(fields)
