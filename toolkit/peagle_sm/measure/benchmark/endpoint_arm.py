"""Describe what is measured: a SageMaker endpoint by its name, or a bare vLLM server by its URL.

The result is an arm: its mode, model, image, instance type and price. A bare server is asked over plain HTTP.
"""

from __future__ import annotations

import hashlib
import json
import math
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.prices import hourly
from peagle_sm.aws.control.sagemaker import component_names, describe_component
from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.session.signing import is_remote
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault, SpecError
from peagle_sm.core.spec.endpoint_spec import MODES
from peagle_sm.measure.results.records import ArmRecord, Mode
from peagle_sm.service.inventory.inspection import EndpointStatus, status

TIMEOUT_S = 10


def opener_for(url: str) -> urllib.request.OpenerDirector:
    """What opens an address: by the proxies of the environment, but for a server on this machine.

    As the load client goes (`Target.remote`), so that both reach the same server.
    """
    if is_remote(url):
        return urllib.request.build_opener()
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def read_url(address: str) -> str:
    """The text at an address of a bare vLLM.

    Raises:
        NotFound: the server has no such page.
        ServiceFault: it does not answer.
    """
    try:
        with opener_for(address).open(address, timeout=TIMEOUT_S) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        raise NotFound(f"{address} answers {error.code}", next_step="check the address") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ServiceFault(
            f"nothing answers at {address}: {reason}",
            operation="GET",
            next_step="check that the server runs, and its address",
        ) from error


IN_SERVICE = "InService"


@dataclass(frozen=True)
class Described:
    """An arm, whether it serves the small stand-in weights, and what else a results file says of it."""

    arm: ArmRecord
    stand_in_weights: bool
    origin: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None  #: the longest prompt and answer together, in tokens, where it is known

    def priced(self, usd_per_hour: float) -> Described:
        """The same at a price that the user gives."""
        arm = replace(self.arm, usd_per_hour=usd_per_hour, price_source="given by the user")
        return replace(self, arm=arm)


def is_url(endpoint: str) -> bool:
    """Whether it is an address rather than the name of an endpoint."""
    return endpoint.startswith(("http://", "https://"))


def describe_endpoint(session: Session, name: str, *, component: str | None = None) -> Described:
    """Describe an endpoint of SageMaker that serves.

    Raises:
        NotFound: there is none of that name, or no such component.
        ServiceFault: it is not in service.
        SpecError: it runs inference components, and which one is not clear.
    """
    found = status(name, session=session)
    row = found.summary
    if row.status != IN_SERVICE:
        flags = session.command_flags()
        remedy = (
            f"peagle-sm resume {name}{flags}" if row.status == "Paused" else f"peagle-sm status {name}{flags}"
        )
        raise ServiceFault(
            f"endpoint {name!r} is {row.status}, and only an endpoint in service can be measured"
            + (f": {found.failure_reason}" if found.failure_reason else ""),
            operation="DescribeEndpoint",
            code=row.status,
            next_step=f"look at it, or bring it up: {remedy}",
        )
    price = hourly(session, row.instance_type, row.instance_count or 1)
    asked = choose_component(session, name, component)
    arm = ArmRecord(
        name=name if component is None else f"{name}/{component}",
        mode=_mode(found),
        num_speculative_tokens=(found.speculative_config or {}).get("num_speculative_tokens"),
        endpoint=name,
        component=asked,
        transport="sagemaker",
        instance_type=row.instance_type,
        instance_count=row.instance_count or 1,
        usd_per_hour=price.usd_per_hour,
        price_source=price.source,
        deployment=row.created_at.isoformat(timespec="seconds") if row.created_at else None,
        gpus=None if asked is None else gpus_of(session, asked),
    )
    origin = {
        "spec_sha256": row.spec_hash,
        "image": found.image,
        "speculative_config": found.speculative_config,
        "region": session.region,
        "engine": found.engine,
    }
    return Described(arm, session.is_local or (found.image or "").endswith("-cpu"), origin)


