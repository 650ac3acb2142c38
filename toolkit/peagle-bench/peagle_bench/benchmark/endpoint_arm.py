"""Describe what is measured: a SageMaker endpoint by its name, or a bare vLLM server by its URL.

The result is an arm: its mode, model, image, instance type and price.
"""

from __future__ import annotations

import hashlib
import json
import math
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from peagle_bench.results.records import ArmRecord, Mode
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import component_names, describe_component
from peagle_sm.aws.session.local_server import is_installed, stand_in_weights
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.session.signing import is_remote
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault, SpecError
from peagle_sm.core.served_target import ServedTarget
from peagle_sm.core.spec.modes import MODES, mode_of_config

if TYPE_CHECKING:
    from peagle_sm.service.inventory.endpoint_status import EndpointStatus

TIMEOUT_S = 10


def opener_for(url: str) -> urllib.request.OpenerDirector:
    """Return a URL opener: with the environment's proxies for remote servers, without for local ones.

    The load client follows the same rule (`Target.remote`), so both reach the same server.
    """
    if is_remote(url):
        return urllib.request.build_opener()
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def read_url(address: str) -> str:
    """Fetch the text at a URL of a bare vLLM.

    Raises:
        NotFound: the server has no such page.
        ServiceFault: it does not answer.
    """
    try:
        with opener_for(address).open(address, timeout=TIMEOUT_S) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        raise NotFound(f"{address} answers HTTP {error.code}", next_step="check the URL") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ServiceFault(
            f"no server answers at {address}: {reason}",
            operation="GET",
            next_step="check that the server runs, and check the URL",
        ) from error


IN_SERVICE = "InService"


@dataclass(frozen=True)
class Described:
    """An arm, its origin for the results file, and the model that it serves."""

    arm: ArmRecord
    target: ServedTarget
    origin: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None  #: context length in tokens (prompt and answer); None if unknown

    def priced(self, usd_per_hour: float) -> Described:
        """Return a copy with a price given by the user."""
        arm = replace(self.arm, usd_per_hour=usd_per_hour, price_source="given by the user")
        return replace(self, arm=arm)


def targets_of(targets: Iterable[ServedTarget]) -> dict[str, Any]:
    """Return a header's fields about the targets that were measured."""
    every = [*targets]
    labels = dict.fromkeys(each.figures_of for each in every if each.figures_of)
    return {
        "stand_in_weights": any(each.stand_in for each in every),
        "figures_of": ", ".join(labels) or None,
    }


def is_url(endpoint: str) -> bool:
    """Decide whether ``endpoint`` is a URL rather than the name of an endpoint."""
    return endpoint.startswith(("http://", "https://"))


def describe_endpoint(
    session: Session, name: str, *, component: str | None = None, synthetic: bool = False
) -> Described:
    """Describe a SageMaker endpoint that is in service; ``synthetic`` allows one of `tune --synthetic`.

    Raises:
        NotFound: the endpoint or its component does not exist.
        ServiceFault: the endpoint is not in service.
        SpecError: the endpoint runs several inference components, and none was named; or its acceptance is
            synthetic.
    """
    from peagle_bench.prices import hourly
    from peagle_sm.service.inventory.inspection import status  # a bare server needs neither

    facts = status(name, session=session)
    if not synthetic:
        facts.demand_real()
    row = facts.summary
    if row.status != IN_SERVICE:
        flags = session.command_flags()
        remedy = (
            f"peagle-sm resume {name}{flags}" if row.status == "Paused" else f"peagle-sm status {name}{flags}"
        )
        raise ServiceFault(
            f"endpoint {name!r} is {row.status}; only an InService endpoint can be measured"
            + (f": {facts.failure_reason}" if facts.failure_reason else ""),
            operation="DescribeEndpoint",
            code=row.status,
            next_step=f"run {remedy}",
        )
    count = row.instance_count or 1
    planned = None if row.usd_per_hour is None else row.usd_per_hour / count
    price = hourly(session, row.instance_type, count, planned=planned)
    chosen = choose_component(session, name, component)
    gpus, copies = (None, None) if chosen is None else size_of(session, chosen)
    arm = ArmRecord(
        name=name if component is None else f"{name}/{component}",
        mode="unknown" if facts.synthetic else _mode(facts),
        num_speculative_tokens=(facts.speculative_config or {}).get("num_speculative_tokens"),
        endpoint=name,
        component=chosen,
        transport="sagemaker",
        instance_type=row.instance_type,
        instance_count=count,
        usd_per_hour=price.usd_per_hour,
        price_source=price.source,
        deployment=row.created_at.isoformat(timespec="seconds") if row.created_at else None,
        gpus=gpus,
        copies=copies,
    )
    origin = {
        "spec_sha256": row.spec_hash,
        "target": facts.target.name,
        "image": facts.image,
        "speculative_config": facts.speculative_config,
        "region": session.region,
        "engine": facts.engine,
    }
    return Described(arm, facts.target, origin)


