"""Cases of the checks in `peagle_sm.core.checks.drafters`: what vLLM refuses with each mode."""

from __future__ import annotations

from tests.core.checks.cases import Case, error, warning
from tests.core.support import CONTAINER, LOCAL, TINY

_NGRAM = "speculation: {mode: ngram}"
_SUFFIX = "speculation: {mode: suffix}"
_DSPARK = "speculation: {mode: dspark, draft_head: mine, enable_adaptive_verification: true}"
_FIXED = "speculation: {mode: dspark, draft_head: mine}"
_OWN = """
name: demo
model: {name: mine, weights_gb: 2}
source: container
"""


def _with(speculation: str, arguments: str) -> str:
    return f"{speculation}\nserving: {{extra_args: {arguments}}}"


_EAGER = "{enforce_eager: true}"
_NO_GRAPHS = "{compilation_config: {cudagraph_mode: NONE}}"
_GRAPHS = "{compilation_config: {cudagraph_mode: full_and_piecewise}}"
_MARK = "{watermark_config: {algorithm: kgw}}"
_TOPK = "speculation: {mode: dspark, draft_head: mine, dspark_draft_topk: 8"
_TWO = "serving: {tensor_parallel_size: 2}"

CASES = [
    error("mode-conflicts", "watermark_config: found", CONTAINER, _with("speculation: {}", _MARK)),
    error(
        "mode-conflicts",
        "async_scheduling: found true with mode ngram; allowed: false",
        CONTAINER,
        _with(_NGRAM, "{async_scheduling: true}"),
    ),
    error(
        "mode-conflicts",
        "enforce_eager: found true with mode dspark and enable_adaptive_verification; allowed: false",
        CONTAINER,
        _with(_DSPARK, _EAGER),
    ),
    error("mode-conflicts", "enable_lora: found true", CONTAINER, _with(_DSPARK, "{enable_lora: true}")),
    error(
        "mode-conflicts",
        "pipeline_parallel_size: found 2",
        CONTAINER,
        _with(_DSPARK, "{pipeline_parallel_size: 2}"),
    ),
    error("mode-conflicts", "cudagraph_mode: found NONE", CONTAINER, _with(_DSPARK, _NO_GRAPHS)),
    Case("mode-conflicts", CONTAINER, _with(_DSPARK, _GRAPHS)),
    Case("mode-conflicts", CONTAINER, _with(_DSPARK, "{pipeline_parallel_size: 1, enable_lora: false}")),
    Case("mode-conflicts", CONTAINER, _with(_FIXED, _EAGER)),
    Case("mode-conflicts", CONTAINER, _with("speculation: {mode: mtp, draft_head: mine}", _MARK)),
    Case("mode-conflicts", CONTAINER, _with("speculation: {mode: none}", _MARK)),
    error(
        "drafter-settings",
        "num_speculative_tokens: found 9000; allowed: 1 to 8191",
        TINY,
        "speculation: {mode: ngram, num_speculative_tokens: 9000}",
        LOCAL,
    ),
    error(
        "drafter-settings",
        "draft_tensor_parallel_size: found 4; allowed: 1 or 2",
        CONTAINER,
        f"speculation: {{mode: dspark, draft_head: mine, draft_tensor_parallel_size: 4}}\n{_TWO}",
    ),
    error("drafter-settings", "dspark_draft_topk: found 8", CONTAINER, f"{_TOPK}}}\n{_TWO}"),
    Case("drafter-settings", CONTAINER, f"{_TOPK}, draft_tensor_parallel_size: 1}}\n{_TWO}"),
    Case("drafter-settings", TINY, _NGRAM, LOCAL),
    warning("drafter-inside", "mode mtp", _OWN, "speculation: {mode: mtp}"),
    Case("drafter-inside", _OWN, "speculation: {mode: mtp, draft_head: s3://bucket/head/}"),
    error("suffix-package", "arctic-inference==0.1.1", TINY, _SUFFIX, LOCAL),
    warning("suffix-package", "arctic-inference==0.1.1", CONTAINER, _SUFFIX),
    Case("suffix-package", CONTAINER, _NGRAM),
]
