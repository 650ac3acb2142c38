"""verify: are the answers of an endpoint with speculation the target's own?

Each check is a pure function from what was asked and answered to a verdict (`greedy`, `sampled`, `logprobs`,
`stops`, `seeds`, `streaming`, `structured`, `long_context`); `probes` asks, `run` puts both together.
"""
