"""CreateModel, DescribeModel, ListModels, DeleteModel."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sagemaker_local.clock import LocalClock

from .errors import ApiError, invalid, not_local
from .launching import ModelDataExists, model_sources
from .paging import page
from .records import Record, Tables
from .shapes import checked
from .tags import from_list

# A private ECR repository; an image without a tag is looked up as "latest", as ECR has it.
_ECR = re.compile(r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/\S+")

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
        check_image(container["Image"], mode)
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


def check_image(image: str, mode: str) -> None:
    """Refuses an image outside ECR unless the repository's access mode is Vpc; raises ApiError."""
    if mode != "Vpc" and not _ECR.fullmatch(image):
        raise invalid(f'Using non-ECR image "{image}" without Vpc repository access mode is not supported.')


def _check_sources(container: Mapping[str, Any]) -> None:
    if "ModelDataUrl" in container and "ModelDataSource" in container:
        raise invalid("Specify either ModelDataUrl or ModelDataSource, not both.")
    channels = [channel["ChannelName"] for channel in container.get("AdditionalModelDataSources", [])]
    for name in channels:
        if channels.count(name) > 1:
            raise invalid(f"AdditionalModelDataSources names channel '{name}' more than once.")
    for source in _s3_sources(container):
        if source["S3DataType"] == "S3Prefix" and not source["S3Uri"].endswith("/"):
            raise _no_slash(source["S3Uri"])


def _s3_sources(container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "S3DataSource" in container.get("ModelDataSource", {}):
        yield container["ModelDataSource"]["S3DataSource"]
    for channel in container.get("AdditionalModelDataSources", []):
        yield channel["S3DataSource"]


def _no_slash(uri: str) -> ApiError:
    return invalid(f"S3Uri '{uri}' with S3DataType S3Prefix must end with a forward slash (/).")
