"""Templates and their functions, without stacks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.cloudformation.errors import TemplateError
from sagemaker_local.cloudformation.language import parameters, template, template_text
from sagemaker_local.cloudformation.language.evaluation import Evaluation, Place
from sagemaker_local.cloudformation.language.intrinsics import NO_VALUE, UNKNOWN, holds_unknown
from sagemaker_local.cloudformation.language.references import in_order

PLACE = Place("123456789012", "us-east-1", "s", "arn:aws:cloudformation:us-east-1:123456789012:stack/s/1")


class Standing:
    """Resources whose id is their name in small letters; the one called New is not there yet."""

    def physical_id(self, logical_id: str) -> Any:
        return UNKNOWN if logical_id == "New" else logical_id.lower()

    def attribute(self, logical_id: str, attribute: str) -> Any:
        return UNKNOWN if logical_id == "New" else f"{logical_id.lower()}.{attribute}"


def evaluation(properties: Any = None, given: dict[str, str] | None = None, **sections: Any) -> Evaluation:
    resources = {
        "A": {"Type": "T"},
        "New": {"Type": "T"},
        "X": {"Type": "T", "Properties": {"P": properties}},
    }
    body = {**sections, "Resources": {**resources, **sections.get("Resources", {})}}
    created = template.load(json.dumps(body))
    declared = created.section("Parameters")
    sent = [{"ParameterKey": name, "ParameterValue": value} for name, value in (given or {}).items()]
    bound = parameters.bind(declared, parameters.chosen(declared, sent, {}), {"/a/b": "stored"}.get)
    return Evaluation(created, bound, PLACE, lambda: {"exported": "elsewhere"})


def value(properties: Any, **sections: Any) -> Any:
    return evaluation(properties, **sections).properties("X", Standing()).get("P", NO_VALUE)


MAPPINGS = {"Mappings": {"M": {"us-east-1": {"zone": "z1", "list": ["a", "b"]}}}}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("plain", "plain"),
        ({"Ref": "A"}, "a"),
        ({"Ref": "AWS::Region"}, "us-east-1"),
        ({"Ref": "AWS::Partition"}, "aws"),
        ({"Ref": "AWS::NoValue"}, NO_VALUE),
        ({"Fn::GetAtt": ["A", "Arn"]}, "a.Arn"),
        ({"Fn::GetAtt": "A.Endpoint.Address"}, "a.Endpoint.Address"),
        ({"Fn::Sub": "${A}-${A.Arn}-${AWS::AccountId}-${!Literal}"}, "a-a.Arn-123456789012-${Literal}"),
        ({"Fn::Sub": ["${x}/${A}", {"x": {"Ref": "AWS::StackName"}}]}, "s/a"),
        ({"Fn::Join": ["-", ["a", 1, True, {"Ref": "A"}]]}, "a-1-true-a"),
        ({"Fn::Join": ["", [{"Ref": "AWS::NoValue"}, "b"]]}, "b"),
        ({"Fn::Split": [",", "a,b,,c"]}, ["a", "b", "", "c"]),
        ({"Fn::Select": ["1", {"Fn::Split": ["/", "a/b/c"]}]}, "b"),
        ({"Fn::FindInMap": ["M", {"Ref": "AWS::Region"}, "zone"]}, "z1"),
        ({"Fn::FindInMap": ["M", "us-east-1", "list"]}, ["a", "b"]),
        ({"Fn::ImportValue": {"Fn::Sub": "exported"}}, "elsewhere"),
        ([1, {"Ref": "AWS::NoValue"}, 2], [1, 2]),
        ({"a": {"Ref": "AWS::NoValue"}, "b": 1}, {"b": 1}),
        (
            {"Condition": {"Bool": {"aws:SecureTransport": "false"}}},
            {"Condition": {"Bool": {"aws:SecureTransport": "false"}}},
        ),
        ({"Ref": "New"}, UNKNOWN),
        ({"Fn::Sub": "x-${New}"}, UNKNOWN),
        ({"Fn::Join": ["", ["x", {"Fn::GetAtt": ["New", "Arn"]}]]}, UNKNOWN),
    ],
)
def test_functions(node: Any, expected: Any) -> None:
    assert value(node, **MAPPINGS) == expected


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({"Fn::Select": [3, ["a"]]}, "cannot select nonexistent value at index 3"),
        ({"Fn::FindInMap": ["M", "eu-west-1", "zone"]}, "Unable to get mapping for M::eu-west-1::zone"),
        ({"Fn::FindInMap": ["N", "a", "b"]}, "Mapping named 'N' is not present"),
        ({"Fn::ImportValue": "nobody-s"}, "No export named nobody-s found"),
        ({"Fn::GetAZs": ""}, "Fn::GetAZs is not a function that the local CloudFormation has"),
        ({"Fn::Join": ["-"]}, "Fn::Join object requires a list of 2"),
        ({"Fn::Join": ["-", [["list"]]]}, "expected a string"),
        ({"Fn::If": ["NoSuch", 1, 2]}, "unresolved condition dependency: NoSuch"),
    ],
)
def test_functions_that_are_wrong_say_why(node: Any, told: str) -> None:
    with pytest.raises(TemplateError, match=told.replace("(", r"\(")):
        value(node, **MAPPINGS)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"Fn::Equals": [{"Ref": "P"}, "on"]}, True),
        ({"Fn::Not": [{"Fn::Equals": [{"Ref": "P"}, "on"]}]}, False),
        ({"Fn::And": [{"Condition": "Base"}, {"Fn::Equals": ["1", 1]}]}, True),
        ({"Fn::And": [{"Condition": "Base"}, {"Fn::Equals": ["a", "b"]}]}, False),
        ({"Fn::Or": [{"Fn::Equals": ["a", "b"]}, {"Condition": "Base"}]}, True),
    ],
)
def test_conditions(condition: Any, expected: bool) -> None:
    sections = {
        "Parameters": {"P": {"Type": "String", "Default": "on"}},
        "Conditions": {"C": condition, "Base": {"Fn::Equals": [{"Ref": "AWS::Region"}, "us-east-1"]}},
    }
    assert value({"Fn::If": ["C", "then", "else"]}, **sections) == ("then" if expected else "else")


def test_conditions_in_a_circle_are_refused() -> None:
    with pytest.raises(TemplateError, match=r"between conditions: \[A, B\]"):
        evaluation(
            Conditions={"A": {"Fn::Not": [{"Condition": "B"}]}, "B": {"Fn::Not": [{"Condition": "A"}]}}
        )


def test_a_resource_under_a_false_condition_is_not_there() -> None:
    sections: dict[str, Any] = {
        "Conditions": {"No": {"Fn::Equals": ["a", "b"]}},
        "Resources": {"Gone": {"Type": "T", "Condition": "No"}},
    }
    assert "Gone" not in evaluation(**sections).active
    assert value({"Fn::If": ["No", {"Ref": "Gone"}, "without"]}, **sections) == "without"
    with pytest.raises(TemplateError, match=r"Unresolved resource dependencies \[Gone\]"):
        value({"Ref": "Gone"}, **sections)


RULE = {
    "Assertions": [{"Assert": {"Fn::Contains": [["a", "b"], {"Ref": "P"}]}, "AssertDescription": "a or b"}]
}


@pytest.mark.parametrize("given_value", ["a", "c"])
def test_rules_hold_or_refuse(given_value: str) -> None:
    sections = {"Parameters": {"P": {"Type": "String"}}, "Rules": {"R": RULE}}
    if given_value == "a":
        evaluation(given={"P": "a"}, **sections)
        return
    with pytest.raises(TemplateError, match="a or b"):
        evaluation(given={"P": "c"}, **sections)


def bound(declaration: dict[str, Any], text: str | None) -> Any:
    given = {} if text is None else {"P": text}
    return value({"Ref": "P"}, Parameters={"P": declaration}, given=given)


@pytest.mark.parametrize(
    ("declaration", "text", "expected"),
    [
        ({"Type": "String", "Default": "d"}, None, "d"),
        ({"Type": "Number", "Default": 3}, None, "3"),
        ({"Type": "CommaDelimitedList"}, "a, b", ["a", "b"]),
        ({"Type": "CommaDelimitedList", "Default": ""}, None, [""]),
        ({"Type": "List<Number>"}, "1,2", ["1", "2"]),
        ({"Type": "AWS::SSM::Parameter::Value<String>"}, "/a/b", "stored"),
        ({"Type": "AWS::SSM::Parameter::Value<List<String>>"}, "/a/b", ["stored"]),
        ({"Type": "AWS::EC2::VPC::Id"}, "vpc-1", "vpc-1"),
    ],
)
def test_parameters(declaration: dict[str, Any], text: str | None, expected: Any) -> None:
    assert bound(declaration, text) == expected


@pytest.mark.parametrize(
    ("declaration", "text", "told"),
    [
        ({"Type": "String"}, None, r"Parameters: \[P\] must have values"),
        ({"Type": "String", "AllowedValues": ["on", "off"]}, "x", "must be one of AllowedValues"),
        ({"Type": "String", "AllowedPattern": "[a-z]+"}, "9", "must match pattern"),
        ({"Type": "String", "MinLength": 2}, "a", "must contain at least 2 characters"),
        ({"Type": "String", "MaxLength": 2}, "abc", "must contain at most 2 characters"),
        ({"Type": "Number"}, "x", "must be a number"),
        ({"Type": "Number", "MinValue": 2}, "1", "not less than 2"),
        ({"Type": "Number", "MaxValue": 2}, "3", "not greater than 2"),
        ({"Type": "String", "MinLength": 9, "ConstraintDescription": "long"}, "a", "constraint: long"),
        ({"Type": "AWS::SSM::Parameter::Value<String>"}, "/no", r"Unable to fetch parameters \[/no\]"),
    ],
)
def test_parameters_that_break_their_declaration(
    declaration: dict[str, Any], text: str | None, told: str
) -> None:
    with pytest.raises(TemplateError, match=told):
        bound(declaration, text)


def test_a_parameter_that_nobody_declared_is_refused() -> None:
    with pytest.raises(TemplateError, match=r"Parameters: \[Q\] do not exist in the template"):
        evaluation(given={"Q": "1"})


def test_a_hidden_parameter_is_not_told() -> None:
    created = evaluation(given={"P": "secret"}, Parameters={"P": {"Type": "String", "NoEcho": True}})
    assert created.bound.described() == [{"ParameterKey": "P", "ParameterValue": "****"}]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("{", "JSON not well-formed"),
        ("a: [", "YAML not well-formed"),
        ("just text", "unsupported structure"),
        ({}, "At least one Resources member must be defined"),
        ({"Resources": {"A": {}}}, "must contain a Type member"),
        ({"Resources": {"A-b": {"Type": "T"}}}, "A-b is non alphanumeric"),
        ({"Resources": {"A": {"Type": "T", "Bogus": 1}}}, "Invalid template resource property 'Bogus'"),
        (
            {"Resources": {"A": {"Type": "T"}}, "Bogus": {}},
            r"Invalid template property or properties \[Bogus\]",
        ),
        ({"Resources": {"A": {"Type": "T", "Condition": "No"}}}, "Unresolved condition dependency No"),
        ({"Resources": {"A": {"Type": "T", "DependsOn": "No"}}}, r"Unresolved resource dependencies \[No\]"),
        (
            {"Resources": {"A": {"Type": "T"}}, "Outputs": {"O": {"Value": {"Fn::Sub": "${No}"}}}},
            "in the Outputs block",
        ),
        (
            {"Resources": {"A": {"Type": "T"}}, "Transform": "AWS::LanguageExtensions"},
            "supports no transforms",
        ),
    ],
)
def test_templates_that_are_refused(body: Any, told: str) -> None:
    with pytest.raises(TemplateError, match=told):
        template.load(body if isinstance(body, str) else json.dumps(body))


def test_resources_in_a_circle_are_refused() -> None:
    circle = {"B": {"Type": "T", "DependsOn": "C"}, "C": {"Type": "T", "DependsOn": "B"}}
    behind = {"D": {"Type": "T", "DependsOn": "C"}}
    with pytest.raises(TemplateError, match=r"Circular dependency between resources: \[B, C\]"):
        evaluation(Resources={**circle, **behind})


def test_yaml_short_forms_are_the_long_ones() -> None:
    text = """
    AWSTemplateFormatVersion: 2010-09-09
    Conditions: {C: !And [!Equals [a, b], !Condition D]}
    Mappings: {M: {012: {on: x}}}
    Resources:
      A:
        Type: T
        Properties:
          Arn: !GetAtt B.Endpoint.Address
          Name: !Sub
            - "${x}-${A}"
            - x: !Ref B
          Pick: !Select [0, !Split [",", !ImportValue a]]
          Policy: {Version: 2012-10-17}
    """
    parse = template_text.parse(text)
    assert parse["AWSTemplateFormatVersion"] == "2010-09-09"
    assert parse["Conditions"]["C"] == {"Fn::And": [{"Fn::Equals": ["a", "b"]}, {"Condition": "D"}]}
    assert parse["Resources"]["A"]["Properties"] == {
        "Arn": {"Fn::GetAtt": ["B", "Endpoint.Address"]},
        "Name": {"Fn::Sub": ["${x}-${A}", {"x": {"Ref": "B"}}]},
        "Pick": {"Fn::Select": [0, {"Fn::Split": [",", {"Fn::ImportValue": "a"}]}]},
        "Policy": {"Version": "2012-10-17"},
    }


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(PLAIN)
def test_a_value_without_functions_stays_what_it_is(node: Any) -> None:
    assert value(node) == node
    assert not holds_unknown(node)


@given(PLAIN, PLAIN)
def test_an_unknown_is_found_wherever_it_stands(left: Any, right: Any) -> None:
    assert holds_unknown(value({"l": left, "m": [{"deep": {"Ref": "New"}}], "r": right}))


@given(st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=10))
def test_the_order_puts_each_after_what_it_needs(rows: list[set[int]]) -> None:
    needs = {str(n): frozenset(str(m) for m in row if m < n) for n, row in enumerate(rows)}
    order = in_order(needs)
    assert sorted(order) == sorted(needs)
    assert all(order.index(before) < order.index(name) for name, row in needs.items() for before in row)


@given(st.text(max_size=20), st.text("-,/", min_size=1, max_size=1))
def test_join_undoes_split(text: str, at: str) -> None:
    assert value({"Fn::Join": [at, {"Fn::Split": [at, text]}]}) == text
