"""What went wrong between console and nodes, as an answer for the page."""

from http import HTTPStatus

from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    GroupNotFoundError,
    MessageNotFoundError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
    SendInDoubtError,
)
from tandem.console.errors import APIError
from tandem.plain_text import one_line
from tandem.wire.response_code import ResponseCode

WORDS_MAX = 2_000

_UNKNOWN = {
    ResponseCode.TOPIC_NOT_EXIST.value: "no_topic",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST.value: "no_group",
}
_MISSING: dict[type[ClientError], str] = {
    RouteNotFoundError: "no_topic",
    GroupNotFoundError: "no_group",
    MessageNotFoundError: "no_message",
}
_UNKNOWN_ROUTES = frozenset({RouteCause.NO_TOPIC, RouteCause.NO_QUEUE})


def api_error(error: ClientError, user: str, *, changes: bool = True) -> APIError:
    """Return the answer that an error of a client becomes, for a request of `user`.

    `changes`: whether the request may have changed something.
    """
    words = one_line(str(error), WORDS_MAX)
    if isinstance(error, BrokerError):
        return _refused(error, words, user)
    if isinstance(error, RouteNotFoundError) and error.cause not in _UNKNOWN_ROUTES:
        return no_answer(words, outcome_unknown=False)
    if isinstance(error, RequestTimeoutError | SendInDoubtError):
        return timeout(words, outcome_unknown=changes and error.outcome_unknown)
    if isinstance(error, ConnectionLostError):
        return no_answer(words, outcome_unknown=changes and error.outcome_unknown)
    if (code := _MISSING.get(type(error))) is not None:
        return _not_found(code, words)
    return APIError(
        HTTPStatus.BAD_GATEWAY, "refused", words, "see what the words say", response_code=-1
    )


def _refused(error: BrokerError, words: str, user: str) -> APIError:
    if is_refusal(error):
        return forbidden(error, user)
    if error.code in _UNKNOWN:
        return _not_found(_UNKNOWN[error.code], words)
    return APIError(
        HTTPStatus.BAD_GATEWAY,
        "refused",
        words,
        "the words are the node's; its log may say more",
        response_code=int(error.code),
    )


def is_refusal(error: ClientError) -> bool:
    """Whether a node says that this user may not."""
    return isinstance(error, BrokerError) and error.code == ResponseCode.NO_PERMISSION


def forbidden(error: BrokerError, user: str) -> APIError:
    """Return the answer where nodes say that a user may not."""
    who = f"user {user}" if user else "who is not known to them"
    return APIError(
        HTTPStatus.FORBIDDEN,
        "forbidden",
        one_line(f"the nodes refuse this to {who}: {error.remark or 'they do not say why'}"),
        "have the right granted; `tandem acl check` says what decides" if user else
        "the cluster asks for users: start the console again",
    )  # fmt: skip


def timeout(words: str, *, outcome_unknown: bool) -> APIError:
    """Return the answer where none came in time."""
    return APIError(
        HTTPStatus.GATEWAY_TIMEOUT,
        "timeout",
        words,
        _remedy(outcome_unknown=outcome_unknown),
        outcome_unknown=outcome_unknown,
    )


def no_answer(words: str, *, outcome_unknown: bool) -> APIError:
    """Return the answer where nobody answers that could."""
    return APIError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "no_answer",
        words,
        _remedy(outcome_unknown=outcome_unknown),
        outcome_unknown=outcome_unknown,
    )


def _remedy(*, outcome_unknown: bool) -> str:
    if outcome_unknown:
        return "it may have been done: look before you try again"
    return "look whether the nodes are up, and try again"


def _not_found(code: str, words: str) -> APIError:
    return APIError(HTTPStatus.NOT_FOUND, code, words, "look whether the name is right")
