"""Context of `cdk -c`, the spec files that it names, and the plan of each spec.

Reads files; makes no AWS call and reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from peagle_sm import load_spec
from peagle_sm.aws.control.price_file import find_kept
from peagle_sm.core import guard as guard_names
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import PlanRefused, SpecError
from peagle_sm.core.plan.resolve import PLACEHOLDER_ACCOUNT, Context, resolve
from peagle_sm.core.planning import Plan, plan_of
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.validation import SpecPart, explain

# The CDK CLI's own keys contain a colon, a slash or an @; this one is the exception.
_THE_CDKS = frozenset({"acknowledged-issue-numbers"})


class StandIns(SpecPart):
    """URIs of the models for this machine and of the image that runs them (`cdk.json`)."""

    image_uris: dict[str, str] = Field(default_factory=dict)
    artifacts: dict[str, str] = Field(default_factory=dict)


class _Keys(SpecPart):
    """The app's own context keys; ``spec`` has files, separated by commas, or a folder."""

    spec: str | None = None
    email: Annotated[str, Field(pattern=r"^[^@\s,]+@[^@\s,]+\.[^@\s,]+$")] | None = None
    image: Literal["on", "off"] = "off"
    training: Literal["on", "off"] = "off"
    stand_ins: StandIns = StandIns()


@dataclass(frozen=True)
class Wanted:
    """Context values of one run of the app."""

    specs: tuple[EndpointSpec, ...]
    email: str | None
    stand_ins: StandIns
    image: bool = False
    training: bool = False

    @property
    def region(self) -> str | None:
        """Region of the specs; None if the CDK CLI decides."""
        return next((spec.placement.region for spec in self.specs if spec.placement.region), None)


def read_context(context: Mapping[str, Any], default_spec: Path | None = None) -> Wanted:
    """Read the context of an app; without specs in it, ``default_spec`` if that file exists.

    Raises:
        SpecError: an unknown key, a spec that cannot be read, two specs of one name, several regions.
    """
    own = {key: value for key, value in context.items() if not (set("@:/") & set(key) or key in _THE_CDKS)}
    try:
        keys = _Keys(**own)
    except ValidationError as error:
        raise explain(error, origin="context of the CDK (-c, or cdk.json)", model=_Keys) from error
    if keys.spec is not None:
        files = _files(keys.spec)
    else:
        files = [default_spec] if default_spec is not None and default_spec.is_file() else []
    specs = [(path, load_spec(path)) for path in files]
    _one_of_each_name(specs)
    _one_region(specs)
    return Wanted(
        specs=tuple(spec for _, spec in specs),
        email=keys.email,
        stand_ins=keys.stand_ins,
        image=keys.image == "on",
        training=keys.training == "on",
    )


def _files(value: str) -> list[Path]:
    names = [name.strip() for name in value.split(",")]
    if not all(names):
        raise SpecError(
            f"context key spec: found {value!r}; allowed: spec files, separated by commas, or a folder",
            next_step="Give -c spec=peagle.yaml.",
        )
    return [path for name in names for path in _expanded(Path(name))]


def _expanded(path: Path) -> Iterable[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(item for item in path.iterdir() if item.suffix in (".yaml", ".yml"))
    if not files:
        raise SpecError(
            f"{path}: the folder has no spec; allowed: files that end in .yaml or .yml",
            next_step="Give another folder, or write a spec with `peagle-sm init`.",
        )
    return files


def _one_of_each_name(specs: Sequence[tuple[Path, EndpointSpec]]) -> None:
    seen: dict[str, Path] = {}
    for path, spec in specs:
        if spec.name in seen:
            raise SpecError(
                f"name: found {spec.name!r} in both {seen[spec.name]} and {path}; "
                "allowed: one spec for each name",
                next_step="Rename one of the two endpoints.",
            )
        seen[spec.name] = path


def _one_region(specs: Sequence[tuple[Path, EndpointSpec]]) -> None:
    regions = {spec.placement.region: path for path, spec in specs if spec.placement.region}
    if len(regions) > 1:
        places = ", ".join(f"{region} in {path}" for region, path in sorted(regions.items()))
        raise SpecError(
            f"placement.region: found {places}; allowed: one region per run, since each has its own guard",
            next_step="Run cdk once for each region.",
        )


EXECUTION_ROLE = "${ExecutionRoleArn}"
SCHEDULER_ROLE = "${SchedulerRoleArn}"


def plan_for(
    spec: EndpointSpec, region: str, stand_ins: StandIns, environment: Mapping[str, str] | None = None
) -> Plan:
    """Return the plan of a spec, with placeholders for the guard's roles.

    ``environment`` has the account of the credentials, if the CDK knows it (CDK_DEFAULT_ACCOUNT), and leads
    to the prices that `peagle-sm plan` kept. Since nothing here reads a clock, they count however old they
    are, unless the catalogue's are newer.

    Raises:
        PlanRefused: the plan has a finding of severity "error".
        SpecError: the catalogue does not have something that the spec names.
    """
    context = Context(
        account=(environment or {}).get("CDK_DEFAULT_ACCOUNT") or PLACEHOLDER_ACCOUNT,
        region=spec.placement.region or region,
        image_uris=stand_ins.image_uris,
        artifacts=stand_ins.artifacts,
        role_arn=EXECUTION_ROLE,
        scheduler_role_arn=SCHEDULER_ROLE,
        stack=guard_names.endpoint_stack(spec.name),
    )
    draft = resolve(spec, context, load_catalog())
    if environment is not None:
        prices = {name: find_kept(environment, name, context.region) for name in draft.instance_types}
        draft = draft.with_prices({name: price for name, price in prices.items() if price.entry is not None})
    plan = plan_of(draft)
    errors = plan.errors()
    if errors:
        raise PlanRefused(
            f"{spec.name}: the plan is refused: " + "; ".join(finding.message for finding in errors),
            next_step=" ".join(dict.fromkeys(finding.next_step for finding in errors)),
        )
    return plan
