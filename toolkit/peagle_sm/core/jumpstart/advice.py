"""What there is to say about a lock: would it run P-EAGLE, must a licence be accepted, what AWS warns of."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.catalog.images import ImageCatalog
from peagle_sm.core.jumpstart.acceleration import unaccelerated
from peagle_sm.core.jumpstart.lock import Lock
from peagle_sm.core.jumpstart.manifest import is_same_model
from peagle_sm.core.plan.records import Finding

_SPEC = "JumpStart spec"
_URL = "https://github.com/aws/sagemaker-python-sdk"
_ORDER = {"error": 0, "warning": 1, "info": 2}


def advice(
    lock: Lock, images: ImageCatalog, *, newest: str | None = None, hub_id: str | None = None
) -> tuple[Finding, ...]:
    """Return the findings on a lock, errors first; ``newest`` is the manifest's newest version.

    An error is what no plan of this program can mend: with mode p-eagle, `plan` and `deploy` refuse it.
    """
    found = [*_on_acceleration(lock, images), *_on_licence(lock), *_on_model(lock, newest, hub_id)]
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))


def _on_acceleration(lock: Lock, images: ImageCatalog) -> Iterator[Finding]:
    channels = frozenset({lock.head.channel} if lock.head else ())
    for name, one in lock.instances.items():
        environment = {**lock.environment, **one.environment}
        for reason in unaccelerated(images.describe(one.image), environment, channels, images):
            step = (
                "Nothing to do: `peagle-sm deploy` sets its own. Do not use JumpStart's own button."
                if reason.mended
                else "Choose another of placement.instance_types, or another config with --config."
            )
            severity = "warning" if reason.mended else "error"
            yield Finding(
                f"jumpstart-{reason.code}",
                severity,  # type: ignore[arg-type]
                f"{name}: {reason.message}",
                step,
                reason.source,
                _URL,
            )


def _on_licence(lock: Lock) -> Iterator[Finding]:
    licence = lock.licence
    if licence.gated and not licence.accepted:
        where = f"; its terms: {', '.join(licence.eula_uris)}" if licence.eula_uris else ""
        yield Finding(
            "licence",
            "error",
            f"{lock.jumpstart.model_id} is gated, and accept_eula is false{where}",
            "Read the terms, set accept_eula: true, and lock again.",
            "SageMaker API: ModelAccessConfig; JumpStartConfig.accept_eula defaults to False",
            _URL,
        )


def _on_model(lock: Lock, newest: str | None, hub_id: str | None) -> Iterator[Finding]:
    model = lock.jumpstart
    name = f"{model.model_id} {model.version}"
    if model.deprecated:
        yield _of_model("jumpstart-deprecated", "warning", f"AWS calls {name} deprecated")
    if model.vulnerable or model.vulnerabilities:
        named = ", ".join(model.vulnerabilities) or "not named"
        yield _of_model("jumpstart-vulnerable", "warning", f"AWS calls {name} vulnerable: {named}")
    if hub_id is not None and model.url and not is_same_model(model.url, hub_id):
        yield _of_model(
            "jumpstart-url", "warning", f"its spec is of {model.url}, and {hub_id} was looked for"
        )
    if newest is not None and newest != model.version:
        yield _of_model("jumpstart-newer", "info", f"JumpStart has {newest}; {model.version} is locked")
    for message in model.messages:
        yield _of_model("jumpstart-message", "info", message)


def _of_model(check: str, severity: str, message: str) -> Finding:
    steps = {
        "jumpstart-message": "Read it.",
        "jumpstart-url": "Look whether it is the model that you want before you deploy it.",
        "jumpstart-newer": "Nothing to do; `peagle-sm lock --upgrade SPEC` moves to it.",
    }
    step = steps.get(check, "Move to the newest version with `peagle-sm lock --upgrade SPEC`.")
    return Finding(check, severity, message, step, _SPEC, _URL)  # type: ignore[arg-type]
