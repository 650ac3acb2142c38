"""The names of the checks: what ``--checks`` takes, and ``CheckRecord.name`` says."""

#: In the order in which they run.
CHECKS = (
    "greedy",
    "sampled",
    "parameters",
    "logprobs",
    "stop-strings",
    "seeds",
    "streaming",
    "json-schema",
    "tool-calls",
    "long-context",
)
