"""Downloads from the Hugging Face hub, and of a public file.

A hub repository's files come from one commit, whole and checked. The library `huggingface_hub` (extra
``hub``) downloads them; its errors become peagle-sm's here. A small public file is checked against a known
sha256.
"""

from __future__ import annotations

import hashlib
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_sm.core.catalog import Vocabulary
from peagle_sm.core.errors import CredentialsError, NotFound, PeagleError, ServiceFault, SpecError
from peagle_sm.core.heads.reading import COMMIT, Folder
from peagle_sm.core.words import install_command

NEED_HUB = install_command("hub")
NO_ANSWER = "NoAnswer"
_TOKEN = "Request access on its page on the hub, then run `hf auth login` or set HF_TOKEN."
_OFFLINE = (
    "Check the network, the proxy (HTTPS_PROXY) and HF_ENDPOINT; or download the files on a machine with "
    "network access, and give their folder instead."
)


@contextmanager
def hub_errors(repository: str, revision: str) -> Iterator[None]:
    """Map what `huggingface_hub` raises inside the block.

    Raises:
        NotFound: the repository, revision or file does not exist.
        CredentialsError: the model is gated, or the token is refused.
        SpecError: the repository's name is invalid.
        ServiceFault: the hub fails (its status as code), or cannot be reached (code ``NoAnswer``).
    """
    from huggingface_hub import errors as known

    try:
        yield
    except known.GatedRepoError as error:
        raise CredentialsError(f"{repository} is gated: accept its terms first", next_step=_TOKEN) from error
    except known.RevisionNotFoundError as error:
        raise NotFound(
            f"{repository} has no revision {revision!r}",
            next_step="Give one of its branches, tags or commits on the hub.",
        ) from error
    except known.RepositoryNotFoundError as error:
        raise NotFound(
            f"the hub has no model {repository}, or your token has no access to it",
            next_step="Correct the name; for a private model, run `hf auth login` or set HF_TOKEN.",
        ) from error
    except known.EntryNotFoundError as error:
        raise NotFound(
            f"{repository} at {revision} lacks a file: {error}", next_step="Run the command again."
        ) from error
    except known.HFValidationError as error:
        raise SpecError(
            f"{repository!r} is not a name of a model on the hub", next_step="Give OWNER/NAME."
        ) from error
    except known.OfflineModeIsEnabled as error:
        raise ServiceFault(
            f"HF_HUB_OFFLINE is set, so {repository} cannot be looked up",
            code=NO_ANSWER,
            next_step="Unset HF_HUB_OFFLINE, or give a folder with the files instead.",
        ) from error
    except known.HfHubHTTPError as error:
        raise _of_status(error, repository) from error
    except Exception as error:
        if not _is_of_the_network(error):
            raise
        raise ServiceFault(
            f"the hub does not answer for {repository}: {str(error) or type(error).__name__}",
            code=NO_ANSWER,
            next_step=_OFFLINE,
        ) from error


def _is_of_the_network(error: Exception) -> bool:
    # the library's HTTP client may change (requests, httpx, httpx2): check the base class
    return isinstance(error, ConnectionError | TimeoutError) or any(
        base.__name__ in ("HTTPError", "StreamError") for base in type(error).__mro__
    )


def _of_status(error: Exception, repository: str) -> PeagleError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return CredentialsError(f"the hub refuses {repository} ({status}): {_line(error)}", next_step=_TOKEN)
    step = "Wait a minute and run the command again." if status == 429 else "Run the command again later."
    return ServiceFault(
        f"the hub failed for {repository} ({status}): {_line(error)}", code=str(status or ""), next_step=step
    )


def _line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


CHUNK_BYTES = 2**20
ATTEMPTS = 5
"""Attempts to read a piece."""


@dataclass(frozen=True)
class HubFile:
    """One file: size, and sha256 of a large file, else git's blob id."""

    name: str
    size: int
    sha256: str | None
    blob_id: str | None


