"""What the control plane answers when it refuses: AWS's codes and AWS's wording."""

from collections.abc import Mapping


class ApiError(Exception):
    """An error answer of the API.

    Attributes:
        code: AWS's error code, for example `ValidationException`.
        message: the text that a client shows.
        status: HTTP status of the answer.
        members: what else the runtime API has in the answer's body.
    """

    def __init__(
        self, code: str, message: str, status: int = 400, *, members: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.members = dict(members or {})


class NoCapacity(ApiError):
    """An invocation of an inference component that has no copy running."""

    def __init__(self, component: str) -> None:
        # Seen in AWS's guide to scaling to zero, and word for word in its users' reports.
        super().__init__(
            "ValidationError",
            "Inference Component has no capacity to process this request. ApplicationAutoScaling may be "
            "in-progress (if configured) or try to increase the capacity by invoking "
            "UpdateInferenceComponentRuntimeConfig API.",
        )
        self.component = component


def invalid(message: str) -> ApiError:
    """A request that AWS refuses for its content."""
    return ApiError("ValidationException", message)


def not_found(kind: str, arn: str) -> ApiError:
    """`kind` is "model", "endpoint configuration", "endpoint" or "inference component"."""
    return invalid(f'Could not find {kind} "{arn}".')


def already_exists(kind: str, arn: str) -> ApiError:
    """A name that is taken. `kind` as in `not_found`."""
    return invalid(f'Cannot create already existing {kind} "{arn}".')


def in_progress(arn: str) -> ApiError:
    """The endpoint is being created, updated, rolled back or deleted."""
    return invalid(f'Cannot update in-progress endpoint "{arn}".')


def components_remain() -> ApiError:
    """The endpoint still hosts inference components."""
    return invalid(
        "Cannot delete endpoint with inference component associated. "
        "Please delete inference component and try it again."
    )


def busy_component(verb: str, arn: str, activity: str) -> ApiError:
    """The component is being created, updated or deleted."""
    return invalid(f'Cannot {verb} inference component "{arn}" while it is in state {activity}.')


def not_local(what: str, instead: str) -> ApiError:
    """Something that AWS has and the local SageMaker does not."""
    return invalid(f"{what} is not implemented by the local SageMaker; {instead}")