def describe_url(
    url: str, *, mode: Mode = "unknown", usd_per_hour: float | None = None, name: str | None = None
) -> Described:
    """Describe a bare vLLM server; it does not report its mode, so the caller gives ``mode``.

    Raises:
        SpecError: ``url`` is not a server URL.
        ServiceFault: no OpenAI-compatible server answers there.
    """
    parts = urlsplit(url)
    if not parts.hostname or parts.query or parts.fragment:
        raise SpecError(
            f"{url!r} is not a server URL; allowed: http://HOST:PORT or https://HOST",
            next_step="give the URL that the server prints when it starts",
        )
    model = _served_model(url)
    arm = ArmRecord(
        name=name or parts.netloc,
        mode=mode,
        num_speculative_tokens=None,
        endpoint=url.rstrip("/"),
        transport="http",
        usd_per_hour=usd_per_hour,
        price_source=None if usd_per_hour is None else "given by the user",
    )
    context = model.get("max_model_len")
    return Described(
        arm,
        ServedTarget(stand_in=_is_shipped(model.get("root"))),
        {"model": model.get("id"), "max_model_len": context},
        context if isinstance(context, int) else None,
    )


def demand_mode(described: Described, expected: Mode) -> Described:
    """Check that the arm runs the expected mode; an unknown mode is taken to be the expected one.

    Raises:
        SpecError: the endpoint runs another mode.
    """
    arm = described.arm
    if arm.mode == "unknown":
        return replace(described, arm=replace(arm, mode=expected))
    if arm.mode != expected:
        raise SpecError(
            f"endpoint {arm.name!r} runs mode {arm.mode}; expected {expected}",
            next_step="measure another endpoint, or deploy one in that mode (speculation.mode in its spec)",
            details={"mode": arm.mode, "expected": expected},
        )
    return described


def describe_arm(
    session: Session | None,
    endpoint: str,
    *,
    component: str | None = None,
    expected: Mode | None = None,
    usd_per_hour: float | None = None,
) -> Described:
    """Describe a URL's server, or an endpoint of this session, and check its mode if one is expected.

    ``endpoint`` may be ``NAME/COMPONENT``. ``usd_per_hour`` is a price given by the user. Errors as in the
    three functions that it calls.
    """
    if session is None or is_url(endpoint):
        described = describe_url(endpoint)
    else:
        name, _, part = endpoint.partition("/")
        described = describe_endpoint(session, name, component=component or part or None)
    if usd_per_hour is not None:
        described = described.priced(usd_per_hour)
    return described if expected is None else demand_mode(described, expected)


def look_at(session: Session | None, arm: ArmRecord) -> str | None:
    """Describe the present state of an arm that stopped answering, in words; None if unknown."""
    if arm.transport == "http" or session is None:
        try:
            read_url(f"{arm.endpoint}/health")
        except PeagleError as error:
            return error.message
        return "its server still answers at /health"
    try:
        facts = control.describe_endpoint(session, arm.endpoint)
    except PeagleError:
        return None
    if facts is None:
        return "the endpoint no longer exists"
    return f"the endpoint is {facts.status}" + (f": {facts.failure_reason}" if facts.failure_reason else "")


def _mode(status: EndpointStatus) -> Mode:
    """Read the mode from the tags, or from the model's environment if peagle-sm did not create it."""
    if status.summary.mode in MODES:
        return cast(Mode, status.summary.mode)
    config = status.speculative_config
    if config is None:
        return "unknown"
    return mode_of_config(config) or "unknown"


def choose_component(session: Session, name: str, asked: str | None) -> str | None:
    """Choose the inference component: the named one, else the endpoint's own, or the only one.

    Raises:
        NotFound: the endpoint has no such component.
        SpecError: the endpoint has several, and none was named.
    """
    hosted = component_names(session, name)
    if asked is not None and asked not in hosted:
        raise NotFound(
            f"endpoint {name!r} has no inference component {asked!r}; it has: {', '.join(hosted) or 'none'}",
            next_step=f"give one of its components as {name}/COMPONENT, or {name} alone if it has none",
            details={"found": asked, "allowed": list(hosted)},
        )
    if asked is not None or not hosted:
        return asked
    if name in hosted or len(hosted) == 1:
        return name if name in hosted else hosted[0]
    raise SpecError(
        f"endpoint {name!r} runs several inference components: {', '.join(hosted)}; name the one to measure",
        next_step=f"give for example {name}/{hosted[0]}",
        details={"components": list(hosted)},
    )


def size_of(session: Session, component: str) -> tuple[int | None, int | None]:
    """Return the number of GPUs of one copy of a component, and its copies in service; None if unknown."""
    try:
        description = describe_component(session, component) or {}
    except PeagleError:  # without it the price of a copy is unknown; the measurement goes on
        return None, None
    needs = description.get("Specification", {}).get("ComputeResourceRequirements", {})
    gpus = needs.get("NumberOfAcceleratorDevicesRequired")
    copies = description.get("RuntimeConfig", {}).get("CurrentCopyCount")
    return None if gpus is None else math.ceil(gpus), copies or None


def _served_model(url: str) -> dict[str, Any]:
    address = f"{url.rstrip('/')}/v1/models"
    try:
        document = json.loads(read_url(address))
        (model, *_) = document["data"]
    except (ValueError, LookupError, TypeError) as error:
        raise ServiceFault(
            f"{address} does not answer like the OpenAI API: {error}",
            operation="GET /v1/models",
            next_step="give the URL of a vLLM server, without a path",
        ) from error
    return model if isinstance(model, dict) else {}


def _is_shipped(root: object) -> bool:
    """Decide whether a server on this machine serves the weights that ship with peagle-sm."""
    if not isinstance(root, str) or not is_installed():
        return False
    shipped = stand_in_weights() / "target" / "model.safetensors"
    weights = Path(root) / shipped.name
    try:
        if weights.stat().st_size != shipped.stat().st_size:
            return False
        return _digest(weights) == _digest(shipped)
    except OSError:
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
