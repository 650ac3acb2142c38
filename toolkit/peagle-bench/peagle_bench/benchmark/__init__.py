"""`peagle-sm bench`: measure one endpoint under load.

`run` drives the benchmark, `plan` says what it sends. `endpoint_arm`, `acceptance` and `progress` also serve
compare, tune and verify.
"""
