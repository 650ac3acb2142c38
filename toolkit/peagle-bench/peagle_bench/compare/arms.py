"""Arms of a comparison: endpoints given on the command line, or one spec for each mode.

Each deployment of a mode has its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from peagle_bench.benchmark.endpoint_arm import Described, describe_arm, is_url
from peagle_bench.results.records import Mode
from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import Catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.own_models import catalog_for
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, SpeculationSpec
from peagle_sm.core.spec.modes import MODES, facts_of
from peagle_sm.core.spec.modes import Mode as SpecMode

PREFIX = "cmp"  #: prefix of the name of every endpoint that a comparison deploys
ALL = "all"  #: in --modes: every mode that the target can run in
#: Warnings of a plan whose engine may not start: the deployment of all modes would fail with it.
_MAY_NOT_START = ("suffix-package",)


def parse_modes(text: str) -> dict[SpecMode, int | None]:
    """Parse ``none,eagle3=5,p-eagle`` into the K of each mode; None is the spec's or the head's.

    ``all`` adds every other mode; `deployable` then decides which of them the target can run in.

    Raises:
        SpecError: an unknown mode, a repeated one, fewer than two, or a K that is not a whole number from 1.
    """
    listed = [word.strip() for word in text.split(",") if word.strip()]
    words = [word.partition("=") for word in listed if word != ALL]
    every = ALL in listed
    ks = {mode: k if sign else None for mode, sign, k in words}
    wrong = any(
        mode not in MODES or (k is not None and (mode == "none" or not k.isdigit() or int(k) < 1))
        for mode, k in ks.items()
    )
    if wrong or len(ks) < len(words) or (len(ks) < 2 and not every) or listed.count(ALL) > 1:
        raise SpecError(
            f"--modes: found {text!r}; allowed: two or more of {', '.join(MODES)}, each once, or {ALL}; "
            "a mode that speculates may have its K, from 1.",
            next_step="For example --modes none,eagle3=5,p-eagle=7",
        )
    return {mode: int(k) if (k := ks.get(mode)) else None for mode in MODES if every or mode in ks}


def asks_for_all(text: str) -> bool:
    """Decide whether ``--modes`` asks for every mode that the target can run in."""
    return ALL in (word.strip() for word in text.split(","))


def named_modes(text: str) -> set[str]:
    """Return the modes that ``--modes`` names itself: with ``all``, these are never left out."""
    return {word.strip().partition("=")[0] for word in text.split(",")} - {ALL}


def deployable(
    base: EndpointSpec,
    modes: Mapping[SpecMode, int | None],
    named: Collection[str],
    plan_of: Callable[[EndpointSpec], Plan],
) -> tuple[dict[SpecMode, int | None], dict[SpecMode, str]]:
    """Split modes into those that the target can run in, and the others with the reason.

    Left out are modes without a draft head, whose plan has an error, or whose engine may not start. Named
    modes and ``none`` stay: what they lack is an error of the comparison.

    Raises:
        SpecError: only ``none`` is left.
    """
    kept: dict[SpecMode, int | None] = {}
    left_out: dict[SpecMode, str] = {}
    for mode, k in modes.items():
        reason = None if mode in named or mode == "none" else _cannot_run(base, mode, k, plan_of)
        if reason is None:
            kept[mode] = k
        else:
            left_out[mode] = reason
    if len(kept) < 2:
        reasons = "; ".join(f"{mode}: {reason}" for mode, reason in left_out.items())
        raise SpecError(
            f"--modes {ALL}: {base.model_name} can run in no mode but {', '.join(kept)}: {reasons}",
            next_step="Fix one of the reasons in the spec, or name the mode, as in --modes none,ngram.",
            details={"left_out": dict(left_out)},
        )
    return kept, left_out


def _cannot_run(
    base: EndpointSpec, mode: SpecMode, k: int | None, plan_of: Callable[[EndpointSpec], Plan]
) -> str | None:
    """Return why the target cannot run in a mode; None if nothing is known against it."""
    try:
        plan = plan_of(spec_of(base, mode, k=k))
    except SpecError as error:
        return error.message
    against = [*plan.errors(), *(each for each in plan.findings if each.check in _MAY_NOT_START)]
    return against[0].message if against else None


def spec_of(
    base: EndpointSpec,
    mode: SpecMode,
    *,
    k: int | None = None,
    head: str | None = None,
    head_uri: str | None = None,
    deployment: int = 1,
    catalog: Catalog | None = None,
) -> EndpointSpec:
    """Derive the spec of one arm from ``base``: another mode, own name, no schedule, no autoscaling.

    ``k`` and ``head`` default to those of ``base`` for its own mode, else to the catalogue's. ``head_uri``
    is where the head's files are; None keeps that of ``base`` for its own mode and head. Working hours,
    autoscaling and scaling to zero are removed: they would change an arm while it is measured. The lifetime
    limit stays.

    Raises:
        SpecError: a mode without a head, a name too long, or whatever EndpointSpec says.
    """
    fields: dict[str, Any] = base.model_dump(exclude_unset=True)
    own = base.speculation if base.speculation.mode == mode else None
    chosen = None
    if facts_of(mode).has_weights:
        chosen = head or (own.draft_head if own else None) or _catalogued(base, mode, catalog)
    fields["name"] = name_of(base.name, mode, str(deployment) if deployment > 1 else "")
    fields["speculation"] = {
        "mode": mode,
        "num_speculative_tokens": k or (own.num_speculative_tokens if own else None),
        "draft_head": chosen,
        **_draft_settings(own, fixed_k=k is not None),
    }
    if own is None or (head is not None and head != own.draft_head):
        fields.pop("head_uri", None)  # that of another head
    if head_uri is not None:
        fields["head_uri"] = head_uri
    for resizing in ("hours", "autoscaling"):
        fields.pop(resizing, None)
    fields["lifecycle"] = {**fields.get("lifecycle", {}), "idle": "turn-off"}
    return EndpointSpec(**fields).locked_as(base)


def _draft_settings(own: SpeculationSpec | None, *, fixed_k: bool) -> dict[str, Any]:
    """Return the base's other settings for its own mode; what changes K only if no K was asked for."""
    if own is None:
        return {}
    fields = own.model_dump(exclude_unset=True)
    without = {"mode", "num_speculative_tokens", "draft_head"}
    if fixed_k:
        without.add("num_speculative_tokens_per_batch_size")
    return {name: value for name, value in fields.items() if name not in without}


