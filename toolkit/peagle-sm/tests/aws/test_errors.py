"""botocore's errors become ours, each with a next step."""

from __future__ import annotations

import re
from typing import Any

import pytest
from botocore import exceptions as botocore
from botocore import xform_name
from botocore.session import Session

from peagle_sm.aws.session.errors import (
    api_name,
    aws_errors,
    is_refused_now,
    is_taken,
    is_unsettled,
)
from peagle_sm.core.errors import CredentialsError, NotFound, PeagleError, ServiceFault, SpecError
from tests.rules.files import ROOT


def _client_error(code: str, message: str = "words", status: int = 400) -> botocore.ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"RequestId": "req-1", "HTTPStatusCode": status},
    }
    return botocore.ClientError(answer, "Operation")


def _mapped(error: Exception) -> PeagleError:
    with pytest.raises(PeagleError) as caught, aws_errors("DescribeEndpoint"):
        raise error
    assert caught.value.__cause__ is error
    assert caught.value.next_step
    return caught.value


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (_client_error("ExpiredTokenException"), CredentialsError, "aws sso login"),
        (_client_error("UnrecognizedClientException"), CredentialsError, "aws sso login"),
        (_client_error("AccessDeniedException"), CredentialsError, "permission"),
        (_client_error("ValidationException", 'Could not find endpoint "arn".'), NotFound, "peagle-sm list"),
        (_client_error("ResourceNotFoundException"), NotFound, "peagle-sm list"),
        (_client_error("ResourceLimitExceeded"), ServiceFault, "quota"),
        (_client_error("ThrottlingException"), ServiceFault, "rate"),
        (_client_error("InternalFailure", status=500), ServiceFault, "AWS failed"),
        (_client_error("ValidationException", "bad role"), ServiceFault, "--dry-run"),
        (_client_error("SomethingNew"), ServiceFault, "again"),
        (botocore.NoCredentialsError(), CredentialsError, "--profile"),
        (botocore.PartialCredentialsError(provider="env", cred_var="x"), CredentialsError, "--profile"),
        (botocore.ProfileNotFound(profile="x"), CredentialsError, "list-profiles"),
        (botocore.NoRegionError(), CredentialsError, "--region"),
        (botocore.UnauthorizedSSOTokenError(), CredentialsError, "aws sso login"),
        (botocore.ParamValidationError(report="Name"), SpecError, "field"),
        (botocore.EndpointConnectionError(endpoint_url="https://x"), ServiceFault, "network"),
        (botocore.ConnectTimeoutError(endpoint_url="https://x"), ServiceFault, "network"),
        (botocore.ReadTimeoutError(endpoint_url="https://x"), ServiceFault, "network"),
        (botocore.ConnectionClosedError(endpoint_url="https://x"), ServiceFault, "network"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_mapping(error: Exception, kind: type[PeagleError], words: str) -> None:
    mapped = _mapped(error)
    assert type(mapped) is kind
    assert words in (mapped.next_step or "")


_ARN = "arn:aws:sagemaker:us-east-1:123456789012"


@pytest.mark.parametrize(
    "words",
    [
        f'Could not find endpoint "{_ARN}:endpoint/demo".',
        f'Could not find endpoint configuration "{_ARN}:endpoint-config/demo".',
        f'Could not find model "{_ARN}:model/demo".',
        f'Could not find inference component "{_ARN}:inference-component/demo".',
        f'Could not find resource "{_ARN}:model/demo".',
        f"{_ARN}:endpoint/demo does not exist",
        "Endpoint demo of account 123456789012 not found.",
        "Inference Component demo of account 123456789012 not found.",
        "Stack with id Peagle-demo does not exist",
        "Stack [Peagle-demo] does not exist",
        "Stack:arn:aws:cloudformation:us-east-1:1:stack/demo/1 does not exist",
        "Resource Endpoint does not exist for stack Peagle-demo",
    ],
)
def test_a_validation_error_about_the_resource_of_the_call_means_that_it_does_not_exist(words: str) -> None:
    assert type(_mapped(_client_error("ValidationException", words))) is NotFound


@pytest.mark.parametrize(
    "words",
    [
        "Could not find model data at s3://bucket/model.tar.gz.",
        "Could not find variant 'B'; the endpoint has: A.",
        "Requested image 1.dkr.ecr.us-east-1.amazonaws.com/vllm:9 not found.",
        'The role "arn:aws:iam::123456789012:role/gone" does not exist.',
        "Variant B not found for Request",
        "Template format error: Unresolved resource dependencies [X]: it does not exist",
    ],
)
def test_a_validation_error_about_a_parameter_is_not_about_a_missing_resource(words: str) -> None:
    fault = _mapped(_client_error("ValidationException", words))
    assert type(fault) is ServiceFault
    assert words in str(fault)
    assert "peagle-sm list" not in (fault.next_step or "")


def test_a_fault_keeps_operation_code_and_request_id() -> None:
    fault = _mapped(_client_error("ThrottlingException"))
    assert isinstance(fault, ServiceFault)
    assert (fault.operation, fault.code, fault.request_id) == (
        "DescribeEndpoint",
        "ThrottlingException",
        "req-1",
    )


def test_what_may_have_been_carried_out() -> None:
    assert is_unsettled(_mapped(botocore.ReadTimeoutError(endpoint_url="x")))
    assert is_unsettled(_mapped(_client_error("Odd", status=503)))
    assert is_unsettled(_mapped(_client_error("ThrottlingException")))
    assert not is_unsettled(_mapped(_client_error("ValidationException")))
    assert not is_unsettled(_mapped(_client_error("AccessDenied")))


def test_taken_and_refused() -> None:
    taken = _mapped(_client_error("ValidationException", 'Cannot create already existing endpoint "arn".'))
    assert is_taken(taken)
    busy = _mapped(_client_error("ValidationException", 'Cannot update in-progress endpoint "arn".'))
    assert not is_taken(busy)
    assert is_refused_now(busy)
    assert not is_refused_now(_mapped(_client_error("AccessDenied")))


def test_what_is_not_botocores_passes() -> None:
    with pytest.raises(ZeroDivisionError), aws_errors("X"):
        raise ZeroDivisionError


def test_api_names_are_those_of_botocore() -> None:
    """Every call and list of `aws/` through `Session.api`, which names the operation in errors."""
    used = set()
    for path in (ROOT / "toolkit/peagle-sm/peagle_sm/aws").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        used |= set(re.findall(r'\.api\("([\w-]+)"(?:, once=True)?\)\s*\.(?:rows|find)\(\s*"(\w+)"', text))
        used |= set(re.findall(r'\.api\("([\w-]+)"(?:, once=True)?\)\s*\.(?!rows|find)(\w+)\(', text))
    session = Session()
    assert len(used) > 50
    for service, operation in used:
        names = session.get_service_model(service).operation_names
        assert {xform_name(name): name for name in names}[operation] == api_name(operation)
