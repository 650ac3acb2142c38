"""Service Quotas of SageMaker, added to moto's, which has only those of VPC.

The account that is played is a new one: 0 instances of the types that AWS grants on request only. Only a
quota that a test has set is held (by CreateTrainingJob); it is listed with that value.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sagemaker_local.aws_facts import instance_types

SERVICE = "sagemaker"
ALL_INSTANCES = "Number of instances across active endpoints"
# Of these an account has none until it asks.
_ON_REQUEST = ("ml.p", "ml.trn", "ml.g7")
_GRANTED = 100.0
_PAGE = 100
_MARK = "peagle_rules"
_LIMIT = "peagle_limit"

# A quota's name -> its value if a test has set one
Limit = Callable[[str], int | None]


def lay_quota_rules() -> None:
    """Answer ListServiceQuotas, ListAWSDefaultServiceQuotas and GetServiceQuota for SageMaker."""
    from moto.servicequotas.responses import ServiceQuotasResponse

    if getattr(ServiceQuotasResponse, _MARK, False):
        return
    defaults, single = (
        ServiceQuotasResponse.list_aws_default_service_quotas,
        ServiceQuotasResponse.get_service_quota,
    )

    def listed(self: Any) -> str:
        request = json.loads(self.body)
        return json.dumps(_page(_quotas(self), request))

    def list_service_quotas(self: Any) -> str:
        return listed(self) if _is_ours(self) else str(defaults(self))

    def list_aws_default_service_quotas(self: Any) -> str:
        return listed(self) if _is_ours(self) else str(defaults(self))

    def get_service_quota(self: Any) -> str:
        if not _is_ours(self):
            return str(single(self))
        code = json.loads(self.body).get("QuotaCode")
        matching = [quota for quota in _quotas(self) if quota["QuotaCode"] == code]
        if not matching:
            from moto.servicequotas.exceptions import NoSuchResource

            raise NoSuchResource
        return json.dumps({"Quota": matching[0]})

    ServiceQuotasResponse.list_service_quotas = list_service_quotas
    ServiceQuotasResponse.list_aws_default_service_quotas = list_aws_default_service_quotas
    ServiceQuotasResponse.get_service_quota = get_service_quota
    setattr(ServiceQuotasResponse, _MARK, True)


def lay_quota_limits(limit: Limit) -> None:
    """Have the quotas that were set listed with their values; the last call wins."""
    from moto.servicequotas.responses import ServiceQuotasResponse

    setattr(ServiceQuotasResponse, _LIMIT, staticmethod(limit))


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
    limit: Limit = getattr(response, _LIMIT, lambda _: None)
    return [
        _quota(index, name, _value(name, limit(name)), response.region, response.current_account)
        for index, name in enumerate(names)
    ]


def _value(name: str, limit: int | None) -> float:
    if limit is not None:
        return float(limit)
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
