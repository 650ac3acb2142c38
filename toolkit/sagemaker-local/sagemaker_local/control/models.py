"""The operations on models, endpoint configurations and tags."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sagemaker_local.clock import LocalClock

from .capacity import has_own_disks, instance_types
from .engines import ModelDataExists, model_sources
from .errors import ApiError, invalid, not_local
from .records import Record, Table, Tables, hosts_components
from .requests import checked, page

# A private ECR repository; an image without a tag is looked up as "latest", as ECR has it.
_ECR = re.compile(r"\d{12}\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?/\S+")

ENVIRONMENT_BYTES = 32 * 1024  # ContainerDefinition$Environment: all keys and values, combined


class Models:
    """The model operations. A model is a record; nothing runs until an endpoint asks for it."""

    def __init__(
        self,
        tables: Tables,
        clock: LocalClock,
        model_data_exists: ModelDataExists | None,
        assumable: Callable[[str], bool] | None,
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._exists = model_data_exists
        self._assumable = assumable

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """CreateModel."""
        request = checked("CreateModel", body)
        self._tables.models.refuse_taken(request["ModelName"])
        check_role(request.get("ExecutionRoleArn"), self._assumable)
        container = _container(request)
        _check_environment(container.get("Environment", {}))
        mode = container.get("ImageConfig", {}).get("RepositoryAccessMode", "Platform")
        check_image(container["Image"], mode, self._tables.region)
        _check_sources(container)
        await self._find_data(container)
        tags = from_list(request.pop("Tags", []))
        now = self._clock.now()
        name = request["ModelName"]
        row = self._tables.models.add(Record(name, self._tables.models.arn(name), now, now, request, tags))
        return {"ModelArn": row.arn}

    async def describe(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeModel."""
        row = self._tables.models.get(checked("DescribeModel", body)["ModelName"])
        return {
            "EnableNetworkIsolation": False,
            **_with_modes(row.body),
            "ModelArn": row.arn,
            "CreationTime": row.created.timestamp(),
        }

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListModels."""
        rows, token = page(self._tables.models, checked("ListModels", body), _summary)
        return {"Models": rows, **({"NextToken": token} if token else {})}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteModel: the entry only; endpoints that use it keep running."""
        self._tables.models.remove(checked("DeleteModel", body)["ModelName"])
        return {}

    async def _find_data(self, container: Mapping[str, Any]) -> None:
        if self._exists is None:
            return
        for _, uri in model_sources(container):
            if not await self._exists(uri):
                raise invalid(f"Could not find model data at {uri}.")


def check_role(arn: str | None, assumable: Callable[[str], bool] | None) -> None:
    """Refuse a role that does not exist or that SageMaker may not assume; raises ApiError."""
    if arn is not None and assumable is not None and not assumable(arn):
        raise invalid(
            f"Could not assume role {arn}. Please ensure that the role exists and allows principal "
            "'sagemaker.amazonaws.com' to assume the role."
        )


def _with_modes(body: Mapping[str, Any]) -> dict[str, Any]:
    answer = dict(body)
    if "PrimaryContainer" in answer:
        answer["PrimaryContainer"] = {"Mode": "SingleModel", **answer["PrimaryContainer"]}
    if "Containers" in answer:
        answer["Containers"] = [{"Mode": "SingleModel", **container} for container in answer["Containers"]]
    return answer


def _summary(row: Record) -> dict[str, Any]:
    return {"ModelName": row.name, "ModelArn": row.arn, "CreationTime": row.created.timestamp()}


def _container(request: Mapping[str, Any]) -> dict[str, Any]:
    containers = request.get("Containers", [])
    primary = request.get("PrimaryContainer")
    if primary is not None and containers:
        raise invalid("Specify either PrimaryContainer or Containers, not both.")
    if primary is None and not containers:
        raise invalid("A model needs a PrimaryContainer or Containers: found neither.")
    if len(containers) > 1:
        raise not_local("An inference pipeline (several Containers)", "give one PrimaryContainer.")
    container: dict[str, Any] = containers[0] if primary is None else primary
    for member in ("ModelPackageName", "MultiModelConfig"):
        if member in container:
            raise not_local(f"ContainerDefinition.{member}", "give Image and ModelDataSource.")
    if "Image" not in container:
        raise invalid("ContainerDefinition.Image is required: found none.")
    return container