def name_of(base: str, mode: str, ending: str = "", *, prefix: str = PREFIX) -> str:
    """Return the endpoint's name: ``cmp-gpt-oss-20b-eagle3``, and ``…-2`` for a second deployment."""
    stem = base
    for known in MODES:
        stem = stem.removesuffix(f"-{known}")
    return "-".join([prefix, stem, mode, *([ending] if ending else [])])


def _catalogued(base: EndpointSpec, mode: SpecMode, catalog: Catalog | None) -> str | None:
    full_catalog = catalog_for(base, catalog)
    model = full_catalog.model(base.model_name)
    if mode in model.default_heads:
        return None  # the plan takes it
    heads = [name for name, head in full_catalog.heads_for(base.model_name).items() if head.method == mode]
    if len(heads) == 1:
        return heads[0]
    if not facts_of(mode).needs_head and model.own:
        return None  # inside the target
    if mode == "p-eagle" and (base.source or model.sources[0]) == "jumpstart":
        return None  # JumpStart's own
    raise SpecError(
        f"mode {mode}: no default draft head for {base.model_name}; "
        f"heads of this mode in the catalogue: {', '.join(heads) or 'none'}.",
        next_step=f"Set speculation.draft_head in a spec of mode {mode}, or leave {mode} out of --modes.",
        details={"mode": mode, "heads": heads},
    )


