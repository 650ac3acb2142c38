"""CloudWatch metrics and alarms: what moto keeps per datapoint is kept per minute here."""

from sagemaker_local.cloudwatch.moto_rules import CloudWatch

__all__ = ["CloudWatch"]