def _check_environment(environment: Mapping[str, str]) -> None:
    for key, value in environment.items():
        for what, text in (("key", key), ("value", value)):
            size = len(text.encode())
            if size > 1024:
                raise invalid(
                    f"The {what} of Environment entry '{key[:64]}' has {size} bytes; allowed: at most 1024."
                )
    total = sum(len(key.encode()) + len(value.encode()) for key, value in environment.items())
    if total > ENVIRONMENT_BYTES:
        raise invalid(f"Environment has {total} bytes in all; at most {ENVIRONMENT_BYTES} are allowed.")


def check_image(image: str, mode: str, region: str | None = None) -> None:
    """Refuse an image outside ECR (unless the access mode is Vpc) or of another region; raises ApiError."""
    repository = _ECR.fullmatch(image)
    if repository is None and mode != "Vpc":
        raise invalid(f'Using non-ECR image "{image}" without Vpc repository access mode is not supported.')
    if repository is not None and region not in (None, repository[1]):
        raise invalid(f'Image "{image}" is in region {repository[1]}; it must be in region {region}.')


def _check_sources(container: Mapping[str, Any]) -> None:
    if "ModelDataUrl" in container and "ModelDataSource" in container:
        raise invalid("Specify either ModelDataUrl or ModelDataSource, not both.")
    channels = [channel["ChannelName"] for channel in container.get("AdditionalModelDataSources", [])]
    for name in channels:
        if channels.count(name) > 1:
            raise invalid(f"AdditionalModelDataSources names channel '{name}' more than once.")
    for source in _s3_sources(container):
        if source["S3DataType"] != "S3Prefix":
            continue
        if not source["S3Uri"].endswith("/"):
            raise _no_slash(source["S3Uri"])
        if source["CompressionType"] != "None":
            raise invalid("CompressionType Gzip is for S3DataType S3Object; S3Prefix needs None.")


