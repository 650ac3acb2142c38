"""AWS's price list: GetProducts of SageMaker's instances, which moto does not have.

The list is short: the figures of data/prices.yaml. A test may give a recorded list instead.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from aiohttp import web

from sagemaker_local.aws_facts import data_file
from sagemaker_local.wire import awsjson, tokens

SERVICE = "AmazonSageMaker"
_SERVICES = (SERVICE, "AmazonBedrock")  #: of Bedrock only what a recorded list has
_TARGET = "AWSPriceListService."
_PAGE = 100
_LONGEST = 1024
# How a region's usage types begin; the names of the components in usage types.
_USAGES = {"Hosting": "Host", "Training": "Train", "Processing": "Processing"}
_PREFIXES = {"us-east-1": "USE1", "us-west-2": "USW2"}


class _Refused(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class PriceList:
    """The documents of the price list, and its API."""

    def __init__(self) -> None:
        self._documents: list[dict[str, Any]] = list(_packaged())

    def set(self, documents: list[dict[str, Any]]) -> None:
        """Replace the list: documents as GetProducts returns them, parsed."""
        self._documents = documents

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a call of the Price List Query API."""
        operation = request.headers.get("X-Amz-Target", "").removeprefix(_TARGET)
        if operation != "GetProducts":
            message = f"{operation} is not implemented by the local SageMaker"
            return awsjson.error("UnknownOperationException", message)
        try:
            parameters = json.loads(await request.read() or b"{}")
            return awsjson.reply(self._get_products(parameters if isinstance(parameters, dict) else {}))
        except ValueError:
            return awsjson.error("SerializationException", "The request body is not JSON.")
        except _Refused as refused:
            return awsjson.error(refused.code, refused.message)

    def _get_products(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        service, filters = parameters.get("ServiceCode"), parameters.get("Filters") or []
        if not service:
            raise _Refused("InvalidParameterException", "ServiceCode is required")
        size = parameters.get("MaxResults", _PAGE)
        if not isinstance(size, int) or not 1 <= size <= _PAGE:
            raise _Refused("InvalidParameterException", f"MaxResults must be between 1 and {_PAGE}")
        if parameters.get("FormatVersion", "aws_v1") != "aws_v1":
            raise _Refused("InvalidParameterException", "FormatVersion must be aws_v1")
        if service not in _SERVICES:
            known = " and ".join(_SERVICES)
            message = f"Invalid service code: {service} (the local SageMaker has the lists of {known} only)"
            raise _Refused("InvalidParameterException", message)
        matching = [
            document
            for document in self._documents
            if document.get("serviceCode", SERVICE) == service
            and all(_matches(document, condition) for condition in filters)
        ]
        first = 0
        if parameters.get("NextToken") is not None:
            position = tokens.unbound("GetProducts", parameters)
            if position is None:
                raise _Refused(
                    "InvalidNextTokenException", "The pagination token is invalid. Try again without it."
                )
            first = int(position)
        page: dict[str, Any] = {
            "FormatVersion": "aws_v1",
            "PriceList": [json.dumps(document) for document in matching[first : first + size]],
        }
        if first + size < len(matching):
            page["NextToken"] = tokens.bound("GetProducts", parameters, str(first + size))
        return page


def _matches(document: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """Decide whether a document passes a filter; values are compared with their case (assumed)."""
    kind, field, value = condition.get("Type"), condition.get("Field"), condition.get("Value")
    for name, text in (("Field", field), ("Value", value)):
        if not isinstance(text, str) or not 1 <= len(text) <= _LONGEST:
            raise _Refused("InvalidParameterException", f"Filter {name} must have 1 to {_LONGEST} characters")
    if kind not in ("TERM_MATCH", "EQUALS"):
        raise _Refused(
            "InvalidParameterException",
            f"Filter Type: {kind} is not implemented by the local SageMaker; use TERM_MATCH",
        )
    product = document.get("product", {})
    of_product = {"productFamily": product.get("productFamily"), "sku": product.get("sku")}
    attributes = {**of_product, "ServiceCode": document.get("serviceCode"), **product.get("attributes", {})}
    return bool(attributes.get(str(field)) == value)


def _packaged() -> Iterator[dict[str, Any]]:
    for group in data_file("prices.yaml")["groups"]:
        for name, usd in group["prices"].items():
            for component in _USAGES:
                yield _document(name, group["region"], component, usd, group["date"])


def _document(instance: str, region: str, component: str, usd: float, date: str) -> dict[str, Any]:
    sku = base64.b32encode(f"{region}{instance}{component}".encode()).decode()[-24:].strip("=")[:16]
    term = f"{sku}.JRTCKXETXF"
    dimension = f"{term}.6YS6EN2CT7"
    usage = f"{_PREFIXES[region]}-{_USAGES[component]}:{instance}"
    return {
        "product": {
            "productFamily": "ML Instance",
            "attributes": {
                "regionCode": region,
                "servicecode": SERVICE,
                "servicename": "Amazon SageMaker",
                "locationType": "AWS Region",
                "component": component,
                "instanceName": instance,
                "instanceType": f"{instance}-{component}",
                "usagetype": usage,
                "operation": "RunInstance",
            },
            "sku": sku,
        },
        "serviceCode": SERVICE,
        "terms": {
            "OnDemand": {
                term: {
                    "priceDimensions": {
                        dimension: {
                            "unit": "Hrs",
                            "endRange": "Inf",
                            "description": f"${usd} per {component} {instance} hour in {region}",
                            "appliesTo": [],
                            "rateCode": dimension,
                            "beginRange": "0",
                            "pricePerUnit": {"USD": f"{usd:.10f}"},
                        }
                    },
                    "sku": sku,
                    "effectiveDate": f"{date}T00:00:00Z",
                    "offerTermCode": "JRTCKXETXF",
                    "termAttributes": {},
                }
            }
        },
        "version": f"{date.replace('-', '')}000000",
        "publicationDate": f"{date}T00:00:00Z",
    }
