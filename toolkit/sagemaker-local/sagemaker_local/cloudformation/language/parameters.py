"""The Parameters section: sent values, previous values, defaults and constraints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sagemaker_local.cloudformation.errors import TemplateError

_SSM = re.compile(r"AWS::SSM::Parameter::Value<(?P<inner>.+)>")
_HIDDEN = "****"

# Gives a parameter of the Parameter Store as text; None when there is none of that name.
Stored = Callable[[str], str | None]


@dataclass(frozen=True)
class Bound:
    """A stack's parameters.

    Attributes:
        texts: what was sent or is the default, by name.
        values: what Ref gives.
        stored: for those that name an entry of the Parameter Store, what the entry held.
        hidden: those that no answer may show.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    stored: Mapping[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()

    def described(self) -> list[dict[str, str]]:
        """Return the parameters in the API's form."""
        return [self._row(name, text) for name, text in self.texts.items()]

    def _row(self, name: str, text: str) -> dict[str, str]:
        row = {"ParameterKey": name, "ParameterValue": _HIDDEN if name in self.hidden else text}
        return {**row, "ResolvedValue": self.stored[name]} if name in self.stored else row


def chosen(
    declared: Mapping[str, Any], sent: Sequence[Mapping[str, Any]], previous: Mapping[str, str]
) -> dict[str, str]:
    """Return each parameter's text: the sent value, the previous one (UsePreviousValue), or the default.

    Raises:
        TemplateError: one is unknown, or has neither a value nor a default.
    """
    strange = sorted({row["ParameterKey"] for row in sent if row["ParameterKey"] not in declared})
    if strange:
        raise TemplateError(f"Parameters: [{', '.join(strange)}] do not exist in the template")
    texts: dict[str, str] = {}
    for row in sent:
        name = row["ParameterKey"]
        if row.get("UsePreviousValue"):
            if "ParameterValue" in row:
                raise TemplateError(
                    f"Invalid input for parameter key {name}. Cannot specify usePreviousValue as true and "
                    "non empty value for a parameter"
                )
            if name not in previous:
                raise TemplateError(
                    f"Invalid input for parameter key {name}. Cannot specify usePreviousValue as true for a "
                    "parameter key not in the previous template"
                )
            texts[name] = previous[name]
        elif "ParameterValue" in row:
            texts[name] = row["ParameterValue"]
    for name, declaration in declared.items():
        if name not in texts and "Default" in declaration:
            texts[name] = default_text(declaration)
    lost = sorted(declared.keys() - texts.keys())
    if lost:
        raise TemplateError(f"Parameters: [{', '.join(lost)}] must have values")
    return {name: texts[name] for name in declared}


def default_text(declaration: Mapping[str, Any]) -> str:
    """Return a declaration's default as text."""
    default = declaration["Default"]
    if isinstance(default, bool):
        return "true" if default else "false"
    return str(default)


def bind(declared: Mapping[str, Any], texts: Mapping[str, str], stored: Stored) -> Bound:
    """Check the texts against their declarations and turn them into what Ref gives.

    Raises:
        TemplateError: a text breaks its declaration, or the Parameter Store has no such entry.
    """
    values: dict[str, Any] = {}
    from_store: dict[str, str] = {}
    for name, text in texts.items():
        declaration = declared[name]
        type_name = str(declaration.get("Type", "String"))
        _check(name, text, declaration, type_name)
        ssm = _SSM.fullmatch(type_name)
        if ssm:
            held = stored(text)
            if held is None:
                raise TemplateError(
                    f"Unable to fetch parameters [{text}] from parameter store for this account."
                )
            from_store[name] = held
        values[name] = _value(from_store.get(name, text), ssm["inner"] if ssm else type_name)
    hidden = frozenset(name for name in texts if str(declared[name].get("NoEcho", "")).lower() == "true")
    return Bound(dict(texts), values, from_store, hidden)


def _value(text: str, type_name: str) -> Any:
    if type_name == "CommaDelimitedList" or type_name.startswith("List<"):
        return [item.strip() for item in text.split(",")]
    return text


def _check(name: str, text: str, declaration: Mapping[str, Any], type_name: str) -> None:
    wrong = _wrong(name, text, declaration, type_name)
    if wrong is not None:
        description = declaration.get("ConstraintDescription")
        raise TemplateError(
            f"Parameter {name} failed to satisfy constraint: {description}" if description else wrong
        )


def _wrong(name: str, text: str, declaration: Mapping[str, Any], type_name: str) -> str | None:
    """Return what is wrong with a text, or None."""
    items = _value(text, type_name)
    every = items if isinstance(items, list) else [items]
    allowed = declaration.get("AllowedValues")
    if allowed is not None:
        known = {default_text({"Default": each}) for each in allowed}
        if not all(item in known for item in every):
            shown = ", ".join(default_text({"Default": each}) for each in allowed)
            return f"Parameter '{name}' must be one of AllowedValues: [{shown}]"
    pattern = declaration.get("AllowedPattern")
    if pattern is not None and not all(re.fullmatch(pattern, item) for item in every):
        return f"Parameter '{name}' must match pattern {pattern}"
    if type_name in ("Number", "List<Number>"):
        return _wrong_number(name, every, declaration)
    return _wrong_length(name, text, declaration)


def _wrong_length(name: str, text: str, declaration: Mapping[str, Any]) -> str | None:
    least, most = declaration.get("MinLength"), declaration.get("MaxLength")
    if least is not None and len(text) < int(least):
        return f"Parameter '{name}' must contain at least {least} characters"
    if most is not None and len(text) > int(most):
        return f"Parameter '{name}' must contain at most {most} characters"
    return None


def _wrong_number(name: str, items: Sequence[str], declaration: Mapping[str, Any]) -> str | None:
    least, most = declaration.get("MinValue"), declaration.get("MaxValue")
    for item in items:
        try:
            number = float(item)
        except ValueError:
            return f"Parameter '{name}' must be a number"
        if least is not None and number < float(least):
            return f"Parameter '{name}' must be a number not less than {least}"
        if most is not None and number > float(most):
            return f"Parameter '{name}' must be a number not greater than {most}"
    return None
