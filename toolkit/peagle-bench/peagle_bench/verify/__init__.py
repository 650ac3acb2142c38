"""`peagle-sm verify`: check that an endpoint's answers with speculation are the target's own.

Each check is a pure function from requests and answers to a verdict (`greedy`, `sampling`, `probabilities`,
`answer_format`, `forms`); `probes` sends the requests, `run` runs the checks.
"""

from __future__ import annotations

#: Checks in the order in which they run.
CHECKS = (
    "greedy",
    "sampled",
    "parameters",
    "logprobs",
    "stop-strings",
    "streaming",
    "json-schema",
    "tool-calls",
    "long-context",
)
