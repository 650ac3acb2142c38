"""What the control plane answers when it refuses: AWS's codes and AWS's wording."""


class ApiError(Exception):
    """An error answer of the API.

    Attributes:
        code: AWS's error code, for example `ValidationException`.
        message: the text that a client shows.
        status: HTTP status of the answer.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def invalid(message: str) -> ApiError:
    """A request that AWS refuses for its content."""
    return ApiError("ValidationException", message)


def not_found(kind: str, arn: str) -> ApiError:
    """`kind` is "model", "endpoint configuration" or "endpoint"."""
    return invalid(f'Could not find {kind} "{arn}".')


def already_exists(kind: str, arn: str) -> ApiError:
    """A name that is taken. `kind` as in `not_found`."""
    return invalid(f'Cannot create already existing {kind} "{arn}".')


def in_progress(arn: str) -> ApiError:
    """The endpoint is being created, updated, rolled back or deleted."""
    return invalid(f'Cannot update in-progress endpoint "{arn}".')


def not_local(what: str, instead: str) -> ApiError:
    """Something that AWS has and the local SageMaker does not."""
    return invalid(f"{what} is not implemented by the local SageMaker; {instead}")
