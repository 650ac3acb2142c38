"""One requested fault: what, where, how often. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from sagemaker_local.errors import InvalidRequest
from sagemaker_local.faults.kinds import KINDS, OPERATIONS, Kind, Option

_EXAMPLE = "peagle-sm local fault add cut 'endpoint=my-*' times=1"
#: What every kind may be told, beside its own options.
_COMMON: Mapping[str, Option] = {
    "endpoint": Option("*"),
    "operation": Option(None, (*OPERATIONS, None)),
    "times": Option(None, least=1),
    "probability": Option(1.0, least=0, most=1),
    "seed": Option(0, least=0),
}


@dataclass(frozen=True)
class Fault:
    """A fault as it was requested.

    ``endpoint`` is a glob over names; ``operation`` None means every operation that the kind applies to;
    ``times`` None means until it is cleared; ``seed`` is for both the draws of ``probability`` and random
    positions. ``options`` has every option of the kind, with defaults.
    """

    kind: str
    endpoint: str = "*"
    operation: str | None = None
    times: int | None = None
    probability: float = 1.0
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def operations(self) -> frozenset[str]:
        """The operations that it applies to."""
        return KINDS[self.kind].operations if self.operation is None else frozenset({self.operation})

    def applies_to(self, operation: str, endpoint: str) -> bool:
        """Whether it applies to this operation of this endpoint."""
        return operation in self.operations and fnmatchcase(endpoint, self.endpoint)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values; the kind's options are on the same level."""
        return {
            "kind": self.kind,
            "endpoint": self.endpoint,
            "operation": self.operation,
            "times": self.times,
            "probability": self.probability,
            "seed": self.seed,
            **self.options,
        }


def parse(raw: Mapping[str, Any]) -> Fault:
    """Read a fault from plain JSON values.

    Raises:
        InvalidRequest: no such kind, an option that the kind does not have, or a value that is not allowed.
    """
    kind = _kind(raw.get("kind"))
    known = {**_COMMON, **kind.options}
    unknown = sorted(set(raw) - set(known) - {"kind"})
    if unknown:
        raise _wrong(f"{kind.name} has no option {unknown[0]!r}", unknown[0], ", ".join(sorted(known)))
    values = {name: _value(name, option, raw.get(name)) for name, option in known.items()}
    operation = values["operation"]
    if operation is not None and operation not in kind.operations:
        raise _wrong(
            f"{kind.name} does not apply to operation {operation!r}",
            operation,
            ", ".join(name for name in OPERATIONS if name in kind.operations),
        )
    if values.get("where") == "start":
        values["after_events"] = 0
    common = {name: values.pop(name) for name in _COMMON}
    return Fault(kind=kind.name, **common, options=values)


def _kind(name: Any) -> Kind:
    if not isinstance(name, str) or name not in KINDS:
        raise _wrong("unknown kind of fault", name, ", ".join(KINDS))
    return KINDS[name]


def _value(name: str, option: Option, given: Any) -> Any:
    if given is None:
        return option.default
    if option.choices:
        fits = given in option.choices
    elif option.least is not None:
        fits = _is_number(given, option) and option.least <= given
        fits = fits and (option.most is None or given <= option.most)
    else:
        fits = isinstance(given, type(option.default))
    if not fits:
        raise _wrong(f"{name} has an invalid value", given, option.allowed())
    return given


def _is_number(given: Any, option: Option) -> bool:
    whole = not isinstance(option.default, float)
    return isinstance(given, int if whole else (int, float)) and not isinstance(given, bool)


def _wrong(what: str, found: Any, allowed: str) -> InvalidRequest:
    return InvalidRequest(
        f"{what}: found {found!r}; allowed: {allowed}",
        next_step=_EXAMPLE,
        details={"found": found, "allowed": allowed},
    )