@dataclass(frozen=True)
class Named:
    """One ARM argument: its endpoints (deployments of the same arm) and its label, if any."""

    label: str | None
    endpoints: tuple[str, ...]

    @property
    def mode(self) -> Mode | None:
        """Mode given by the label, if it is one."""
        return cast(Mode, self.label) if self.label in MODES else None


def parse_arms(texts: Sequence[str]) -> list[Named]:
    """Parse ``[LABEL=]ENDPOINT[,ENDPOINT…]``; several endpoints are deployments of the same arm.

    Raises:
        SpecError: fewer than two arms, a repeated endpoint or label, or unequal numbers of deployments.
    """
    arms = [_named(text) for text in texts]
    every = [endpoint for arm in arms for endpoint in arm.endpoints]
    labels = [arm.label for arm in arms if arm.label is not None]
    counts = {len(arm.endpoints) for arm in arms}
    problem = None
    if len(arms) < 2:
        problem = f"found {len(arms)} arm(s); a comparison needs at least 2"
    elif len(set(every)) < len(every) or len(set(labels)) < len(labels):
        problem = "an endpoint or a label is given twice"
    elif len(counts) > 1:
        problem = "the arms have different numbers of deployments, and deployments are compared in pairs"
    if problem:
        raise SpecError(
            f"{' '.join(texts) or 'no arm'}: {problem}.",
            next_step="For example `peagle-sm compare plain fast`, or with two deployments of each "
            "`peagle-sm compare plain-1,plain-2 fast-1,fast-2`. An A/A control is added.",
        )
    return arms


def _named(text: str) -> Named:
    label, sign, rest = text.partition("=")
    if not sign or is_url(label):
        label, rest = "", text
    endpoints = tuple(word for word in rest.split(",") if word)
    if not endpoints or (sign and not label and not is_url(text)):
        raise SpecError(
            f"{text!r} is not an arm; allowed: [LABEL=]ENDPOINT[,ENDPOINT…].",
            next_step="Give as ENDPOINT a name, NAME/COMPONENT, or the http(s) URL of a bare vLLM.",
        )
    return Named(label or None, endpoints)


def describe(arm: Named, session_of: Callable[[], Session]) -> list[Described]:
    """Describe the deployments of an arm; ``session_of`` is called only for SageMaker endpoints.

    Raises:
        NotFound, ServiceFault: an endpoint does not exist or is not in service.
        SpecError: an endpoint runs another mode than its label says.
    """
    arms = []
    for number, endpoint in enumerate(arm.endpoints, start=1):
        session = None if is_url(endpoint) else session_of()
        name, _, component = (endpoint, "", "") if session is None else endpoint.partition("/")
        described = describe_arm(session, name, component=component or None, expected=arm.mode)
        arms.append(described if arm.label is None else called(described, arm.label, number))
    return arms


def demand_alike(deployments: Sequence[Described]) -> None:
    """Refuse deployments of one arm that run different modes, K or models.

    Raises:
        SpecError: they differ.
    """
    first, *others = deployments
    for other in others:
        for what, left, right in (
            ("mode", first.arm.mode, other.arm.mode),
            ("K", first.arm.num_speculative_tokens, other.arm.num_speculative_tokens),
            ("model", first.target.name, other.target.name),
        ):
            if left != right:
                raise SpecError(
                    f"{first.arm.endpoint},{other.arm.endpoint}: found {what} {left} and {right}; a comma "
                    "joins deployments of the same arm.",
                    next_step="Put the deployments of one arm together: `peagle-sm compare plain-1,plain-2 "
                    "fast-1,fast-2`.",
                    details={"found": [left, right]},
                )


def called(described: Described, label: str, deployment: int) -> Described:
    """Name an arm after its label: ``p-eagle``, and ``p-eagle@2`` in the second deployment."""
    name = label if deployment == 1 else f"{label}@{deployment}"
    return replace(described, arm=replace(described.arm, name=name))
