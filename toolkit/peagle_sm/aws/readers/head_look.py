"""Looks at the head of a spec in S3 before anything is deployed: at its manifest, else at its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3_folder import s3_folder
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.heads.fault import HeadLook
from peagle_sm.core.heads.files import CONFIG, read_json
from peagle_sm.core.heads.inspect import inspect_head
from peagle_sm.core.heads.manifest import NAME, manifest_faults, parse_manifest
from peagle_sm.core.heads.reading import Folder
from peagle_sm.core.plan.resolve import Draft


def look_at_head(session: Session, draft: Draft) -> HeadLook | None:
    """Say what is wrong with the head that the spec names itself; None where it names none.

    A head of the catalogue, of JumpStart's or of the local server is not looked at.

    Raises:
        NotFound: nothing is there.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    uri = draft.spec.head_uri
    if uri is None or not draft.speculating:
        return None
    root = draft.model_uri if draft.head_beside_target and draft.model_uri else uri
    folder = s3_folder(session, root)
    if NAME in folder.sizes:
        try:
            manifest = parse_manifest(folder.text(NAME) or b"")
        except ValueError:
            manifest = None  # somebody else's file of that name: the head's own files tell
        if manifest is not None:
            faults = manifest_faults(
                manifest,
                folder.sizes,
                model=draft.spec.model,
                mode=draft.mode,
                num_speculative_tokens=draft.num_speculative_tokens,
            )
            return HeadLook(uri, "manifest", tuple(faults))
    head = folder if root == uri else s3_folder(session, uri)
    report = inspect_head(
        head,
        target=_target(session, draft, folder if root != uri else None),
        mode=draft.mode,
        num_speculative_tokens=draft.num_speculative_tokens,
        trained_k=draft.head.trained_depth if draft.head else None,
    )
    # the licence is asked for where a head is staged; here it would be said again at each deploy
    return HeadLook(uri, "files", tuple(fault for fault in report.faults if fault.code != "licence"))


def _target(session: Session, draft: Draft, folder: Folder | None) -> Mapping[str, Any] | None:
    if draft.spec.model_uri is None:
        return None
    try:
        text = (folder or s3_folder(session, draft.spec.model_uri)).text(CONFIG)
        config = None if text is None else read_json(text, CONFIG)
    except (PeagleError, ValueError):
        return None  # another check says what is wrong with the target
    return config if isinstance(config, dict) else None
