"""The policies of a template's roles as IAM gets them: every function and parameter replaced by its value."""

from __future__ import annotations

import json
from typing import Any

from sagemaker_local.cloudformation.language import parameters, template
from sagemaker_local.cloudformation.language.evaluation import Evaluation, Place
from tests.stacks.iam.calls import ACCOUNT, BUCKET, ENDPOINT_KEY, OWN_KEY, REGION
from tests.stacks.iam.decisions import Document

GIVEN = {
    "AssetBucket": f"peagle-guard-{ACCOUNT}-{REGION}",
    "AssetKey": "guard/0a1b.zip",
    "ModelBucketArns": BUCKET,
    "EndpointKeyArns": ENDPOINT_KEY,
    "EncryptionKeyArn": OWN_KEY,
}
"""Parameters with which every conditional statement of the guard is in its policy."""


class _Standing:
    """Resources by the ARNs that a test gives, else by their logical ids."""

    def __init__(self, arns: dict[str, str]) -> None:
        self._arns = arns

    def physical_id(self, logical_id: str) -> str:
        return logical_id

    def attribute(self, logical_id: str, attribute: str) -> str:
        return self._arns.get(logical_id, f"{logical_id}.{attribute}")


def policies(
    body: dict[str, Any], given: dict[str, str] | None = None, arns: dict[str, str] | None = None
) -> dict[str, list[Document]]:
    """Return the policy documents of each role by its logical id; ``arns`` are those of Fn::GetAtt."""
    created = template.load(json.dumps(body))
    sent = [{"ParameterKey": name, "ParameterValue": value} for name, value in (given or {}).items()]
    declared = created.section("Parameters")
    bound = parameters.bind(declared, parameters.chosen(declared, sent, {}), lambda name: None)
    place = Place(ACCOUNT, REGION, "s", f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/s/1")
    evaluation = Evaluation(created, bound, place, dict)
    standing = _Standing(arns or {})
    return {
        name: [
            policy["PolicyDocument"] for policy in evaluation.properties(name, standing).get("Policies", [])
        ]
        for name, resource in body["Resources"].items()
        if resource["Type"] == "AWS::IAM::Role"
    }
