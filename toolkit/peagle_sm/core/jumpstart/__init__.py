"""JumpStart without AWS: its manifest and specs read, resolved to what AWS would deploy, and locked. Pure.

The rules are those of `sagemaker.core.jumpstart` of the SageMaker Python SDK 3.27.0, which resolves the
same documents; where a module departs from it, it says so.
"""