def describe_url(
    url: str, *, mode: Mode = "unknown", usd_per_hour: float | None = None, name: str | None = None
) -> Described:
    """Describe a bare vLLM; its mode cannot be asked for, so ``mode`` is what the caller says it runs.

    Raises:
        SpecError: no address of a server.
        ServiceFault: nothing answers there as OpenAI's API does.
    """
    parts = urlsplit(url)
    if not parts.hostname or parts.query or parts.fragment:
        raise SpecError(
            f"{url!r} is no address of a server; allowed: http://HOST:PORT or https://HOST",
            next_step="give the address that the server prints when it starts",
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
        _is_shipped(model.get("root")),
        {"model": model.get("id"), "max_model_len": context},
        context if isinstance(context, int) else None,
    )


def demand_mode(described: Described, expected: Mode) -> Described:
    """The arm in the mode that was expected; where its mode is not known, it is taken to be that.

    Raises:
        SpecError: the endpoint runs another mode.
    """
    arm = described.arm
    if arm.mode == "unknown":
        return replace(described, arm=replace(arm, mode=expected))
    if arm.mode != expected:
        raise SpecError(
            f"endpoint {arm.name!r} runs mode {arm.mode}; expected was {expected}",
            next_step="measure another endpoint, or deploy one in that mode (speculation.mode in its spec)",
            details={"mode": arm.mode, "expected": expected},
        )
    return described


def look_at(session: Session | None, arm: ArmRecord) -> str | None:
    """How an arm that stopped answering looks now, in words; None where that cannot be found out."""
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
        return "the endpoint does not exist any more"
    return f"the endpoint is {facts.status}" + (f": {facts.failure_reason}" if facts.failure_reason else "")


def _mode(found: EndpointStatus) -> Mode:
    """What its tags say; of a foreign endpoint, what its model's environment says."""
    if found.summary.mode in MODES:
        return cast(Mode, found.summary.mode)
    told = found.speculative_config
    if told is None:
        return "unknown"
    return (
        "p-eagle"
        if told.get("parallel_drafting")
        else "eagle3"
        if told.get("method") == "eagle3"
        else "unknown"
    )


def choose_component(session: Session, name: str, asked: str | None) -> str | None:
    """The component asked for; else none where the endpoint runs a model, or its own, or the only one.

    Raises:
        NotFound: the endpoint has no such component.
        SpecError: it has several, and which one to measure is not clear.
    """
    found = component_names(session, name)
    if asked is not None and asked not in found:
        raise NotFound(
            f"endpoint {name!r} has no inference component {asked!r}; it has: {', '.join(found) or 'none'}",
            next_step="name one of its components with --component, or leave it out where it has none",
            details={"found": asked, "allowed": list(found)},
        )
    if asked is not None or not found:
        return asked
    if name in found or len(found) == 1:
        return name if name in found else found[0]
    raise SpecError(
        f"endpoint {name!r} runs the inference components {', '.join(found)}, and which one to measure is not"
        " clear",
        next_step=f"name one, for example --component {found[0]}",
        details={"components": list(found)},
    )


def gpus_of(session: Session, component: str) -> int | None:
    """How many GPUs one copy of a component has; None where that is not told."""
    try:
        told = describe_component(session, component) or {}
    except PeagleError:  # costs the price of a copy, not the measurement
        return None
    needs = told.get("Specification", {}).get("ComputeResourceRequirements", {})
    count = needs.get("NumberOfAcceleratorDevicesRequired")
    return None if count is None else math.ceil(count)


def _served_model(url: str) -> dict[str, Any]:
    address = f"{url.rstrip('/')}/v1/models"
    try:
        document = json.loads(read_url(address))
        (model, *_) = document["data"]
    except (ValueError, LookupError, TypeError) as error:
        raise ServiceFault(
            f"{address} does not answer as OpenAI's API does: {error}",
            operation="GET /v1/models",
            next_step="give the address of a vLLM server, without a path",
        ) from error
    return model if isinstance(model, dict) else {}


def _is_shipped(root: object) -> bool:
    """Whether a server on this machine serves the weights that ship with peagle-sm."""
    if not isinstance(root, str):
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
