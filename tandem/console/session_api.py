"""/api/v1/session: who am I, log in, log out."""

from contextlib import suppress
from http import HTTPStatus
from typing import Any

from tandem import __version__
from tandem.client.errors import ClientError
from tandem.console.asking import Asked, Console, Reply, wall_ms
from tandem.console.errors import APIError
from tandem.console.sessions import IDLE_SECONDS, Session


def who(asked: Asked) -> Reply:
    """GET."""
    asked.query().end()
    return Reply(_state(asked.console, asked.session))


async def log_in(asked: Asked) -> Reply:
    """POST: with the keys of a user, or the token of an open cluster.

    Raises:
        APIError: they are wrong, or there were too many that are.
    """
    console, client = asked.console, asked.incoming.client
    fields = asked.fields()
    user = secret = ""
    if console.token is None:
        user, secret = fields.text("user"), fields.text("secret")
        fields.end()
        console.sessions.try_login(client)
    else:
        token = fields.text("token")
        fields.end()
        console.sessions.try_login(client)
        if not console.token.take(token):
            raise APIError(
                HTTPStatus.UNAUTHORIZED,
                "wrong_token",
                "this token was used already, or is none of this console",
                "take the address that the console has printed last",
            )
    account = await console.accounts.enter(user, secret)
    is_known = False
    try:
        is_known = console.token is not None or await account.check_keys()
    finally:
        if not is_known:
            console.accounts.leave(account)
    if not is_known:
        raise APIError(
            HTTPStatus.UNAUTHORIZED,
            "wrong_keys",
            "the nodes know no such user, or not with this secret",
            "look at both; `tandem user list` prints who there is",
        )
    console.sessions.succeeded(client)
    with suppress(ClientError):
        await account.discover()  # so that the answer names the cluster
    if asked.session is not None:
        console.sessions.close(asked.session)
    text, session = console.sessions.open(user, account)
    console.logged_in(client)
    return Reply(_state(console, session), cookies=(_cookie(console, text),))


def log_out(asked: Asked) -> Reply:
    """DELETE."""
    asked.query().end()
    if asked.session is not None:
        asked.console.sessions.close(asked.session)
    cookie = f"{_cookie(asked.console, '')}; Max-Age=0"
    return Reply(_state(asked.console, None), cookies=(cookie,))


def _state(console: Console, session: Session[Any] | None) -> dict[str, Any]:
    around = console.around
    is_in = session is not None
    return {
        "logged_in": is_in,
        "login": "keys" if console.token is None else "token",
        "user": session.user if session is not None else "",
        "cluster": around.cluster if is_in else "",
        "version": __version__ if is_in else "",
        "idle_seconds": int(IDLE_SECONDS),
        "now_ms": wall_ms(),
        "has_file": around.target.spec is not None,
    }


def _cookie(console: Console, text: str) -> str:
    secure = "; Secure" if console.is_secure else ""
    return f"{console.cookie}={text}; Path=/; HttpOnly; SameSite=Strict{secure}"
