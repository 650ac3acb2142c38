"""Service Quotas of SageMaker, added to moto's, which has only those of VPC.

The account that is played is a new one: 0 instances of the types that AWS grants on request only. None
is held.
"""

from __future__ import annotations

import json
from typing import Any

from sagemaker_local.aws_facts import instance_types

SERVICE = "sagemaker"
ALL_INSTANCES = "Number of instances across active endpoints"
# Of these an account has none until it asks.
_ON_REQUEST = ("ml.p", "ml.trn", "ml.g7")
_GRANTED = 100.0
_PAGE = 100
_MARK = "peagle_rules"


def lay_quota_rules() -> None:
    """Answer ListServiceQuotas and ListAWSDefaultServiceQuotas for SageMaker."""
    from moto.servicequotas.responses import ServiceQuotasResponse

    if getattr(ServiceQuotasResponse, _MARK, False):
        return
    defaults = ServiceQuotasResponse.list_aws_default_service_quotas

    def listed(self: Any) -> str:
        if not _is_ours(self):
            return str(defaults(self))
        return json.dumps(_page(_quotas(self), json.loads(self.body)))

    ServiceQuotasResponse.list_service_quotas = listed
    ServiceQuotasResponse.list_aws_default_service_quotas = listed
    setattr(ServiceQuotasResponse, _MARK, True)


def _is_ours(response: Any) -> bool:
    return bool(json.loads(response.body).get("ServiceCode") == SERVICE)


def _page(quotas: list[dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
    size = min(int(request.get("MaxResults") or _PAGE), _PAGE)
    first = int(request.get("NextToken") or 0)
    page: dict[str, Any] = {"Quotas": quotas[first : first + size]}
    if first + size < len(quotas):
        page["NextToken"] = str(first + size)
    return page


def _quotas(response: Any) -> list[dict[str, Any]]:
    hosting, training = sorted(instance_types("ProductionVariant")), sorted(instance_types("Training"))
    names = [f"{name} for endpoint usage" for name in hosting]
    names.append(ALL_INSTANCES)
    names += [f"{name} for {kind}training job usage" for kind in ("", "spot ") for name in training]
    names += [f"{name} for processing job usage" for name in sorted(instance_types("Processing"))]
    return [
        _quota(index, name, _value(name), response.region, response.current_account)
        for index, name in enumerate(names)
    ]


def _value(name: str) -> float:
    return 0.0 if name.startswith(_ON_REQUEST) else _GRANTED


def _quota(index: int, name: str, value: float, region: str, account: str) -> dict[str, Any]:
    code = f"L-{index:08X}"
    return {
        "ServiceCode": SERVICE,
        "ServiceName": "Amazon SageMaker",
        "QuotaArn": f"arn:aws:servicequotas:{region}:{account}:{SERVICE}/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": value,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
