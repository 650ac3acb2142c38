"""`peagle-sm bench`: measure one endpoint under load, from this machine or with SageMaker's benchmark jobs.

`run` drives the benchmark, `plan` says what it sends, `managed` starts SageMaker's AI benchmark jobs instead.
`endpoint_arm`, `acceptance` and `progress` also serve compare, tune and verify.
"""
