"""The inference component of an endpoint that may scale to zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peagle_sm.core.plan.records import Names
from peagle_sm.core.plan.resolve import Draft

_HOST_SHARE = 0.6
_GPU_HOST_MB = 8192
_MB_PER_GB = 1000


def compute_requirements(draft: Draft) -> dict[str, Any]:
    """Return what one copy takes of an instance: its GPUs, or most of the memory where there are none.

    SageMaker places as many copies on an instance as fit, so on a host without GPUs a copy asks for more
    than half of it. MinMemoryRequiredInMb is host memory; the API wants it in any case.
    """
    serving = draft.spec.serving
    facts = draft.instance(draft.instance_types[0])
    if facts is not None and facts.gpu_count == 0:
        memory_mb = int((facts.host_memory_gb or 0) * _MB_PER_GB * _HOST_SHARE)
        return {"NumberOfCpuCoresRequired": 1.0, "MinMemoryRequiredInMb": max(128, memory_mb)}
    return {
        "NumberOfAcceleratorDevicesRequired": float(
            serving.tensor_parallel_size * serving.data_parallel_size
        ),
        "MinMemoryRequiredInMb": _GPU_HOST_MB,
    }


def copies_per_instance(draft: Draft) -> int:
    """Return how many copies share one instance: all of its GPUs serve."""
    facts = draft.instance(draft.instance_types[0])
    serving = draft.spec.serving
    gpus = serving.tensor_parallel_size * serving.data_parallel_size
    return max(1, facts.gpu_count // gpus) if facts is not None else 1


def component(draft: Draft, names: Names, variant: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CreateInferenceComponent request without tags: by ModelName, which brings the head along."""
    timeouts = ("ModelDataDownloadTimeoutInSeconds", "ContainerStartupHealthCheckTimeoutInSeconds")
    return {
        "InferenceComponentName": names.component,
        "EndpointName": names.endpoint,
        "VariantName": variant["VariantName"],
        "Specification": {
            "ModelName": names.model,
            "StartupParameters": {key: variant[key] for key in timeouts},
            "ComputeResourceRequirements": compute_requirements(draft),
        },
        "RuntimeConfig": {"CopyCount": draft.spec.placement.instance_count * copies_per_instance(draft)},
    }
