"""Documents of AWS's price list, in the shape that pricing:GetProducts returns them."""

from __future__ import annotations

from typing import Any

from botocore.session import Session

# How usage types begin: https://docs.aws.amazon.com/AmazonS3/latest/userguide/aws-usage-report-understand.html
_PREFIXES = {
    "us-east-1": "USE1",
    "us-west-2": "USW2",
    "eu-west-1": "EU",
    "ap-northeast-1": "APN1",
    "cn-north-1": "CNN1",
}
_USAGES = {"Hosting": "Host", "Training": "Train", "Processing": "Processing", "AsyncInf": "AsyncInf"}


def document(
    instance: str,
    region: str,
    component: str,
    usd: str,
    *,
    date: str = "2026-11-01",
    currency: str = "USD",
) -> dict[str, Any]:
    """Return the document of one instance type, region and component."""
    sku = f"{instance}{region}{component}".upper().replace(".", "").replace("-", "")[:16]
    term, usage = f"{sku}.JRTCKXETXF", f"{_PREFIXES[region]}-{_USAGES.get(component, 'Studio')}:{instance}"
    return {
        "product": {
            "productFamily": "ML Instance",
            "attributes": {
                "regionCode": region,
                "servicecode": "AmazonSageMaker",
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
        "serviceCode": "AmazonSageMaker",
        "terms": {
            "OnDemand": {
                term: {
                    "sku": sku,
                    "offerTermCode": "JRTCKXETXF",
                    "effectiveDate": f"{date}T00:00:00Z",
                    "termAttributes": {},
                    "priceDimensions": {
                        f"{term}.6YS6EN2CT7": {
                            "rateCode": f"{term}.6YS6EN2CT7",
                            "unit": "Hrs",
                            "beginRange": "0",
                            "endRange": "Inf",
                            "description": f"${usd} per {component} {instance} hour in {region}",
                            "appliesTo": [],
                            "pricePerUnit": {currency: usd},
                        }
                    },
                }
            }
        },
        "version": "20261101000000",
        "publicationDate": f"{date}T00:00:00Z",
    }


def token_document(
    usage: str,
    region: str,
    usd: str,
    *,
    unit: str = "1K tokens",
    feature: str = "On-demand Inference",
    currency: str = "USD",
    date: str = "2026-11-01",
    begins: str = "0",
) -> dict[str, Any]:
    """Return the document of one kind of token that Amazon Bedrock sells; newer ones have no ``feature``."""
    attributes = {"regionCode": region, "servicecode": "AmazonBedrock", "usagetype": usage}
    dimension = {"unit": unit, "beginRange": begins, "endRange": "Inf", "pricePerUnit": {currency: usd}}
    return {
        "product": {"attributes": {**attributes, "feature": feature} if feature else attributes},
        "serviceCode": "AmazonBedrock",
        "terms": {"OnDemand": {f"{usage}.T": {"priceDimensions": {f"{usage}.T.D": dimension}}}},
        "publicationDate": f"{date}T00:00:00Z",
    }


def hosting_types() -> list[str]:
    """Return every ml.g* and ml.p* type of an endpoint, from botocore's model."""
    shape = Session().get_service_model("sagemaker").shape_for("ProductionVariantInstanceType")
    return [name for name in shape.metadata["enum"] if name.startswith(("ml.g", "ml.p"))]


def documents(region: str) -> list[dict[str, Any]]:
    """Return a region's list: the n-th type costs n + 0.5 USD in hosting, and other uses cost less."""
    return [
        document(name, region, component, f"{place * share + 0.5:.10f}")
        for place, name in enumerate(hosting_types(), start=1)
        for component, share in (("Hosting", 1), ("Training", 0.9), ("Processing", 0.8), ("AsyncInf", 0.7))
    ]
