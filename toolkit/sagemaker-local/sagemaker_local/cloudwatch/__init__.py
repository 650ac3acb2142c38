"""CloudWatch metrics and alarms, aggregated by minute (moto keeps every datapoint)."""

from sagemaker_local.cloudwatch.moto_rules import CloudWatch

__all__ = ["CloudWatch"]
