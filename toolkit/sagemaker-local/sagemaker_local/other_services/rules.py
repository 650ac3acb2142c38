"""Features that moto lacks and the local stacks need, added once in a process."""

from __future__ import annotations

import json
from threading import RLock
from typing import Any

from sagemaker_local.other_services.policies import trusts
from sagemaker_local.other_services.quotas import lay_quota_rules
from sagemaker_local.other_services.simulation import allows, lay_simulation
from sagemaker_local.wire.unserved import Unserved

_MARK = "peagle_rules"


def lay_rules() -> None:
    """Add the rules for Lambda, IAM, CloudWatch and Service Quotas; idempotent."""
    _refuse_operations()
    lay_quota_rules()
    lay_simulation()
    _lay_lambda_rules()
    _lay_iam_rules()
    _lay_stream_prefix()
    _lay_log_groups()
    _lay_conflict_status()
    _lay_schedule_groups()
    _lay_caller_identity()
    _leave_out_builders_of_addresses()
    _guard_operation_models()


def _refuse_operations() -> None:
    """Refuse operations that moto answers without the checks of AWS, as those that moto lacks."""
    from moto.applicationautoscaling.responses import ApplicationAutoScalingResponse
    from moto.kms.responses import KmsResponse
    from moto.servicequotas.responses import ServiceQuotasResponse

    def refused(self: Any) -> Any:
        raise Unserved

    for responses, operations in (
        (ApplicationAutoScalingResponse, ("put_scheduled_action", "delete_scheduled_action")),
        (KmsResponse, ("decrypt", "encrypt", "generate_data_key", "re_encrypt")),
        (KmsResponse, ("generate_data_key_without_plaintext",)),
        (ServiceQuotasResponse, ("get_service_quota",)),
    ):
        for operation in operations:
            setattr(responses, operation, refused)


def _lay_lambda_rules() -> None:
    """Have functions keep and show DeadLetterConfig and LoggingConfig, and their roles checked as by AWS."""
    from moto.awslambda.exceptions import InvalidParameterValueException
    from moto.awslambda.models import LambdaBackend, LambdaFunction

    if getattr(LambdaFunction, _MARK, False):
        return

    begin, change, show = (
        LambdaFunction.__init__,
        LambdaFunction.update_configuration,
        LambdaFunction.get_configuration,
    )

    def __init__(self: Any, account_id: str, spec: dict[str, Any], *more: Any, **others: Any) -> None:
        self.peagle_config = _kept(spec)
        begin(self, account_id, spec, *more, **others)

    def update_configuration(self: Any, config_updates: dict[str, Any]) -> Any:
        self.peagle_config = {**self.peagle_config, **_kept(config_updates)}
        change(self, config_updates)
        return self.get_configuration()

    def get_configuration(self: Any, on_create: bool = False) -> dict[str, Any]:
        return {**show(self, on_create), **{key: value for key, value in self.peagle_config.items() if value}}

    create_function = LambdaBackend.create_function

    def checked_creation(self: Any, spec: dict[str, Any]) -> Any:
        _check_function_role(
            self, str(spec.get("Role")), (spec.get("DeadLetterConfig") or {}).get("TargetArn")
        )
        return create_function(self, spec)

    put = LambdaBackend.put_function_event_invoke_config

    def put_event_settings(self: Any, function_name: str, config: dict[str, Any]) -> Any:
        if (config.get("DestinationConfig") or {}).keys() & {"OnSuccess", "OnFailure"}:
            raise InvalidParameterValueException(
                "the local Lambda delivers to no destinations; use the function's DeadLetterConfig"
            )
        # moto would keep the first settings too, and answer them.
        self.get_function(function_name).event_invoke_config = []
        return put(self, function_name, config)

    LambdaBackend.create_function = checked_creation
    LambdaBackend.put_function_event_invoke_config = put_event_settings
    LambdaFunction.__init__ = __init__
    LambdaFunction.update_configuration = update_configuration
    LambdaFunction.get_configuration = get_configuration
    setattr(LambdaFunction, _MARK, True)


