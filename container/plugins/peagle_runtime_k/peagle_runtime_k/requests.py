"""The K that a request asks for, and the refusal of one that cannot be had, at the API's edge."""

from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams

FIELD = "num_speculative_tokens"


def asked(sampling_params: SamplingParams | None) -> int | None:
    """Return the K that the request names, None if it names none."""
    extra = getattr(sampling_params, "extra_args", None)
    return extra.get(FIELD) if extra else None


def check(value: Any, most: int) -> None:
    """Refuse what is not a whole number from 0 to ``most``.

    Raises:
        VLLMValidationError: answered as HTTP 400. Let through, it would end the engine for everybody.
    """
    if type(value) is not int or not 0 <= value <= most:
        raise VLLMValidationError(
            f"vllm_xargs.{FIELD}: found {value!r}; allowed: 0 to {most}, the engine's own at its start",
            parameter=f"vllm_xargs.{FIELD}",
            value=value,
        )


def install() -> None:
    """Check every request's K where vLLM checks its other sampling parameters."""
    original = SamplingParams._validate_spec_decode
    if getattr(original, "by_peagle", False):
        return

    def validate(self: SamplingParams, speculative_config: Any) -> None:
        value = asked(self)
        if value is not None:
            check(value, speculative_config.num_speculative_tokens if speculative_config else 0)
        original(self, speculative_config)

    validate.by_peagle = True  # type: ignore[attr-defined]
    SamplingParams._validate_spec_decode = validate
