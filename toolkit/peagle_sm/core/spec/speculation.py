"""vLLM's speculative configuration, with vLLM's own field names and rules."""

from __future__ import annotations

import json
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.complaints import explain

BatchSizeRule = tuple[int, int, int]


class SpeculativeConfig(BaseModel):
    """What `--speculative-config` takes for EAGLE-3 and P-EAGLE; unknown fields are refused, as vLLM does.

    Fields left at None are not written, so that vLLM's own defaults apply.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    method: Literal["eagle3"] = Field(description="P-EAGLE is eagle3 with parallel_drafting.")
    model: str = Field(min_length=1, description="Directory or hub id of the draft head.")
    num_speculative_tokens: int = Field(gt=0, description="Tokens proposed per step.")
    parallel_drafting: bool = Field(default=False, description="Propose all tokens in one pass (P-EAGLE).")
    draft_tensor_parallel_size: int | None = Field(default=None, ge=1, description="1 or the target's.")
    max_model_len: int | None = Field(default=None, ge=1, description="Longest context of the draft.")
    quantization: str | None = Field(default=None, description="Quantisation of the draft.")
    revision: str | None = Field(default=None, description="Revision of a draft on the hub.")
    draft_sample_method: str | None = Field(default=None, description="How draft tokens are sampled.")
    rejection_sample_method: str | None = Field(default=None, description="How rejects are resampled.")
    num_speculative_tokens_per_batch_size: tuple[BatchSizeRule, ...] | None = Field(
        default=None, description="Rows [first batch size, last batch size, tokens]."
    )
    disable_padded_drafter_batch: bool | None = Field(default=None, description="Turn batch padding off.")

    @field_validator("num_speculative_tokens_per_batch_size", mode="before")
    @classmethod
    def _rows_as_tuples(cls, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(tuple(row) if isinstance(row, list) else row for row in value)
        return value

    @model_validator(mode="after")
    def _rules(self) -> Self:
        rows = self.num_speculative_tokens_per_batch_size
        if rows is not None and self.parallel_drafting:
            raise ValueError(
                "num_speculative_tokens_per_batch_size: found a table with parallel_drafting; allowed: none "
                "(broken up to vLLM 0.33.0, vllm#45695)"
            )
        for first, last, tokens in rows or ():
            if first < 1 or last < first or tokens < 0:
                raise ValueError(
                    f"num_speculative_tokens_per_batch_size: found [{first},{last},{tokens}]; "
                    "allowed: [first >= 1, last >= first, tokens >= 0]"
                )
        return self

    def to_json(self) -> str:
        """Return compact JSON for SM_VLLM_SPECULATIVE_CONFIG: no spaces, vLLM's defaults left out."""
        return json.dumps(self.model_dump(exclude_defaults=True), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> SpeculativeConfig:
        """Read what `to_json` (or a JumpStart spec) wrote.

        Raises:
            SpecError: not a JSON object, an unknown field, or a value that vLLM would refuse.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise SpecError(
                f"speculative config: not JSON: {error.msg} at character {error.pos}; found {text[:80]!r}",
                next_step="Write a JSON object; quotes that a shell or an image stripped must be put back.",
            ) from error
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise explain(error, origin="speculative config", model=cls) from error
