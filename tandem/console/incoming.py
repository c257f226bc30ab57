"""A request as it came, read and looked at: path, parameters, body, and whether it may be served.

A page of another origin, or one whose name was made to mean our address (DNS rebinding), is known
by `Host`, `Origin` and `Sec-Fetch-Site`. What changes something needs a header besides that a form
cannot send. All of that is asked before anybody looks at the session.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, Self
from urllib.parse import unquote_to_bytes

import msgspec

from tandem.console.errors import APIError, bad_parameter
from tandem.wire.untrusted import UnreadableError, decode_json

BODY_BYTES_MAX: Final = 64 * 1024
NAME_CHARACTERS_MAX: Final = 33_000
"""No longer text can be a key of a message."""

OWN_HEADER: Final = b"x-tandem"
SAFE: Final = frozenset({"GET", "HEAD"})
METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE"})

_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_OWN_SITES: Final = (b"", b"same-origin", b"none")


class Places(msgspec.Struct, frozen=True):
    """Where the console is reached: what may be in `Host`, and what it calls its own origins."""

    hosts: frozenset[str]
    origins: frozenset[str]

    @classmethod
    def of(cls, names: list[str], port: int, *, is_secure: bool) -> Self:
        """Return the places of a console by the names of its host; IPv6 is in brackets."""
        scheme, usual = ("https", 443) if is_secure else ("http", 80)
        hosts = {f"{name.lower()}:{port}" for name in names}
        if port == usual:
            hosts |= {name.lower() for name in names}
        return cls(frozenset(hosts), frozenset(f"{scheme}://{host}" for host in hosts))


class Incoming(msgspec.Struct, frozen=True):
    """One request that may be served.

    Attributes:
        method: GET, POST or DELETE; HEAD is GET.
        parts: The path, decoded, between its slashes.
        query: Its parameters, each once.
        cookies: By name.
        last_event_id: What an event stream had last.
        client: The address that it comes from.
    """

    method: str
    parts: tuple[str, ...]
    query: Mapping[str, str]
    cookies: Mapping[str, str]
    body: bytes
    last_event_id: str = ""
    client: str = ""

    def json(self) -> dict[str, Any]:
        """Return the object in the body.

        Raises:
            APIError: there is none.
        """
        try:
            return decode_json(self.body, dict[str, Any])
        except UnreadableError as error:
            raise APIError(
                HTTPStatus.BAD_REQUEST,
                "bad_json",
                f"the body is no JSON object: {error}",
                "send one, as docs/console-api.md has it",
            ) from error


def incoming(
    method: bytes,
    target: bytes,
    headers: Mapping[bytes, bytes],
    body: bytes,
    places: Places,
    client: str = "",
) -> Incoming:
    """Return a request that may be served. Names of `headers` are lower case.

    Raises:
        APIError: it may not, or cannot be read.
    """
    _check_place(headers, places)
    verb = method.decode("ascii", "replace")
    if verb not in METHODS:
        raise wrong_method(verb)
    if verb not in SAFE:
        _check_change(verb, headers)
    path, _, query = target.partition(b"?")
    return Incoming(
        "GET" if verb == "HEAD" else verb,
        _parts(path),
        _query(query),
        _cookies(headers.get(b"cookie", b"")),
        body,
        headers.get(b"last-event-id", b"").decode("latin-1"),
        client,
    )


def wrong_method(method: str) -> APIError:
    """Return the error of a method that the route does not have."""
    return APIError(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "wrong_method",
        f"{method[:20]!r} is not served here",
        "see docs/console-api.md for the methods of each route",
    )


def no_route() -> APIError:
    """Return the error of a path that nothing is at."""
    return APIError(
        HTTPStatus.NOT_FOUND, "no_route", "nothing is at this path", "see docs/console-api.md"
    )


def _check_place(headers: Mapping[bytes, bytes], places: Places) -> None:
    host = headers.get(b"host", b"").decode("latin-1").lower()
    if host not in places.hosts:
        raise APIError(
            HTTPStatus.MISDIRECTED_REQUEST,
            "wrong_host",
            f"this console is not at {host[:100]!r}",
            "call it by the address it has printed, or start it with --host-name NAME",
        )
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site", b"").lower()
    if (origin is not None and not _is_own(origin, places)) or site not in _OWN_SITES:
        raise _wrong_origin()


def _check_change(verb: str, headers: Mapping[bytes, bytes]) -> None:
    if b"origin" not in headers:
        raise _wrong_origin()
    if headers.get(OWN_HEADER) != b"1":
        raise APIError(
            HTTPStatus.FORBIDDEN,
            "no_x_tandem",
            f"a {verb} without the header X-Tandem: 1",
            "add the header, which no form of another page can send",
        )
    content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if verb == "POST" and content_type != b"application/json":
        raise APIError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "wrong_type",
            "the body is not application/json",
            "send JSON, and say so in Content-Type",
        )


def _is_own(origin: bytes, places: Places) -> bool:
    return origin.decode("latin-1").lower() in places.origins


def _wrong_origin() -> APIError:
    return APIError(
        HTTPStatus.FORBIDDEN,
        "wrong_origin",
        "the request does not come from the page of this console",
        "open the console by the address it has printed",
    )


def _parts(path: bytes) -> tuple[str, ...]:
    if not path.startswith(b"/"):
        raise no_route()
    return tuple(_decoded(part, "path") for part in path[1:].split(b"/"))


def _query(query: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in query.split(b"&") if query else ():
        raw_name, _, raw_value = pair.partition(b"=")
        name = _decoded(raw_name.replace(b"+", b" "), "query")
        if name in found:
            raise bad_parameter(name[:100], "it is given twice", "give it once")
        found[name] = _decoded(raw_value.replace(b"+", b" "), name[:100])
    return found


def _decoded(raw: bytes, what: str) -> str:
    if _BAD_ESCAPE.search(raw):
        raise bad_parameter(what, "% without two hexadecimal digits", "write %25 for %")
    try:
        text = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise bad_parameter(what, "it is not UTF-8") from error
    if len(text) > NAME_CHARACTERS_MAX:
        raise bad_parameter(what, f"it is longer than {NAME_CHARACTERS_MAX:,} characters")
    return text


def _cookies(header: bytes) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in header.decode("latin-1").split(";"))
    # The first one wins: browsers send the one of the longest path first.
    found: dict[str, str] = {}
    for name, _, value in pairs:
        found.setdefault(name, value)
    return found
