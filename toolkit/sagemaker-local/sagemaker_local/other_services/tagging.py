"""Tags of the local SageMaker's resources in the Resource Groups Tagging API, which is moto's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sagemaker_local.other_services.moto import Moto

# (ARN, resource type as GetResources filters it, tags)
Tagged = tuple[str, str, Mapping[str, str]]

# GetResources pages by resources; TagsPerPage (100 to 500) limits only who asks for it, and moto takes its
# smallest value for granted.
_UNASKED_TAGS_PER_PAGE = 100
_NO_LIMIT = 10**6


def show_tags(moto: Moto, tagged: Callable[[], Iterable[Tagged]]) -> None:
    """Add the resources of ``tagged`` to GetResources, GetTagKeys and GetTagValues; the last call wins."""
    from moto.core.resource_tagging import TaggedResource
    from moto.resourcegroupstaggingapi.models import ResourceGroupsTaggingAPIBackend
    from moto.sagemaker.models import SageMakerModelBackend

    def iter_tagged_resources(self: Any) -> Iterator[Any]:
        for arn, kind, tags in tagged():
            yield TaggedResource(arn=arn, resource_type=kind, tags=dict(tags))

    SageMakerModelBackend.iter_tagged_resources = iter_tagged_resources
    moto.backend("sagemaker")  # a service that nobody has touched is passed over
    _page_by_resources(ResourceGroupsTaggingAPIBackend)


def _page_by_resources(backend: Any) -> None:
    if hasattr(backend, "peagle_get_resources"):
        return
    backend.peagle_get_resources = backend.get_resources

    def get_resources(self: Any, *, tags_per_page: int = _UNASKED_TAGS_PER_PAGE, **filters: Any) -> Any:
        limit = _NO_LIMIT if tags_per_page == _UNASKED_TAGS_PER_PAGE else tags_per_page
        return self.peagle_get_resources(tags_per_page=limit, **filters)

    backend.get_resources = get_resources
