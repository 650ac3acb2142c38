"""Processing jobs: the operations, and what AWS accepts. Their life is `sagemaker_local.runtime`'s."""
