"""The AWS calls in the Lambdas' code are those that `tests/stacks/iam` evaluates."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import botocore.session
import pytest
from botocore import xform_name

from tests.stacks.iam.calls import GUARD

RUNTIME = Path(__file__).parents[3] / "stacks" / "guard" / "runtime" / "peagle_guard"
SERVICES = {  # botocore's name -> the prefix of IAM's actions; the first that knows a call is meant
    "sagemaker": "sagemaker",
    "cloudformation": "cloudformation",
    "scheduler": "scheduler",
    "dynamodb": "dynamodb",
    "cloudwatch": "cloudwatch",
    "sns": "sns",
    "lambda": "lambda",
    "application-autoscaling": "application-autoscaling",
    "resourcegroupstaggingapi": "tag",
}
PERMISSIONS = {"lambda:Invoke": "lambda:InvokeFunction"}
_REGISTER = frozenset({"_update", "forget", "get", "lock", "put", "scan", "unlock"})
ROLES = {
    "sweeper": "SweeperRole",
    "switch": "SwitchRole",
    "model_provider": "ModelProviderRole",
    "lifetime_provider": "LifetimeProviderRole",
}


@cache
def _operations() -> dict[str, str]:
    """boto3's method names -> IAM's actions."""
    session = botocore.session.get_session()
    by_name: dict[str, str] = {}
    for service, prefix in reversed(SERVICES.items()):
        for operation in session.get_service_model(service).operation_names:
            action = f"{prefix}:{operation}"
            by_name[xform_name(operation)] = PERMISSIONS.get(action, action)
    return by_name


def _trees(module: str) -> dict[str, ast.Module]:
    """The module and everything of the runtime that it imports, parsed."""
    by_name: dict[str, ast.Module] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = RUNTIME / f"{name}.py"
        if name in by_name or not path.is_file():
            continue
        by_name[name] = ast.parse(path.read_text())
        for node in ast.walk(by_name[name]):
            if isinstance(node, ast.ImportFrom) and node.module == "peagle_guard":
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("peagle_guard."):
                waiting.append((node.module or "").removeprefix("peagle_guard."))
    return by_name


@dataclass
class _Code:
    """The runtime as one handler sees it: functions by module and name, methods by name, imports."""

    functions: dict[tuple[str, str], ast.AST] = field(default_factory=dict)
    methods: dict[str, list[tuple[str, ast.AST]]] = field(default_factory=dict)
    imports: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    fields: set[str] = field(default_factory=set)

    def add(self, module: str, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                self.functions[module, node.name] = node
            elif isinstance(node, ast.ClassDef):
                for part in node.body:
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        self.fields.add(part.target.id)
                    if isinstance(part, ast.FunctionDef):
                        self.methods.setdefault(part.name, []).append((module, part))
                        if part.name == "__init__":
                            self.functions[module, node.name] = part
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("peagle_guard"):
                origin = (node.module or "").removeprefix("peagle_guard").removeprefix(".")
                for alias in node.names:
                    self.imports[module, alias.asname or alias.name] = (origin, alias.name)

    def used_by(self, module: str, function: ast.AST) -> Iterator[tuple[str, ast.AST]]:
        """What a function may call: rather too much than too little, since a method is found by its name."""
        called = {node.func for node in ast.walk(function) if isinstance(node, ast.Call)}
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and node.attr in self.fields and node not in called:
                continue  # a dataclass's field that has a method's name
            if isinstance(node, ast.Name):
                home = self.imports.get((module, node.id), (module, node.id))
                if home in self.functions:
                    yield home[0], self.functions[home]
            elif isinstance(node, ast.Attribute):
                receiver = ast.unparse(node.value)
                origin, name = self.imports.get((module, receiver), ("", ""))
                if not origin and (name, node.attr) in self.functions:
                    yield name, self.functions[name, node.attr]
                elif node.attr == "publish" and receiver in ("lifecycle", "plain"):
                    continue  # a tag's value: the interval at which metrics are published
                # Every mapping has a get() and every set an update(): only the register's reach DynamoDB.
                elif node.attr not in _REGISTER or "register" in receiver or receiver == "self":
                    yield from self.methods.get(node.attr, [])


def _reached(module: str) -> list[ast.AST]:
    """The functions that a handler may run."""
    code = _Code()
    for name, tree in _trees(module).items():
        code.add(name, tree)
    seen: list[ast.AST] = []
    queue = [(module, code.functions[module, "handler"])]
    while queue:
        home, function = queue.pop()
        if function not in seen:
            seen.append(function)
            queue += code.used_by(home, function)
    return seen


def _called(tree: ast.AST) -> set[str]:
    """IAM's actions for the client calls in a piece of code, `something.describe_endpoint(Name=...)`."""
    actions = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name = node.func.attr
        # boto3 takes names only, and they begin with a capital letter: a method of ours does neither.
        ours = any(keyword.arg and not keyword.arg[0].isupper() for keyword in node.keywords)
        if name == "get_paginator" and isinstance(node.args[0], ast.Constant):
            name = str(node.args[0].value)
        elif node.args or ours or not node.keywords:
            continue
        if name in _operations():
            actions.add(_operations()[name])
    return actions


# Rights that no call of the code shows: they follow from others, or Lambda and SageMaker use them.
IMPLIED = {
    "iam:PassRole",
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKey",
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "sagemaker:AddTags",
    "sqs:SendMessage",
}


@pytest.mark.parametrize(("module", "role"), ROLES.items())
def test_the_calls_that_are_evaluated_are_those_of_the_code(module: str, role: str) -> None:
    """So `tests/stacks/iam` shows that a role allows what its code calls, and no more."""
    wanted = {action for function in _reached(module) for action in _called(function)}
    assert wanted, "no call found: this test no longer sees what it is about"
    assert {call.action for call in GUARD[role]} - IMPLIED == wanted
