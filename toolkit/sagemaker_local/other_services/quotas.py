"""Service Quotas of SageMaker, added to moto's, which has only those of VPC.

The account that is played is a new one: 0 instances of the types that AWS grants on request only.
"""

from __future__ import annotations

import json
from typing import Any

from sagemaker_local.aws_facts import endpoint_instance_types

SERVICE = "sagemaker"
ALL_INSTANCES = "Number of instances across active endpoints"
# Of these an account has none until it asks.
_ON_REQUEST = ("ml.p", "ml.trn", "ml.g7")
_GRANTED = 100.0
_PAGE = 100
_MARK = "peagle_rules"


def lay_quota_rules() -> None:
    """Answer ListServiceQuotas, ListAWSDefaultServiceQuotas and GetServiceQuota for SageMaker."""
    from moto.servicequotas.responses import ServiceQuotasResponse

    if getattr(ServiceQuotasResponse, _MARK, False):
        return
    defaults, one = (
        ServiceQuotasResponse.list_aws_default_service_quotas,
        ServiceQuotasResponse.get_service_quota,
    )

    def listed(self: Any) -> str:
        asked = json.loads(self.body)
        return json.dumps(_page(_quotas(self.region, self.current_account), asked))

    def list_service_quotas(self: Any) -> str:
        return listed(self) if _is_ours(self) else str(defaults(self))

    def list_aws_default_service_quotas(self: Any) -> str:
        return listed(self) if _is_ours(self) else str(defaults(self))

    def get_service_quota(self: Any) -> str:
        if not _is_ours(self):
            return str(one(self))
        code = json.loads(self.body).get("QuotaCode")
        found = [quota for quota in _quotas(self.region, self.current_account) if quota["QuotaCode"] == code]
        if not found:
            from moto.servicequotas.exceptions import NoSuchResource

            raise NoSuchResource
        return json.dumps({"Quota": found[0]})

    ServiceQuotasResponse.list_service_quotas = list_service_quotas
    ServiceQuotasResponse.list_aws_default_service_quotas = list_aws_default_service_quotas
    ServiceQuotasResponse.get_service_quota = get_service_quota
    setattr(ServiceQuotasResponse, _MARK, True)


def _is_ours(response: Any) -> bool:
    return bool(json.loads(response.body).get("ServiceCode") == SERVICE)


def _page(quotas: list[dict[str, Any]], asked: dict[str, Any]) -> dict[str, Any]:
    size = min(int(asked.get("MaxResults") or _PAGE), _PAGE)
    first = int(asked.get("NextToken") or 0)
    page: dict[str, Any] = {"Quotas": quotas[first : first + size]}
    if first + size < len(quotas):
        page["NextToken"] = str(first + size)
    return page


def _quotas(region: str, account: str) -> list[dict[str, Any]]:
    values = {f"{name} for endpoint usage": _value(name) for name in sorted(endpoint_instance_types())}
    values[ALL_INSTANCES] = _GRANTED
    return [_quota(index, name, value, region, account) for index, (name, value) in enumerate(values.items())]


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
