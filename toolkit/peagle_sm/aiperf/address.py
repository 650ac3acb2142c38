"""What the URL given to AIPerf says: the endpoint, and as query parameters how it is asked. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

from peagle_sm.core.errors import SpecError

_PATH = re.compile(r"/endpoints/(?P<name>[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62})(/invocations[a-z-]*)?/?")
# Also FIPS, a VPC's endpoint (vpce-….runtime.sagemaker.REGION.vpce.amazonaws.com) and China.
_HOST = re.compile(r"(.*\.)?runtime(-fips)?\.sagemaker(-fips)?\.(?P<region>[a-z0-9-]+)\..*")
_PARAMETERS = ("component", "variant", "region", "model")
_EXAMPLE = "https://runtime.sagemaker.us-east-1.amazonaws.com/endpoints/NAME"


@dataclass(frozen=True)
class Address:
    """``https://runtime.sagemaker.REGION.amazonaws.com/endpoints/NAME?component=…&variant=…&model=…``.

    Attributes:
        base_url: scheme and host of the runtime API.
        endpoint: name of the endpoint.
        component: inference component; needed where the endpoint hosts components.
        variant: production variant, for endpoints with several.
        region: AWS region that signs, from the parameter or the host; None leaves it to the environment.
        model: sent as the body's ``model``. None sends none: a SageMaker container serves one model, and
            AIPerf's ``--model`` is then only a label (and the tokenizer, unless that is given).
    """

    base_url: str
    endpoint: str
    component: str | None = None
    variant: str | None = None
    region: str | None = None
    model: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What names component and variant in an invocation."""
        chosen = {
            "X-Amzn-SageMaker-Inference-Component": self.component,
            "X-Amzn-SageMaker-Target-Variant": self.variant,
        }
        return {name: value for name, value in chosen.items() if value is not None}

    def url(self, *, streaming: bool) -> str:
        """The URL of the invocation."""
        call = "invocations-response-stream" if streaming else "invocations"
        return f"{self.base_url}/endpoints/{quote(self.endpoint)}/{call}"


def parse(url: str) -> Address:
    """Read a URL.

    Raises:
        SpecError: no ``/endpoints/NAME``, or a parameter that is not known, empty or repeated.
    """
    parts = urlsplit(url)
    path = _PATH.fullmatch(parts.path)
    if parts.scheme.lower() not in ("http", "https") or path is None:
        raise _refused(url, "it does not name an endpoint")
    given: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        # The model alone may be empty: vLLM's images take that for "the one you have".
        if key not in _PARAMETERS or key in given or (not value and key != "model"):
            raise _refused(url, f"the parameter {key}={value!r} is unknown, empty or repeated")
        given[key] = value
    host = _HOST.fullmatch(parts.hostname or "")
    if host is not None:
        given.setdefault("region", host["region"])
    return Address(f"{parts.scheme}://{parts.netloc}", path["name"], **given)


def _refused(url: str, what: str) -> SpecError:
    return SpecError(
        f"--url {url}: {what}.",
        next_step=f"Give {_EXAMPLE}, followed by ?{'=…&'.join(_PARAMETERS)}=… as needed.",
    )
