"""boto3 adapters: all calls to AWS, or to the local SageMaker.

boto3 is imported inside functions, so that importing this package is fast.
"""
