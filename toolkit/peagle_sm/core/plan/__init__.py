"""From a spec to a plan: the exact requests, their price, the memory fit and the findings."""
