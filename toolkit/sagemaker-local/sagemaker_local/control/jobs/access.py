"""What a training or processing job may use: its image, its data, and its instances."""

import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from sagemaker_local.control.capacity import Quotas
from sagemaker_local.control.errors import ApiError, invalid

# (role, action, resource, context) -> whether the role's policies allow it
Permitted = Callable[[str, str, str, Mapping[str, str]], bool]
# The S3 URI of a prefix -> whether any key begins with it
PrefixExists = Callable[[str], Awaitable[bool]]

_PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_IMAGE = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.[^/]+/([^:@]+)")


def _believe(_role: str, _action: str, _resource: str, _context: Mapping[str, str]) -> bool:
    return True


class JobAccess:
    """Checks of a job's role, as SageMaker makes them before it creates the job."""

    def __init__(
        self, region: str, permitted: Permitted | None = None, prefix_exists: PrefixExists | None = None
    ) -> None:
        """Set up with what asks IAM and S3 (None believes)."""
        self._region = region
        self._permitted = permitted or _believe
        self._exists = prefix_exists

    def check_pull(self, role: str, image: str) -> None:
        """Raises ApiError when the role may not pull the image."""
        parts = _IMAGE.match(image)
        if parts is None:  # from a private registry
            return
        registry, region, repository = parts.groups()
        arn = f"arn:aws:ecr:{region}:{registry}:repository/{repository}"
        if not all(self._permitted(role, action, arn, {}) for action in _PULL):
            raise invalid(
                f"Access denied for repository: {repository} in registry ID: {registry}. Please check if "
                f"your ECR repository and image exist and role {role} has proper pull permissions for "
                f"SageMaker: {', '.join(_PULL)}"
            )

    async def check_data(self, role: str, uri: str) -> None:
        """Raises ApiError when the role may not list the prefix, or nothing is below it."""
        bucket, prefix = urlsplit(uri).netloc, urlsplit(uri).path.lstrip("/")
        may = self._permitted(role, "s3:ListBucket", f"arn:aws:s3:::{bucket}", {"s3:prefix": prefix})
        if not may or (self._exists is not None and not await self._exists(uri)):
            raise invalid(
                f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that '
                f"the bucket exists in the selected region ({self._region}), that objects exist under that "
                f'S3 prefix, and that the role "{role}" has "s3:ListBucket" permissions on bucket '
                f'"{bucket}".'
            )


def refuse_over_quota(quotas: Quotas, quota: str, used: int, asked: int) -> None:
    """Raises ApiError (`ResourceLimitExceeded`) when the account's quota has too few instances left."""
    limit = quotas.limit(quota)
    if limit is not None and used + asked > limit:
        raise ApiError(
            "ResourceLimitExceeded",
            f"The account-level service limit '{quota}' is {limit} Instances, with current utilization "
            f"of {used} Instances and a request delta of {asked} Instances. Please use AWS Service "
            "Quotas to request an increase for this quota.",
        )
