"""JumpStart's manifest and specs: parsing, resolution and lock. Pure.

The rules are those of `sagemaker.core.jumpstart` in the SageMaker Python SDK 3.27.0, which resolves the
same documents; each module documents its differences.
"""
