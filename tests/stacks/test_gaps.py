"""What CloudFormation lacks against the API, so that a new release of either says what changed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.model import ListShape, Shape, StructureShape
from botocore.session import Session

from stacks.schemas import PATH, lacking

_SOURCE = "PrimaryContainer.ModelDataSource.S3DataSource"
LACKS: dict[str, set[str]] = {
    "create_model": {
        "PrimaryContainer.AdditionalModelDataSources",  # the head's channel: why Custom::PeagleModel exists
        "PrimaryContainer.ContainerMetricsConfig",
        f"{_SOURCE}.ETag",
        f"{_SOURCE}.ManifestEtag",
        f"{_SOURCE}.ManifestS3Uri",
    },
    "create_endpoint_config": {
        "CrossRegionTrafficConfig",
        "ProductionVariants.AcceleratorPartitionLayouts",
        "ProductionVariants.AcceleratorType",  # Elastic Inference, which AWS has ended
    },
    "create_endpoint": set(),
    "create_inference_component": {
        "Specification.ComputeResourceRequirements.AcceleratorPartitionType",
        "Specification.InstanceType",
        "Specifications.BaseInferenceComponentName",
        "Specifications.ComputeResourceRequirements.AcceleratorPartitionType",
    },
}
# The same fields once more, in the parts of a request that no endpoint of ours has.
_NOT_OURS = ("Containers.", "ShadowProductionVariants.")
TYPES = {
    "create_model": "AWS::SageMaker::Model",
    "create_endpoint_config": "AWS::SageMaker::EndpointConfig",
    "create_endpoint": "AWS::SageMaker::Endpoint",
    "create_inference_component": "AWS::SageMaker::InferenceComponent",
}
OPERATIONS = {
    "create_model": "CreateModel",
    "create_endpoint_config": "CreateEndpointConfig",
    "create_endpoint": "CreateEndpoint",
    "create_inference_component": "CreateInferenceComponent",
}


def _paths(shape: Shape | None, at: str = "") -> Iterator[tuple[str, dict[str, object]]]:
    """Every field of a request with a payload that holds it alone."""
    assert isinstance(shape, StructureShape)
    for name, member in shape.members.items():
        inner = member.member if isinstance(member, ListShape) else member
        yield f"{at}{name}", {name: {} if isinstance(inner, StructureShape) else None}
        if isinstance(inner, StructureShape) and name != "Tags":
            for path, payload in _paths(inner, f"{at}{name}."):
                yield path, {name: payload}


@pytest.mark.parametrize("operation", TYPES)
def test_the_fields_that_cloudformation_lacks_are_known(operation: str) -> None:
    shape = Session().get_service_model("sagemaker").operation_model(OPERATIONS[operation]).input_shape
    names = {names for _, payload in _paths(shape) for names in lacking(TYPES[operation], payload)}
    tops = {path for path in names if not any(path.startswith(f"{other}.") for other in names)}
    assert {path for path in tops if not path.startswith(_NOT_OURS)} == LACKS[operation]


def test_the_shipped_schemas_are_what_the_script_makes(root: Path) -> None:
    spec = importlib.util.spec_from_file_location("cfn_schemas", root / "scripts" / "lib" / "cfn_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.text_for_the_stacks() == PATH.read_text(encoding="utf-8")