def _s3_sources(container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "S3DataSource" in container.get("ModelDataSource", {}):
        yield container["ModelDataSource"]["S3DataSource"]
    for channel in container.get("AdditionalModelDataSources", []):
        yield channel["S3DataSource"]


def _no_slash(uri: str) -> ApiError:
    return invalid(f"S3Uri '{uri}' with S3DataType S3Prefix must end with a forward slash (/).")


def check_variants(request: dict[str, Any], models: Table[Record]) -> None:
    """Checks the variants of CreateEndpointConfig and writes AWS's default weight into those with a model.

    Raises:
        ApiError: a variant cannot be deployed.
    """
    variants = request["ProductionVariants"]
    for variant in variants:
        _check_capacity(variant)
    if hosts_components(request):
        _check_for_components(request)
    else:
        for variant in variants:
            _check_model(variant, models)
        # The containers' isolation is each model's own (CreateModel$EnableNetworkIsolation).
        if request.get("EnableNetworkIsolation", False):
            raise invalid(
                "EnableNetworkIsolation of an endpoint configuration is only supported for inference "
                "component endpoints; set it on the model."
            )
    names = [variant["VariantName"] for variant in variants]
    for name in names:
        if names.count(name) > 1:
            raise invalid(f"Duplicate variant name '{name}': variant names must be unique.")


def _check_capacity(variant: Mapping[str, Any]) -> None:
    where = f"variant '{variant['VariantName']}'"
    if "ServerlessConfig" in variant:
        raise not_local("ServerlessConfig", "give InstanceType and InitialInstanceCount.")
    if ("InstanceType" in variant) == ("InstancePools" in variant):
        raise invalid(f"{where} needs either InstanceType or InstancePools, and not both.")
    if "InitialInstanceCount" not in variant:
        raise invalid(f"{where} needs InitialInstanceCount: found none, allowed is 1 or more.")
    own_disks = next(filter(has_own_disks, instance_types(variant)), None)
    if own_disks is not None and "VolumeSizeInGB" in variant:
        raise invalid(f"VolumeSizeInGB parameter is not allowed for the selected Instance type {own_disks}.")
    scaling = variant.get("ManagedInstanceScaling", {})
    low, high = scaling.get("MinInstanceCount", 0), scaling.get("MaxInstanceCount")
    if high is not None and low > high:
        raise invalid(f"{where}: MinInstanceCount {low} is more than MaxInstanceCount {high}.")


def _check_model(variant: dict[str, Any], models: Table[Record]) -> None:
    if "ModelName" not in variant:
        raise invalid(
            f"variant '{variant['VariantName']}' has no ModelName and another variant has one: an endpoint "
            "runs either models or inference components."
        )
    models.get(variant["ModelName"])
    if "ManagedInstanceScaling" in variant:
        raise invalid("ManagedInstanceScaling is only supported for inference component endpoints.")
    variant.setdefault("InitialVariantWeight", 1.0)


def _check_for_components(request: Mapping[str, Any]) -> None:
    if "ExecutionRoleArn" not in request:
        raise invalid(
            "ExecutionRoleArn is required when the production variants have no ModelName (an endpoint for "
            "inference components): found none."
        )


# Real-time endpoints on instances are what the local server runs; these would be accepted and do nothing.
_NOT_LOCAL = {
    "AsyncInferenceConfig": "deploy a real-time endpoint.",
    "DataCaptureConfig": "deploy without it.",
    "ExplainerConfig": "deploy without an explainer.",
    "ShadowProductionVariants": "deploy the shadow as a variant or an endpoint of its own.",
}


class Configs:
    """The endpoint configuration operations."""

    def __init__(
        self, tables: Tables, clock: LocalClock, assumable: Callable[[str], bool] | None = None
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._assumable = assumable

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """CreateEndpointConfig."""
        request = checked("CreateEndpointConfig", body)
        self._tables.configs.refuse_taken(request["EndpointConfigName"])
        for member, instead in _NOT_LOCAL.items():
            if member in request:
                raise not_local(member, instead)
        check_role(request.get("ExecutionRoleArn"), self._assumable)
        check_variants(request, self._tables.models)
        tags = from_list(request.pop("Tags", []))
        now = self._clock.now()
        name = request["EndpointConfigName"]
        arn = self._tables.configs.arn(name)
        row = self._tables.configs.add(Record(name, arn, now, now, request, tags))
        return {"EndpointConfigArn": row.arn}

    async def describe(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeEndpointConfig."""
        row = self._tables.configs.get(checked("DescribeEndpointConfig", body)["EndpointConfigName"])
        return {
            "EnableNetworkIsolation": False,
            **row.body,
            "EndpointConfigArn": row.arn,
            "CreationTime": row.created.timestamp(),
        }

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListEndpointConfigs."""
        rows, token = page(self._tables.configs, checked("ListEndpointConfigs", body), _config_summary)
        return {"EndpointConfigs": rows, **({"NextToken": token} if token else {})}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteEndpointConfig: the entry only, even while an endpoint uses it."""
        self._tables.configs.remove(checked("DeleteEndpointConfig", body)["EndpointConfigName"])
        return {}


def _config_summary(row: Record) -> dict[str, Any]:
    return {
        "EndpointConfigName": row.name,
        "EndpointConfigArn": row.arn,
        "CreationTime": row.created.timestamp(),
    }


MAX_TAGS = 50  # TagList's maximum length in SageMaker's model


def from_list(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Key -> value.

    Raises:
        ApiError: a key twice, or a key with the prefix that AWS keeps for itself.
    """
    known: dict[str, str] = {}
    for tag in tags:
        if tag["Key"].lower().startswith("aws:"):
            raise invalid("aws: prefixed tag key names are not allowed for external use.")
        if tag["Key"] in known:
            raise invalid(f"Duplicate tag key '{tag['Key']}': tag keys must be unique per resource.")
        known[tag["Key"]] = tag["Value"]
    return known


def as_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the tags in the API's form."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


class Tags:
    """The tag operations."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def add(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """AddTags: adds or overwrites; answers all tags of the resource."""
        request = checked("AddTags", body)
        row = self._row(request["ResourceArn"])
        merged = row.tags | from_list(request["Tags"])
        if len(merged) > MAX_TAGS:
            raise ApiError(
                "ResourceLimitExceeded",
                f"'{row.arn}' would have {len(merged)} tags; at most {MAX_TAGS} are allowed.",
            )
        row.tags = merged
        return {"Tags": as_list(merged)}

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListTags: always one page, since a resource has at most 50 and a page at least 50."""
        return {"Tags": as_list(self._row(checked("ListTags", body)["ResourceArn"]).tags)}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteTags: missing keys are ignored."""
        request = checked("DeleteTags", body)
        row = self._row(request["ResourceArn"])
        row.tags = {key: value for key, value in row.tags.items() if key not in request["TagKeys"]}
        return {}

    def _row(self, arn: str) -> Record:
        row = self._tables.by_arn(arn)
        if row is None:
            raise invalid(f'Could not find resource "{arn}".')
        return row
