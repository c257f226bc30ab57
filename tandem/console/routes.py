"""Which function answers which path, and what an error on the way becomes."""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from inspect import isawaitable
from typing import Any, Final

import trio

from tandem.client.errors import ClientError
from tandem.console import (
    cluster_api,
    drill_api,
    group_api,
    letter_api,
    message_api,
    session_api,
    setting_api,
    topic_api,
)
from tandem.console.asking import Asked, Reply
from tandem.console.cluster_errors import api_error, timeout
from tandem.console.errors import APIError, bad_parameter, no_session
from tandem.console.incoming import no_route, wrong_method
from tandem.wire.errors import ArgumentError, WireError

_log = logging.getLogger(__name__)

ANSWER_SECONDS_MAX: Final = 60.0

API: Final = ("api", "v1")
EVENTS: Final = (*API, "events")
SESSION: Final = (*API, "session")
NAME: Final = "NAME"
"""In a path: any one part that is not empty."""

Handler = Callable[..., Any | Awaitable[Any]]

ROUTES: Final[dict[tuple[str, ...], dict[str, Handler]]] = {
    ("session",): {
        "GET": session_api.who,
        "POST": session_api.log_in,
        "DELETE": session_api.log_out,
    },
    ("cluster",): {"GET": cluster_api.cluster},
    ("topics",): {"GET": topic_api.topics},
    ("topics", NAME): {"GET": topic_api.topic},
    ("groups",): {"GET": group_api.groups},
    ("groups", NAME): {"GET": group_api.group},
    ("groups", NAME, "reset"): {"POST": group_api.reset},
    ("messages",): {"GET": message_api.messages},
    ("messages", NAME): {"GET": message_api.message},
    ("messages", NAME, "trace"): {"GET": message_api.trace},
    ("messages", NAME, "why"): {"GET": message_api.why},
    ("dead-letters",): {"GET": letter_api.letters},
    ("dead-letters", "resend"): {"POST": letter_api.resend},
    ("settings",): {"GET": setting_api.settings},
    ("drills",): {"GET": drill_api.drills},
    ("drills", NAME): {"GET": drill_api.drill},
}


async def answer(asked: Asked) -> Reply:
    """Return what is sent for a request; an error is an answer, too."""
    try:
        return await _found(asked)
    except APIError as error:
        return error_reply(error)
    except (ClientError, ArgumentError, WireError, trio.TooSlowError) as error:
        return error_reply(_error_of(error, asked))
    except Exception:  # noqa: BLE001 - one request must not end the console of all
        _log.exception("a request could not be answered: a bug")
        return error_reply(internal())


async def _found(asked: Asked) -> Reply:
    handler, names = find(asked.incoming.method, asked.incoming.parts)
    if asked.incoming.parts != SESSION and asked.session is None:
        raise no_session()
    with trio.fail_after(ANSWER_SECONDS_MAX):
        found = handler(asked, *names)
        document = await found if isawaitable(found) else found
    return document if isinstance(document, Reply) else Reply(document)


def _error_of(error: Exception, asked: Asked) -> APIError:
    if isinstance(error, ClientError):
        user = "" if asked.session is None else asked.session.user
        return api_error(error, user, changes=asked.incoming.method != "GET")
    if isinstance(error, ArgumentError):
        return bad_parameter(error.names[0] if error.names else "request", str(error))
    if isinstance(error, trio.TooSlowError):
        words = f"no answer within {ANSWER_SECONDS_MAX:.0f} s"
        return timeout(words, outcome_unknown=asked.incoming.method != "GET")
    return APIError(
        HTTPStatus.BAD_GATEWAY,
        "refused",
        f"what a node answered cannot be read: {error}",
        "look which versions the nodes have",
        response_code=-1,
    )


def find(method: str, parts: tuple[str, ...]) -> tuple[Handler, list[str]]:
    """Return who answers a path, and the names in it.

    Raises:
        APIError: nobody does, or not this method.
    """
    if parts[: len(API)] != API:
        raise no_route()
    rest = parts[len(API) :]
    for pattern, handlers in ROUTES.items():
        names = _names(pattern, rest)
        if names is None:
            continue
        if method not in handlers:
            raise wrong_method(method)
        return handlers[method], names
    raise no_route()


def error_reply(error: APIError) -> Reply:
    """Return an error as it is sent."""
    return Reply(error.document(), error.status)


def internal() -> APIError:
    """Return the error of a mistake of ours."""
    return APIError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal",
        "the console has made a mistake",
        "its standard error has the traceback: please report it",
    )


def _names(pattern: tuple[str, ...], parts: tuple[str, ...]) -> list[str] | None:
    if len(pattern) != len(parts):
        return None
    names = []
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted == NAME and part:
            names.append(part)
        elif wanted != part:
            return None
    return names
