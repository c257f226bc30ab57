"""A request is declared once: above the function that handles it, all that is to be known of it.

    @serves(RequestCode.GET_MAX_OFFSET, (Resource.MESSAGES, Action.READ),
            of_topic("topic", Right.GET), header=QueueRequestHeader)
    def max_offset(self, connection, command): ...

    declarations --+--> `handler_table`: what a dispatcher serves
     (REQUESTS)    +--> `Guard`: who has to be trusted for it
                   +--> `VipChannel`: what the second port leaves out
                   +--> the list of requests in docs/compatibility.md

A code that is declared twice, or touches a name that its header does not have, ends the import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from node.remoting.dispatcher import Handler
from node.security.access import Access
from tandem.wire.access_control import Kind, Right
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode

F = TypeVar("F", bound="Callable[..., object]")


NamesOf: TypeAlias = "Callable[[RemotingCommand], Iterable[str]]"
"""Reads the names that are in the body of a request.

Raises:
    WireError: it cannot be read, so its handler does not read it either.
"""


class Touch(NamedTuple):
    """One thing that a request is about.

    Attributes:
        kind: What it is.
        field: The field of the header with its name; "" if no field has it.
        rights: One of them is enough.
        in_body: Reads the names where no field has them, or the field is not the whole of it; None:
            the handler asks itself, of what it has found, or it is the cluster.
        wire_field: The field as it is called in ext fields.
        is_optional: Whether an empty field is as good as none.
    """

    kind: Kind
    field: str
    rights: tuple[Right, ...]
    in_body: NamesOf | None = None
    wire_field: str = ""
    is_optional: bool = False

    def names(self, command: RemotingCommand, fields: Mapping[str, str]) -> Iterable[str]:
        """Return the names in a request. Raises what `in_body` does."""
        if self.in_body is not None:
            return self.in_body(command)
        name = fields.get(self.wire_field)
        if name is None or (self.is_optional and not name):
            return ()
        return (name,)


def of_topic(where: str | NamesOf, *rights: Right) -> Touch:
    """A request that is about the topics which a field names, or which are found in the body."""
    return _touch(Kind.TOPIC, where, rights)


def of_group(where: str | NamesOf, *rights: Right) -> Touch:
    """A request that is about the consumer groups which are named there."""
    return _touch(Kind.GROUP, where, rights)


def of_popped_topic(field: str, names: NamesOf, *rights: Right) -> Touch:
    """A request about a message that was popped: if it has come again, `field` has its retry topic.

    `names` reads of which topic that is. Who may read the topic may acknowledge what comes again.
    """
    return Touch(Kind.TOPIC, field, rights, names)


def of_found_topic(*rights: Right) -> Touch:
    """A request about a record that names no topic: its handler asks when it has found it."""
    return Touch(Kind.TOPIC, "", rights)


def of_cluster(*rights: Right) -> Touch:
    """A request that is about no topic and no group alone."""
    return Touch(Kind.CLUSTER, "", rights)


ANY_USER: Final = Touch(Kind.CLUSTER, "", ())
"""In place of what a request is about, where every user needs it, and it says little."""


def _touch(kind: Kind, where: str | NamesOf, rights: tuple[Right, ...]) -> Touch:
    if isinstance(where, str):
        return Touch(kind, where, rights)
    return Touch(kind, "", rights, where)


class Request(NamedTuple):
    """What is known of one request code.

    Attributes:
        code: Its number.
        access: What it does to what, which says who has to be trusted; see `node.security.access`.
        touches: Whose names are in it.
        header: What its fields are; None: it has none, or they are not read.
        at_vip_channel: Whether the second port serves it, too.
        handled_by: Module, class and function.
    """

    code: RequestCode
    access: Access
    touches: tuple[Touch, ...]
    header: type | None
    at_vip_channel: bool
    handled_by: tuple[str, str]


REQUESTS: Final[dict[int, Request]] = {}
"""All that are served by any part of a node whose modules are imported."""

_DECLARED: Final = "declared_requests"


def serves(
    code: RequestCode,
    access: Access,
    *touches: Touch,
    header: type | None = None,
    at_vip_channel: bool = True,
) -> Callable[[F], F]:
    """Declare that the function below handles this request. See `Request`.

    Raises:
        ValueError: another function handles it, or the header has no such field.
    """
    fields = {} if header is None else {each.name: each for each in msgspec.structs.fields(header)}
    for touch in touches:
        if touch.field and touch.field not in fields:
            known = tuple(fields)
            raise ValueError(f"{code.name}: its header has no field {touch.field!r}: {known}")
    touches = tuple(
        touch._replace(
            wire_field=fields[touch.field].encode_name, is_optional=not fields[touch.field].required
        )
        if touch.field
        else touch
        for touch in touches
    )

    def declare(function: F) -> F:
        place = (function.__module__, function.__qualname__)
        request = Request(code, access, touches, header, at_vip_channel, place)
        if (other := REQUESTS.setdefault(code, request)).handled_by != place:
            raise ValueError(f"{code.name} is handled by {place} and by {other.handled_by}")
        function.__dict__.setdefault(_DECLARED, []).append(code)
        return function

    return declare


def handler_table(*families: object) -> dict[int, Handler]:
    """Return the handlers of these objects, by request code.

    Raises:
        ValueError: two of them handle the same.
    """
    handlers: dict[int, Handler] = {}
    for family in families:
        for each in type(family).__mro__:
            for name, function in vars(each).items():
                for code in getattr(function, _DECLARED, ()):
                    if code in handlers:
                        raise ValueError(f"{RequestCode(code).name} is handled twice")
                    handlers[code] = getattr(family, name)
    return handlers