def _check_function_role(backend: Any, arn: str, dead_letters: str | None) -> None:
    """Refuse a role that Lambda may not assume, or that may not send to the function's dead letters."""
    from moto.awslambda.exceptions import InvalidParameterValueException
    from moto.iam.models import iam_backends

    iam = iam_backends[backend.account_id][backend.partition]
    role = next((role for role in iam.roles.values() if role.arn == arn), None)
    if role is None or not trusts(json.loads(role.assume_role_policy_document), "lambda.amazonaws.com"):
        raise InvalidParameterValueException("The role defined for the function cannot be assumed by Lambda.")
    if dead_letters:
        service, action = ("SNS", "Publish") if ":sns:" in dead_letters else ("SQS", "SendMessage")
        if not allows(iam, arn, f"{service.lower()}:{action}", dead_letters):
            raise InvalidParameterValueException(
                f"The provided execution role does not have permissions to call {action} on {service}"
            )


def _kept(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: spec[key] for key in ("DeadLetterConfig", "LoggingConfig") if key in spec}


def _lay_iam_rules() -> None:
    """Create AWS's managed policies (``arn:aws:iam::aws:policy/…``) when first attached."""
    from moto.iam.models import IAMBackend

    if getattr(IAMBackend, _MARK, False):
        return

    attach = IAMBackend.attach_role_policy

    def attach_role_policy(self: Any, policy_arn: str, role_name: str) -> None:
        if policy_arn not in self.managed_policies:
            _bring_aws_policy(self, policy_arn)
        attach(self, policy_arn, role_name)

    IAMBackend.attach_role_policy = attach_role_policy
    setattr(IAMBackend, _MARK, True)


def _bring_aws_policy(backend: Any, arn: str) -> None:
    # Fourteen megabytes of text, so they are read only when a stack asks for one.
    from moto.iam.aws_managed_policies import aws_managed_policies_data
    from moto.iam.models import AWSManagedPolicy

    document = json.loads(aws_managed_policies_data).get(arn.rsplit("/", 1)[-1])
    if document is None:
        return
    policy = AWSManagedPolicy.from_data(
        arn.rsplit("/", 1)[-1], backend.account_id, backend.region_name, document
    )
    if policy.arn == arn:
        backend.managed_policies[arn] = policy


def _lay_stream_prefix() -> None:
    """Have FilterLogEvents read only the streams that begin with ``logStreamNamePrefix``."""
    from moto.logs.exceptions import InvalidParameterException
    from moto.logs.responses import LogsResponse

    if getattr(LogsResponse, _MARK, False):
        return

    filter_events = LogsResponse.filter_log_events

    def filter_log_events(self: Any) -> Any:
        parameters = json.loads(self.body)
        prefix, group = parameters.get("logStreamNamePrefix"), parameters.get("logGroupName")
        if prefix is None or group not in self.logs_backend.groups:
            return filter_events(self)
        if parameters.get("logStreamNames"):
            raise InvalidParameterException(
                "LogStreamNamePrefix and LogStreamNames cannot both be specified in one request."
            )
        names = [name for name in self.logs_backend.groups[group].streams if name.startswith(prefix)]
        if not names:
            return json.dumps({"events": [], "searchedLogStreams": []})
        self.body = json.dumps({**parameters, "logStreamNames": names})
        return filter_events(self)

    put_filter = LogsResponse.put_metric_filter

    def put_metric_filter(self: Any) -> Any:
        parameters = json.loads(self.body)
        pattern = str(parameters.get("filterPattern") or "").strip()
        if _is_broken(pattern):
            raise InvalidParameterException("Invalid filter pattern")
        dimensions = any(each.get("dimensions") for each in parameters.get("metricTransformations") or ())
        if dimensions and not pattern.startswith(("{", "[")):
            raise InvalidParameterException("The specified filter pattern does not support dimensions")
        return put_filter(self)

    LogsResponse.put_metric_filter = put_metric_filter
    LogsResponse.filter_log_events = filter_log_events
    setattr(LogsResponse, _MARK, True)


def _is_broken(pattern: str) -> bool:
    """Return whether a pattern lacks the end of its braces, brackets or quotation marks."""
    pairs = {"{": "}", "[": "]"}
    unfinished = pattern[:1] in pairs and not pattern.endswith(pairs[pattern[0]])
    no_selector = pattern.startswith("{") and "$" not in pattern
    return unfinished or no_selector or pattern.replace('\\"', "").count('"') % 2 == 1


# "Possible values" of PutRetentionPolicy's retentionInDays, CloudWatch Logs API reference.
_RETENTIONS = frozenset(
    (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)
)


