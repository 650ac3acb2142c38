"""What the hub's library raises becomes ours, once, here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from peagle_sm.core.errors import CredentialsError, NotFound, PeagleError, ServiceFault, SpecError
from peagle_sm.core.extras import install_command

NEED_HUB = install_command("hub")
NO_ANSWER = "NoAnswer"
_TOKEN = "Ask for access on its page on the hub, then `hf auth login`, or set HF_TOKEN."
_OFFLINE = (
    "Check the network, a proxy (HTTPS_PROXY) and HF_ENDPOINT; or fetch the files where there is one, and "
    "give "
    "their folder instead."
)


@contextmanager
def hub_errors(repository: str, revision: str) -> Iterator[None]:
    """Map what `huggingface_hub` raises inside the block.

    Raises:
        NotFound: no such repository, revision or file.
        CredentialsError: a gated model, or a token that is not accepted.
        SpecError: no name of a repository.
        ServiceFault: the hub fails (its status as code), or cannot be reached (code ``NoAnswer``).
    """
    from huggingface_hub import errors as known

    try:
        yield
    except known.GatedRepoError as error:
        raise CredentialsError(
            f"{repository} is gated: its terms are to be accepted first", next_step=_TOKEN
        ) from error
    except known.RevisionNotFoundError as error:
        raise NotFound(
            f"{repository} has no revision {revision!r}",
            next_step="Look at its commits on the hub, and give one.",
        ) from error
    except known.RepositoryNotFoundError as error:
        raise NotFound(
            f"the hub has no model {repository}, or none that your token may see",
            next_step="Correct the name; for a private model `hf auth login`, or set HF_TOKEN.",
        ) from error
    except known.EntryNotFoundError as error:
        raise NotFound(
            f"{repository} at {revision} lacks a file: {error}", next_step="Fetch it anew."
        ) from error
    except known.HFValidationError as error:
        raise SpecError(
            f"{repository!r} is no name of a model on the hub", next_step="Write OWNER/NAME."
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
    # the library's HTTP client has changed its name before (requests, httpx, httpx2): go by its base class
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
