"""The plan of one engine, made from a model and a variant."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

# ContainerStartupHealthCheckTimeoutInSeconds when the variant says nothing: AWS's knowledge centre says
# that an endpoint fails "within four minutes after the container starts up".
DEFAULT_STARTUP_TIMEOUT_S = 240.0
# ModelDataDownloadTimeoutInSeconds when the variant says nothing; assumed, AWS gives no default.
DEFAULT_DOWNLOAD_TIMEOUT_S = 1200.0

MODEL_MOUNT = "/opt/ml/model"
CHANNEL_MOUNT = "/opt/ml/additional-model-data-sources"


@dataclass(frozen=True)
class EnginePlan:
    """One engine to run: a variant with the model it names, or a component, as they were then.

    `component` is the inference component that it runs; None for a variant with a model.
    """

    variant: str
    model: str
    image: str
    environment: Mapping[str, str]
    sources: tuple[tuple[str, str], ...]
    startup_timeout_s: float
    download_timeout_s: float
    component: str | None = None

    @property
    def serves(self) -> str:
        """What the engine serves, in words."""
        if self.component is not None:
            return f"inference component {self.component}"
        return f"production variant {self.variant}"


def engine_plan(variant: Mapping[str, Any], model: Mapping[str, Any]) -> EnginePlan:
    """The plan from a production variant and the CreateModel body that it names."""
    return _plan(variant["VariantName"], None, variant["ModelName"], _container(model), variant)


def component_plan(
    component: str, variant: str, specification: Mapping[str, Any], model: Mapping[str, Any] | None
) -> EnginePlan:
    """The plan from an inference component's specification and the CreateModel body that it may name."""
    if model is not None:
        name, container = specification["ModelName"], _container(model)
    else:
        name, asked = "", specification["Container"]
        container = {"Image": asked["Image"], "Environment": asked.get("Environment", {})}
        if "ArtifactUrl" in asked:
            container["ModelDataUrl"] = asked["ArtifactUrl"]
    return _plan(variant, component, name, container, specification.get("StartupParameters", {}))


def _container(model: Mapping[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = model.get("PrimaryContainer") or model["Containers"][0]
    return container


def _plan(
    variant: str,
    component: str | None,
    model: str,
    container: Mapping[str, Any],
    limits: Mapping[str, Any],
) -> EnginePlan:
    return EnginePlan(
        variant=variant,
        component=component,
        model=model,
        image=container["Image"],
        environment=dict(container.get("Environment", {})),
        sources=tuple(model_sources(container)),
        startup_timeout_s=float(
            limits.get("ContainerStartupHealthCheckTimeoutInSeconds", DEFAULT_STARTUP_TIMEOUT_S)
        ),
        download_timeout_s=float(limits.get("ModelDataDownloadTimeoutInSeconds", DEFAULT_DOWNLOAD_TIMEOUT_S)),
    )


def model_sources(container: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the container finds each of its S3 sources: (mount, S3 URI) in the order of the request."""
    sources = []
    if "ModelDataUrl" in container:
        sources.append((MODEL_MOUNT, container["ModelDataUrl"]))
    main = container.get("ModelDataSource", {}).get("S3DataSource")
    if main:
        sources.append((MODEL_MOUNT, main["S3Uri"]))
    for channel in container.get("AdditionalModelDataSources", []):
        sources.append((f"{CHANNEL_MOUNT}/{channel['ChannelName']}", channel["S3DataSource"]["S3Uri"]))
    return sources


# Called with one S3 URI; False when nothing is there.
ModelDataExists = Callable[[str], Awaitable[bool]]
