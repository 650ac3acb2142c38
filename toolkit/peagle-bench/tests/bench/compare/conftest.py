"""An account on the local SageMaker, as the tests of the service have it."""

from tests.service.conftest import aws, boto3, watched

__all__ = ["aws", "boto3", "watched"]
