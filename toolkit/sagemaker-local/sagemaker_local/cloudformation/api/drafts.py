"""Desired state of a stack, from a request: template, parameters, tags, role."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from sagemaker_local.cloudformation.errors import TemplateError, invalid
from sagemaker_local.cloudformation.language import parameters, template
from sagemaker_local.cloudformation.language.evaluation import Evaluation, Place
from sagemaker_local.cloudformation.stack import Desired, Stack
from sagemaker_local.cloudformation.store import Store
from sagemaker_local.cloudformation.tools import Tools

_LONGEST_BODY = 51_200
_LONGEST_OBJECT = 1_048_576
_SERVICE = "cloudformation.amazonaws.com"

Request = Mapping[str, Any]


@dataclass(frozen=True)
class Sources:
    """Where templates, parameters and roles are looked up. All block.

    Attributes:
        read_object: gives an S3 object's bytes by bucket and key; None when it is not there.
        stored: gives a parameter of the Parameter Store; None when it is not there.
        trusts: says whether a role (by ARN) exists and lets a service assume it.
    """

    read_object: Callable[[str, str], bytes | None]
    stored: Callable[[str], str | None]
    trusts: Callable[[str, str], bool]


class Drafts:
    """Makes drafts of stacks. Methods raise ApiError or TemplateError for what is wrong."""

    def __init__(self, tools: Tools, store: Store, sources: Sources) -> None:
        self._tools = tools
        self._store = store
        self._sources = sources

    def template(self, request: Request, previous: template.Template | None = None) -> template.Template:
        """Load the template that a request names."""
        body, url = request.get("TemplateBody"), request.get("TemplateURL")
        if request.get("UsePreviousTemplate"):
            if body is not None or url is not None:
                raise invalid("Cannot specify a template when UsePreviousTemplate is true.")
            if previous is None:
                raise invalid("There is no previous template.")
            return previous
        if (body is None) == (url is None):
            raise invalid("Either Template URL or Template Body must be specified.")
        if body is not None and len(body.encode()) > _LONGEST_BODY:
            raise invalid(
                "1 validation error detected: Value at 'templateBody' failed to satisfy constraint: "
                f"Member must have length less than or equal to {_LONGEST_BODY}"
            )
        return template.load(body if body is not None else self._fetched(str(url)), self._known)

    def desired(self, request: Request, stack: Stack | None) -> Desired:
        """Return a stack's desired state; fields missing from the request stay, except parameters."""
        kept = stack.desired if stack is not None else None
        wanted = self.template(request, kept.template if kept else None)
        given = tuple(request.get("Capabilities", ()))
        template.check_capability(wanted, given)
        declared = wanted.section("Parameters")
        texts = parameters.chosen(
            declared, request.get("Parameters", []), kept.bound.texts if kept is not None else {}
        )
        tags = request.get("Tags")
        if request.get("NotificationARNs"):
            raise invalid("the local CloudFormation sends no notifications; leave NotificationARNs out")
        return Desired(
            template=wanted,
            bound=parameters.bind(declared, texts, self._sources.stored),
            tags=(kept.tags if kept else {}) if tags is None else {tag["Key"]: tag["Value"] for tag in tags},
            capabilities=given,
        )

    def evaluation(self, desired: Desired, stack: Stack) -> Evaluation:
        """Evaluate a draft's conditions and rules."""
        place = Place(
            self._tools.account,
            self._tools.region,
            stack.name,
            stack.stack_id,
            self._tools.partition,
        )
        return Evaluation(desired.template, desired.bound, place, self._store.export_values)

    def check_role(self, arn: str | None) -> None:
        """Refuse a role that CloudFormation may not assume."""
        if arn is not None and not self._sources.trusts(arn, _SERVICE):
            raise invalid(f"Role {arn} is invalid or cannot be assumed")

    def _known(self, type_name: str) -> bool:
        return self._tools.types.handler(type_name) is not None

    def _fetched(self, url: str) -> str:
        bucket, key = split_url(url)
        content = self._sources.read_object(bucket, key)
        if content is None:
            raise invalid("S3 error: The specified key does not exist.")
        if len(content) > _LONGEST_OBJECT:
            raise invalid(f"Template may not exceed {_LONGEST_OBJECT} bytes in size.")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise TemplateError("Template format error: the template is not UTF-8.") from error


def split_url(url: str) -> tuple[str, str]:
    """Split the URL of an S3 object, path or virtual style, at AWS or on this machine, into bucket and key.

    Raises:
        ApiError: it is not such a URL.
    """
    parts = urlsplit(url)
    host, path = parts.hostname or "", unquote(parts.path.lstrip("/"))
    head = host.split(".", 1)[0]
    if host in ("localhost", "127.0.0.1", "::1") or head == "s3" or head.startswith("s3-"):
        bucket, _, key = path.partition("/")
    elif ".s3" in host or host.endswith(".localhost"):
        bucket, key = host.partition(".s3")[0].removesuffix(".localhost"), path
    else:
        bucket = key = ""
    if parts.scheme not in ("http", "https") or not bucket or not key:
        raise invalid("TemplateURL must be a supported URL.")
    return bucket, key
