"""What the console answers instead of what was asked for, and why it does not start."""

from http import HTTPStatus
from typing import Any, Final

OK: Final = HTTPStatus.OK


class ConsoleError(Exception):
    """The console cannot be started as it was asked to; the text says what to do."""


class APIError(Exception):
    """An answer that is an error: see docs/console-api.md.

    Attributes:
        status: Of HTTP.
        code: For programs; it does not change.
        message: What happened, in words.
        remedy: What to do.
        details: More for programs.
    """

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        message: str,
        remedy: str,
        **details: Any,  # noqa: ANN401  JSON
    ) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message
        self.remedy = remedy
        self.details = details

    def document(self) -> dict[str, Any]:
        """Return what is sent."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "remedy": self.remedy,
                "details": self.details,
            }
        }


def bad_parameter(name: str, message: str, remedy: str = "give another value") -> APIError:
    """Return the error of a parameter that is missing or cannot be used."""
    return APIError(
        HTTPStatus.BAD_REQUEST, "bad_parameter", f"{name}: {message}", remedy, parameter=name
    )


def no_session() -> APIError:
    """Return the error of whoever is not logged in, or not any more."""
    return APIError(
        HTTPStatus.UNAUTHORIZED, "no_session", "nobody is logged in", "log in and try again"
    )


def too_many(code: str, message: str, retry_after_ms: int) -> APIError:
    """Return the error of one request too many."""
    return APIError(
        HTTPStatus.TOO_MANY_REQUESTS,
        code,
        message,
        "try again later",
        retry_after_ms=retry_after_ms,
    )