@dataclass(frozen=True)
class Snapshot:
    """A repository at one commit; ``asked`` is the requested branch, tag or commit."""

    repository: str
    commit: str
    asked: str
    licence: str | None
    files: tuple[HubFile, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """File sizes by name."""
        return {file.name: file.size for file in self.files}


class Hub:
    """Client of one hub; ``endpoint`` None: HF_ENDPOINT, else huggingface.co."""

    def __init__(
        self,
        endpoint: str | None = None,
        token: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Create a client without a call; ``token`` None: HF_TOKEN, else `hf auth login`.

        Raises:
            NotFound: the library is not installed.
        """
        try:
            import huggingface_hub
        except ImportError as error:
            raise NotFound(
                "the Hugging Face hub needs the Python package huggingface_hub, which is not installed",
                next_step=NEED_HUB,
            ) from error
        self._library = huggingface_hub
        self._endpoint, self._token, self._sleep = endpoint, token, sleep

    def snapshot(self, repository: str, revision: str | None = None) -> Snapshot:
        """Resolve ``revision`` to a commit and list its files.

        ``revision`` is a commit, branch or tag; None: main.

        Raises:
            NotFound: the repository or revision does not exist, or the token has no access.
            CredentialsError: the model is gated, or the token is refused.
            SpecError: the repository's name is invalid.
            ServiceFault: the hub fails, or cannot be reached.
        """
        requested = revision or "main"
        with hub_errors(repository, requested):
            api = self._library.HfApi(endpoint=self._endpoint, token=self._token, library_name="peagle-sm")
            info = api.model_info(repository, revision=requested, files_metadata=True, timeout=30)
        commit = info.sha or ""
        if not COMMIT.fullmatch(commit) or (COMMIT.fullmatch(requested) and requested != commit):
            raise ServiceFault(
                f"the hub's commit for {requested!r} of {repository}: found {commit!r}; expected 40 hex",
                next_step="Give the commit itself: OWNER/NAME@COMMIT, with its 40 hex digits.",
            )
        card = info.card_data
        licence = card.get("license") if card is not None else None
        files = tuple(_file(each) for each in info.siblings or ())
        return Snapshot(repository, commit, requested, licence if isinstance(licence, str) else None, files)

    def folder(self, snapshot: Snapshot) -> Folder:
        """Return the repository as a folder that is read in pieces over the network."""

        def read(name: str, start: int, length: int) -> bytes:
            for attempt in range(ATTEMPTS if length else 0):
                try:
                    return self._piece(snapshot, name, start, length)
                except ServiceFault as error:
                    if error.code != NO_ANSWER or attempt == ATTEMPTS - 1:
                        raise
                    self._sleep(1.0)
            return b""

        known = {file.name: file.sha256 for file in snapshot.files if file.sha256}
        return Folder(snapshot.repository, snapshot.sizes, read, known, snapshot.commit, snapshot.licence)

    def _piece(self, snapshot: Snapshot, name: str, start: int, length: int) -> bytes:
        with self._stream(snapshot, name, f"bytes={start}-{start + length - 1}") as response:
            body: bytes = response.read()
        return body[start : start + length] if response.status_code == 200 else body

    def fetch(
        self,
        snapshot: Snapshot,
        names: list[str],
        directory: Path,
        got: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Download files into ``directory`` and check them; reuse those of earlier runs.

        ``got`` receives byte counts, also of bytes that already exist. The library continues after a cut.

        Raises:
            ServiceFault: the hub fails, cannot be reached, or sends a wrong file.
            CredentialsError, NotFound: as in `snapshot`.
            SpecError: the disk has too little space.
        """
        wanted = [file for file in snapshot.files if file.name in set(names)]
        directory.mkdir(parents=True, exist_ok=True)
        missing = [file for file in wanted if not _is_whole(directory / file.name, file)]
        _check_space(directory, sum(file.size for file in missing))
        for file in wanted:
            if file not in missing:
                got(file.size)
                continue
            with hub_errors(snapshot.repository, snapshot.commit):
                try:
                    self._library.hf_hub_download(
                        snapshot.repository,
                        file.name,
                        revision=snapshot.commit,
                        local_dir=directory,
                        force_download=True,
                        endpoint=self._endpoint,
                        token=self._token,
                        library_name="peagle-sm",
                        tqdm_class=_counter(got),
                    )
                except ValueError as error:  # the library wraps the hub's error
                    raise error.__cause__ or error from None
            if not _is_whole(directory / file.name, file):
                (directory / file.name).unlink()
                raise ServiceFault(
                    f"{file.name} of {snapshot.repository} has another checksum than the hub lists; it was "
                    "deleted",
                    next_step="Run the command again; if it fails again, a proxy may change the files.",
                )

    @contextmanager
    def _stream(self, snapshot: Snapshot, name: str, span: str | None) -> Iterator[Any]:
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        url = self._library.hf_hub_url(
            snapshot.repository, name, revision=snapshot.commit, endpoint=self._endpoint
        )
        headers: dict[str, str] = build_hf_headers(token=self._token, library_name="peagle-sm")
        headers["Accept-Encoding"] = "identity"
        if span:
            headers["Range"] = span
        with (
            hub_errors(snapshot.repository, snapshot.commit),
            # a redirect to another host (for large files) does not send the token
            get_session().stream("GET", url, headers=headers, follow_redirects=True, timeout=60) as response,
        ):
            if response.status_code >= 400:
                response.read()
            hf_raise_for_status(response)
            yield response


def _file(sibling: Any) -> HubFile:
    large = sibling.lfs
    return HubFile(
        sibling.rfilename, int(sibling.size or 0), large.sha256 if large else None, sibling.blob_id
    )


def _is_whole(path: Path, file: HubFile) -> bool:
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    # Git's blob id is the sha1 of header and content; the blob of a large file is only a pointer.
    digest = (
        hashlib.sha256() if file.sha256 else hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    )
    with path.open("rb") as content:
        while piece := content.read(CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest() == (file.sha256 or file.blob_id)


def _counter(got: Callable[[int], None]) -> Any:
    """Return a progress bar for the library that shows nothing and passes its counts to ``got``."""
    from huggingface_hub.utils import tqdm

    class Counter(tqdm):  # type: ignore[misc]  # untyped
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__(disable=True)

        def update(self, n: float | None = 1) -> None:
            got(int(n or 0))

    return Counter


def _check_space(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise SpecError(
            f"{directory}: the download needs {needed / 1e9:.1f} GB; found {free / 1e9:.1f} GB free",
            next_step="Free some space, or set XDG_CACHE_HOME to a larger disk.",
        )


TIMEOUT_S = 60


def fetch(file: Vocabulary, directory: Path, got: Callable[[int], None] = lambda _: None) -> None:
    """Download a public file into ``directory``, unless an earlier run did.

    Raises:
        ServiceFault: the address does not answer, or sends a wrong file.
    """
    path = directory / file.name
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256:
        got(file.size)
        return
    by_hand = f"Download {file.url} on another machine, put it at {path}, and run the command again."
    try:
        with urllib.request.urlopen(file.url, timeout=TIMEOUT_S) as response:
            content = response.read(file.size + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise ServiceFault(f"cannot download {file.url}: {error}", next_step=by_hand) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise ServiceFault(
            f"{file.url}: wrong content: found sha256 {digest}, expected {file.sha256}", next_step=by_hand
        )
    directory.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    part.replace(path)
    got(file.size)
