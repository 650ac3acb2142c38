"""Inference component: the model of an endpoint that may scale to zero, as copies on its instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.resources.endpoint import Endpoint
from peagle_sm.core.resources.resource import Resource

_REQUIREMENTS = {
    "accelerators": ("NumberOfAcceleratorDevicesRequired", float),
    "cores": ("NumberOfCpuCoresRequired", float),
    "memory": ("MinMemoryRequiredInMb", int),
}


class Component(Resource):
    """An inference component; SageMaker deletes no endpoint that has one."""

    kind, words = "inference-component", "inference component"
    noun, name_field = "inference_component", "InferenceComponentName"
    status_field, arn_field = "InferenceComponentStatus", "InferenceComponentArn"
    billed = True
    cloudformation = "AWS::SageMaker::InferenceComponent"
    template_id = "Component"


def component(request: dict[str, Any], tags: list[dict[str, str]]) -> Component:
    """Return the component of a request without tags; see `component_request`."""
    needs = (Endpoint(request["EndpointName"]).label,)  # and so its config and its model
    return Component(request["InferenceComponentName"], {**request, "Tags": tags}, needs)


def component_request(
    endpoint: str, model: str, variant: Mapping[str, Any], needs: Mapping[str, Any], copies: int
) -> dict[str, Any]:
    """Return the CreateInferenceComponent request without tags; the component has the endpoint's name."""
    timeouts = ("ModelDataDownloadTimeoutInSeconds", "ContainerStartupHealthCheckTimeoutInSeconds")
    return {
        "InferenceComponentName": endpoint,
        "EndpointName": endpoint,
        "VariantName": variant["VariantName"],
        "Specification": {
            "ModelName": model,
            "StartupParameters": {key: variant[key] for key in timeouts if key in variant},
            "ComputeResourceRequirements": dict(needs),
        },
        "RuntimeConfig": {"CopyCount": copies},
    }


def component_tag(copies: int, needs: Mapping[str, Any]) -> str:
    """Return the value of the tag with a component's size: ``copies=2 accelerators=1.0 memory=1024``."""
    sizes = {word: needs[name] for word, (name, _) in _REQUIREMENTS.items() if name in needs}
    return " ".join(f"{word}={value}" for word, value in {"copies": copies, **sizes}.items())


def request_from_tags(
    endpoint: str, model: str, variant: Mapping[str, Any], tags: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the CreateInferenceComponent request that the tags describe, without tags; None without one."""
    sizes = dict(word.split("=", 1) for word in tags.get(keys.COMPONENT, "").split() if "=" in word)
    if "copies" not in sizes:
        return None
    needs = {name: kind(sizes[word]) for word, (name, kind) in _REQUIREMENTS.items() if word in sizes}
    return component_request(endpoint, model, variant, needs, int(sizes["copies"]))
