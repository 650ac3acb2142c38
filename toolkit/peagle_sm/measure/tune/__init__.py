"""The best num_speculative_tokens for each concurrency, and the best mode, from few deployments or one.

`readings` says what one measured window shows, `fit` and `predict` give the rate at every K, `decide` chooses
the next K, `outcome` the final one; `arms` holds the endpoints. `windows` measures one endpoint under load,
`run` deploys, measures and deletes, `job` leads from the options to the result.
"""

from __future__ import annotations
