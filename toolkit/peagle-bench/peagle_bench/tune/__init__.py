"""Tuner: the best num_speculative_tokens (K) for each concurrency, from one or few deployments.

`readings` holds the reading of a window, `fit` and `predict` give the rate at every K, `decide` chooses the
next K, `outcome` the final one; `arms` holds the endpoints. `windows` measures one endpoint under load, `run`
deploys, measures and deletes, `job` goes from the options to the result.
"""

from __future__ import annotations
