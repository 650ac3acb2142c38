"""A lock as the plan reads it: in the place of the catalogue's entry."""

from __future__ import annotations

from peagle_sm.core.catalog.catalog import JumpStartEntry
from peagle_sm.core.jumpstart.lock import Lock

_SPECULATIVE_CONFIG = "SM_VLLM_SPECULATIVE_CONFIG"
_LONGEST_WAIT_S = 3600


def entry_of(lock: Lock) -> JumpStartEntry:
    """Return what the plan needs of a lock. The first instance type names the target's files."""
    first = next(iter(lock.instances.values()))
    environment = dict(lock.environment)
    speculative = environment.pop(_SPECULATIVE_CONFIG, "")
    return JumpStartEntry(
        jumpstart_model_id=lock.jumpstart.model_id,
        version=lock.jumpstart.version,
        config_name=lock.jumpstart.config,
        source=f"s3://{lock.source.bucket}/{lock.source.spec_key}, sha256 {lock.source.sha256[:12]}",
        date=lock.written_at[:10],
        gated=lock.licence.gated,
        image=first.image,
        family_images={name: one.image for name, one in lock.instances.items()},
        target_key="",
        draft_key="",
        target_uri=first.target_uri,
        draft_uri=lock.head.uri if lock.head else None,
        draft_channel=lock.head.channel if lock.head else "",
        default_instance_type=lock.default_instance_type or next(iter(lock.instances)),
        instance_types=lock.supported_instance_types,
        network_isolation=lock.network_isolation,
        download_timeout_s=lock.download_timeout_s or _LONGEST_WAIT_S,
        startup_timeout_s=lock.startup_timeout_s or _LONGEST_WAIT_S,
        environment=environment,
        speculative_config=speculative,
        instance_environment={name: dict(one.environment) for name, one in lock.instances.items()},
        locked=True,
        deprecated=lock.jumpstart.deprecated,
        vulnerabilities=lock.jumpstart.vulnerabilities
        or (("not named",) if lock.jumpstart.vulnerable else ()),
        messages=lock.jumpstart.messages,
    )
