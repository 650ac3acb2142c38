"""Context of `cdk -c`, the spec files that it names, and the plan of each spec.

Reads files; makes no AWS call and reads no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peagle_sm import load_spec
from peagle_sm.aws.control.price_file import find_kept
from peagle_sm.core import guard as guard_names
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import PlanRefused, SpecError
from peagle_sm.core.plan.resolve import PLACEHOLDER_ACCOUNT, Context, resolve
from peagle_sm.core.planning import Plan, plan_of
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.validation import show, suggest

KEYS = {
    "spec": "spec files, separated by commas, or a folder with spec files (default: ./peagle.yaml)",
    "email": "mail address for the alarms of these endpoints",
    "image": "on: the app also contains PeagleImage, which builds the serving image",
    "training": "on: the app also contains PeagleTraining, the role of training jobs",
    "stand_ins": "in cdk.json: location of image and weights of the small stand-in models",
}
# The CDK CLI's own keys contain a colon, a slash or an @; this one is the exception.
_THE_CDKS = frozenset({"acknowledged-issue-numbers"})

_EMAIL = re.compile(r"[^@\s,]+@[^@\s,]+\.[^@\s,]+")


@dataclass(frozen=True)
class StandIns:
    """URIs of the small stand-in weights and of the image that runs them (`cdk.json`)."""

    image_uris: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)


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
    _only_known_keys(context)
    if "spec" in context:
        files = _files(context["spec"])
    else:
        files = [default_spec] if default_spec is not None and default_spec.is_file() else []
    specs = [(path, load_spec(path)) for path in files]
    _one_of_each_name(specs)
    _one_region(specs)
    return Wanted(
        specs=tuple(spec for _, spec in specs),
        email=_email(context.get("email")),
        stand_ins=_stand_ins(context.get("stand_ins")),
        image=_switch("image", context.get("image")),
        training=_switch("training", context.get("training")),
    )


def _only_known_keys(context: Mapping[str, Any]) -> None:
    for key in context:
        of_the_cdk = key.startswith("@") or ":" in key or "/" in key or key in _THE_CDKS
        if not of_the_cdk and key not in KEYS:
            raise SpecError(
                f"unknown context key {key!r}; allowed: {', '.join(sorted(KEYS))}.{suggest(key, KEYS)}",
                next_step=f"Remove -c {key}=… or correct it (it may also be in cdk.json).",
            )


def _files(value: Any) -> list[Path]:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else []
    if not names or not all(names):
        raise SpecError(
            f"context key 'spec': found {show(value)}; allowed: {KEYS['spec']}",
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


def _email(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and _EMAIL.fullmatch(value)):
        return value
    raise SpecError(
        f"context key 'email': found {show(value)}; allowed: one address such as team@example.com",
        next_step="Correct -c email=….",
    )


def _switch(key: str, value: Any) -> bool:
    if value not in (None, "on", "off"):
        raise SpecError(
            f"context key {key!r}: found {show(value)}; allowed: on, off",
            next_step=f"Give -c {key}=on, or leave it out.",
        )
    return bool(value == "on")


def _stand_ins(value: Any) -> StandIns:
    if value is None:
        return StandIns()
    parts = value.values() if isinstance(value, dict) else [None]
    uris = [uri for part in parts for uri in (part.values() if isinstance(part, dict) else [None])]
    if not all(isinstance(uri, str) for uri in uris) or set(value) - {"image_uris", "artifacts"}:
        raise SpecError(
            f"context key 'stand_ins': found {show(value)}; allowed: image_uris and artifacts, "
            "each a mapping of names to URIs",
            next_step="Copy the entry from this project's cdk.json.",
        )
    return StandIns(**value)


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
