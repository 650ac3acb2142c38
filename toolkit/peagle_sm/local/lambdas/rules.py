"""What moto's Lambda leaves out and we need: the dead-letter queue of a function."""

from __future__ import annotations

from typing import Any


def lay_lambda_rules() -> None:
    """Have moto's functions keep and show DeadLetterConfig; doing it twice changes nothing."""
    from moto.awslambda.models import LambdaFunction

    if getattr(LambdaFunction, "peagle_rules", False):
        return

    begin, change, show = (
        LambdaFunction.__init__,
        LambdaFunction.update_configuration,
        LambdaFunction.get_configuration,
    )

    def __init__(self: Any, account_id: str, spec: dict[str, Any], *more: Any, **others: Any) -> None:
        begin(self, account_id, spec, *more, **others)
        self.peagle_dead_letter = _target(spec)

    def update_configuration(self: Any, config_updates: dict[str, Any]) -> Any:
        if "DeadLetterConfig" in config_updates:
            self.peagle_dead_letter = _target(config_updates)
        change(self, config_updates)
        return self.get_configuration()

    def get_configuration(self: Any, on_create: bool = False) -> dict[str, Any]:
        shown = dict(show(self, on_create))
        if getattr(self, "peagle_dead_letter", None):
            shown["DeadLetterConfig"] = {"TargetArn": self.peagle_dead_letter}
        return shown

    LambdaFunction.__init__ = __init__
    LambdaFunction.update_configuration = update_configuration
    LambdaFunction.get_configuration = get_configuration
    LambdaFunction.peagle_rules = True


def _target(spec: dict[str, Any]) -> str | None:
    arn = (spec.get("DeadLetterConfig") or {}).get("TargetArn")
    return str(arn) if arn else None
