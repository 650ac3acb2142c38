"""Draft heads before deployment: check, download, upload to S3."""

from peagle_sm.service.heads.checking import Sources, check_head
from peagle_sm.service.heads.staging import Staged, StagingPlan, abort_staging, plan_staging, stage

__all__ = ["Sources", "Staged", "StagingPlan", "abort_staging", "check_head", "plan_staging", "stage"]
