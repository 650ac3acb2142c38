"""A vLLM plugin: num_speculative_tokens (K) by request, so that one deployment can measure every K.

Off unless the environment has ``PEAGLE_SM_RUNTIME_K=1``. A request then names its K, at most the K that the
engine was started with, 0 for none::

    {"prompt": "…", "vllm_xargs": {"num_speculative_tokens": 3}}

which passes through ``/invocations`` and SageMaker's data plane like any other field. Requests that name none
keep the engine's own K. The output does not change: the target verifies every token, whatever K is.

K=0 is not what an engine without speculation does: the head still reads the prompt and every token, so that a
later request may speculate. For the first model runner of vLLM 0.30 to 0.32.
"""

import os

SWITCH = "PEAGLE_SM_RUNTIME_K"


def register() -> None:
    """Install the hooks if the environment asks for them; called in each process, possibly more than once."""
    if os.environ.get(SWITCH, "").strip().lower() not in ("1", "true"):
        return
    from . import hooks

    hooks.install()
