"""The set-up of a published table as a comparison: scale, specs of the modes, S3 prefixes. Pure.

On the stand-ins everything is smaller, and the table's engine settings, which are for a GPU, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.catalog import Catalog
from peagle_sm.core.published import PublishedTable
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Mode
from peagle_sm.measure.compare.arms import specs_of
from peagle_sm.measure.compare.measurement import START_UP_MINUTES, Setup, minutes_of
from peagle_sm.measure.load import WorkItem
from peagle_sm.measure.results.records import Load

STAND_IN_MODEL = "tiny-code"
#: On the stand-ins, so that the whole path takes a minute or two.
LOCAL_PROMPTS, LOCAL_TOKENS, LOCAL_BLOCKS, LOCAL_CONCURRENCY = 8, 64, 2, 2
BLOCKS = 6
_HIGHEST_LIFETIME_H = 168.0


@dataclass(frozen=True)
class Scale:
    """Size of a measurement; ``prompts`` None is all of the workload."""

    prompts: int | None
    max_tokens: int
    concurrency: tuple[int, ...]
    blocks: int

    def setup(self, items: Sequence[WorkItem]) -> Setup:
        """Return the setup of a comparison, checked.

        Raises:
            SpecError: too few prompts for an interval.
        """
        found = Setup(
            items=tuple(items),
            loads=tuple(Load("closed", concurrency=number) for number in self.concurrency),
            blocks=self.blocks,
            repeat=True,  # a published table sends few prompts at a high concurrency
            temperature=0.0,
        )
        found.check()
        return found


def scale_of(
    table: PublishedTable,
    *,
    local: bool,
    prompts: int | None = None,
    max_tokens: int | None = None,
    concurrency: Sequence[int] | None = None,
) -> Scale:
    """Return the table's own size, or a small one for the stand-ins; what is given replaces either."""
    wanted = table.workload
    few = tuple(each for each in table.concurrency if each <= LOCAL_CONCURRENCY) or table.concurrency[:1]
    return Scale(
        prompts or (LOCAL_PROMPTS if local else wanted.prompts),
        max_tokens or (LOCAL_TOKENS if local else wanted.max_tokens),
        tuple(concurrency or (few if local else table.concurrency)),
        LOCAL_BLOCKS if local else BLOCKS,
    )


def staging(table: PublishedTable, modes: Sequence[Mode], artifacts: str, catalog: Catalog) -> dict[str, str]:
    """Return the S3 prefixes that a table needs, with the command that fills each.

    The target has the P-EAGLE head below it, as `heads stage` puts it; the EAGLE-3 head has its own prefix.
    """
    heads = table.used_heads(catalog)
    target = f"{artifacts}{table.model}/"
    first = f"peagle-sm heads stage {table.model} --head {heads['p-eagle']} --to {target}"
    found = {target: first}
    for mode, uri in head_prefixes(table, modes, artifacts, catalog).items():
        own = f"peagle-sm heads stage {heads[mode]} --to {uri}"
        found[uri] = first if uri.startswith(target) else own
    return found


def head_prefixes(
    table: PublishedTable, modes: Sequence[Mode], artifacts: str, catalog: Catalog
) -> dict[Mode, str]:
    """Return the S3 prefix of each mode's head."""
    heads = table.used_heads(catalog)
    places: dict[Mode, str] = {
        "p-eagle": f"{artifacts}{table.model}/p-eagle/",
        "eagle3": f"{artifacts}{heads.get('eagle3')}/",
    }
    return {mode: places[mode] for mode in modes if mode in heads}


def stand_in_specs(
    name: str, modes: Sequence[Mode], ks: Mapping[Mode, int], catalog: Catalog, *, deployments: int
) -> list[dict[Mode, EndpointSpec]]:
    """Return the modes' specs on the stand-ins, for each deployment; K is at most the trained depth."""
    base = EndpointSpec(name=name, model=STAND_IN_MODEL, speculation={"mode": "none"})
    depths: dict[str, int | None] = {
        head.method: head.trained_depth for head in catalog.heads_for(STAND_IN_MODEL).values()
    }
    used = {str(mode): min(k, depths.get(mode) or k) for mode, k in ks.items()}
    return [
        specs_of(base, modes, ks=used, heads={}, deployment=number) for number in range(1, deployments + 1)
    ]


def specs_for(
    name: str,
    table: PublishedTable,
    modes: Sequence[Mode],
    ks: Mapping[Mode, int],
    catalog: Catalog,
    *,
    artifacts: str,
    roles: tuple[str, str],
    minutes: float,
    deployments: int = 1,
    instance_type: str | None = None,
    image: str | None = None,
) -> list[dict[Mode, EndpointSpec]]:
    """Return the modes' specs with the table's flags, for each deployment.

    Args:
        name: stem of the endpoints' names.
        table: the published table.
        modes: its modes to measure.
        ks: num_speculative_tokens of each mode that speculates.
        catalog: the catalogue.
        artifacts: S3 prefix, filled as `staging` says.
        roles: ARNs of the execution and the scheduler role.
        minutes: estimate of one deployment, for the lifetime.
        deployments: their number.
        instance_type: None is the table's.
        image: None is the catalogue's.

    Raises:
        SpecError: a field is invalid, for example an S3 prefix.
    """
    fields: dict[str, Any] = {
        "name": name,
        "model": table.model,
        "source": "container",
        "speculation": {"mode": "none"},
        "serving": table.serving.model_dump(exclude_unset=True),
        "placement": {"instance_types": [instance_type or table.instance_type]},
        "lifecycle": {"max_lifetime_hours": lifetime_hours(minutes)},
        "model_uri": f"{artifacts}{table.model}/",
        "execution_role_arn": roles[0],
        "scheduler_role_arn": roles[1],
    }
    base = EndpointSpec(**fields, **({"image": image} if image else {}))
    heads = {str(mode): head for mode, head in table.used_heads(catalog).items() if mode in modes}
    uris = {str(mode): uri for mode, uri in head_prefixes(table, modes, artifacts, catalog).items()}
    used = {str(mode): k for mode, k in ks.items()}
    return [
        specs_of(base, modes, ks=used, heads=heads, head_uris=uris, deployment=number)
        for number in range(1, deployments + 1)
    ]


def minutes_of_deployment(setup: Setup, arms: int) -> float:
    """Estimate one deployment on AWS in minutes; ``arms`` includes the control."""
    return START_UP_MINUTES + minutes_of(setup, arms)


def lifetime_hours(minutes: float) -> float:
    """Return a lifetime for a measurement of ``minutes``: 1.5 times as long and an hour, at least 2 hours."""
    return min(_HIGHEST_LIFETIME_H, max(2.0, math.ceil(1.5 * minutes / 60) + 1.0))
