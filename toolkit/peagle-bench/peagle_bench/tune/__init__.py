"""Tuner: the best num_speculative_tokens (K) for each concurrency, from one or few deployments.

`readings` computes the reading of a window, `curve` the rate at every K, `choice` the K and which one to
measure next, `strategy` the order of the windows, `outcome` the result of a mode. `arms` plans the
endpoints, `windows` measures one of them under load, `run` deploys, measures and deletes, `job` goes from
the options to the result, with `estimate` of its cost.
"""

from __future__ import annotations
