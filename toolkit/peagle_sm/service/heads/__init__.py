"""Draft heads on their way to an endpoint: looked at wherever they are, fetched, and put into S3."""

from peagle_sm.service.heads.checking import check_head
from peagle_sm.service.heads.places import Sources
from peagle_sm.service.heads.planning import StagingPlan, plan_staging
from peagle_sm.service.heads.staging import Staged, abort_staging, stage

__all__ = ["Sources", "Staged", "StagingPlan", "abort_staging", "check_head", "plan_staging", "stage"]