def _lay_log_groups() -> None:
    """Have Logs refuse retentions and names that AWS does not know, and keys that are not there."""
    from moto.kms.models import kms_backends
    from moto.logs.exceptions import InvalidParameterException
    from moto.logs.models import LogsBackend

    if getattr(LogsBackend, _MARK, False):
        return

    create, retain = LogsBackend.create_log_group, LogsBackend.put_retention_policy

    def create_log_group(self: Any, log_group_name: str, tags: dict[str, str], **more: Any) -> Any:
        if log_group_name.lower().startswith("aws/"):
            raise InvalidParameterException("Log groups starting with AWS/ are reserved for AWS.")
        key = more.get("kmsKeyId")
        if key is not None:
            known = kms_backends[self.account_id][self.region_name].keys
            kept = known.get(str(key).rpartition("/")[2])
            if kept is None or kept.key_state != "Enabled":
                raise InvalidParameterException(f"The specified KMS key does not exist or is disabled: {key}")
        return create(self, log_group_name, tags, **more)

    def put_retention_policy(self: Any, log_group_name: str, retention_in_days: Any) -> None:
        if int(retention_in_days) not in _RETENTIONS:
            allowed = ", ".join(map(str, sorted(_RETENTIONS)))
            raise InvalidParameterException(
                f"Value '{retention_in_days}' at 'retentionInDays' failed to satisfy constraint: Member must "
                f"satisfy enum value set: [{allowed}]"
            )
        retain(self, log_group_name, retention_in_days)

    LogsBackend.create_log_group = create_log_group
    LogsBackend.put_retention_policy = put_retention_policy
    setattr(LogsBackend, _MARK, True)


def _lay_conflict_status() -> None:
    """Have a second schedule of a name refused with 409, as the Scheduler API reference says."""
    from moto.scheduler.exceptions import ScheduleExists

    ScheduleExists.code = 409


def _lay_schedule_groups() -> None:
    """Have a schedule in a group that does not exist refused as AWS does."""
    from moto.scheduler.exceptions import ScheduleGroupNotFound
    from moto.scheduler.models import EventBridgeSchedulerBackend

    if getattr(EventBridgeSchedulerBackend, _MARK, False):
        return

    create = EventBridgeSchedulerBackend.create_schedule

    def create_schedule(self: Any, **members: Any) -> Any:
        group = members.get("group_name") or "default"
        if group not in self.schedule_groups:
            raise ScheduleGroupNotFound(group)
        return create(self, **members)

    EventBridgeSchedulerBackend.create_schedule = create_schedule
    setattr(EventBridgeSchedulerBackend, _MARK, True)


def _lay_caller_identity() -> None:
    """Have GetCallerIdentity name an IAM user as IAM does; moto's default has STS's ARN and a key's id."""
    from moto.sts.models import STSBackend

    if getattr(STSBackend, _MARK, False):
        return

    identity = STSBackend.get_caller_identity

    def get_caller_identity(self: Any, access_key_id: str, region: str) -> tuple[str, str, str]:
        user_id, arn, account = identity(self, access_key_id, region)
        if user_id.startswith("AKIA"):
            return "AIDAPEAGLESMLOCALUSER", f"arn:{self.partition}:iam::{account}:user/local", account
        return user_id, arn, account

    STSBackend.get_caller_identity = get_caller_identity
    setattr(STSBackend, _MARK, True)


def _leave_out_builders_of_addresses() -> None:
    """Have werkzeug compile no function that builds a route's address: moto only matches addresses.

    Compiling them took 189 of the 196 ms of CPU that moto's applications need for nine services. It
    also parses Python, and before 3.13 two threads that parse at once can end in SystemError (CPython issue
    106905): another one parses whenever it formats a traceback.
    """
    from werkzeug.routing import Rule

    def no_builder(rule: Rule, append_unknown: bool = True) -> Any:
        def build(rule: Rule, **values: Any) -> tuple[str, str]:
            raise LookupError(f"route {rule.rule} has no builder")

        return build

    Rule._compile_builder = no_builder  # type: ignore[method-assign,assignment]


def _guard_operation_models() -> None:
    """Let one thread at a time look up the model of an operation.

    moto's lookup calls botocore's, and both keep their result under one key. A thread that asked between
    the two got botocore's model, which has no ``http_trait``, and its request ended with 500.
    """
    from moto.core.model import ServiceModel

    if getattr(ServiceModel, _MARK, False):
        return

    look_up = ServiceModel.operation_model
    lock = RLock()

    def operation_model(self: Any, operation_name: str) -> Any:
        with lock:
            return look_up(self, operation_name)

    ServiceModel.operation_model = operation_model
    setattr(ServiceModel, _MARK, True)
