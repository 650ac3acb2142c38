"""verify: are the answers of an endpoint with speculation the target's own?

Each check is a pure function from requests and answers to a verdict (`greedy`, `sampling`, `probabilities`,
`answer_format`); `probes` sends the requests, `run` puts both together.
"""

from __future__ import annotations

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
