"""boto3 adapters: everything that talks to AWS, or to the local SageMaker in its place.

boto3 is imported inside functions, so importing this package costs nothing.
"""
