"""What a ``sagemaker://`` URL says: the endpoint, and as query parameters how it is asked. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

from peagle_sm.core.errors import SpecError

SCHEME = "sagemaker"
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
_PARAMETERS = ("component", "variant", "region", "model")


@dataclass(frozen=True)
class Address:
    """``sagemaker://ENDPOINT?component=…&variant=…&region=…&model=…``; all but the endpoint may be missing.

    Attributes:
        endpoint: name of the endpoint.
        component: inference component; needed where the endpoint hosts components.
        variant: production variant, for endpoints with several.
        region: AWS region; None leaves it to AWS_REGION and the profile.
        model: sent as the body's ``model``. None sends none: a SageMaker container serves one model, and
            AIPerf's ``--model`` is then only a label (and the tokenizer, unless that is given).
    """

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

    def path(self, *, streaming: bool) -> str:
        """The path of the runtime API."""
        call = "invocations-response-stream" if streaming else "invocations"
        return f"/endpoints/{quote(self.endpoint)}/{call}"


def parse(url: str) -> Address:
    """Read a URL.

    Raises:
        SpecError: another scheme, no endpoint name, or a parameter that is not known, empty or repeated.
    """
    parts = urlsplit(url)
    if parts.scheme.lower() != SCHEME:
        raise _refused(url, f"the scheme is {parts.scheme!r}, not {SCHEME!r}")
    if not _NAME.fullmatch(parts.netloc):
        raise _refused(url, f"{parts.netloc!r} is not the name of an endpoint")
    if parts.path.strip("/") or parts.fragment:
        raise _refused(url, f"nothing may follow the endpoint's name but ?, found {parts.path!r}")
    given: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key not in _PARAMETERS or key in given or (not value and key != "model"):
            raise _refused(url, f"the parameter {key}={value!r} is unknown, empty or repeated")
        given[key] = value
    return Address(parts.netloc, **given)


def _refused(url: str, what: str) -> SpecError:
    return SpecError(
        f"--url {url}: {what}.",
        next_step=f"Give {SCHEME}://ENDPOINT, with ?{'=…&'.join(_PARAMETERS)}=… as needed.",
    )
