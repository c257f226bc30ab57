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

import enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tandem.wire.request_code import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.remoting.dispatcher import Handler
    from node.security.access import Access

F = TypeVar("F", bound="Callable[..., object]")


class Kind(enum.Enum):
    """What a name is the name of. Source: RocketMQ 5.3.3, ResourceType."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"


class Right(enum.Enum):
    """What a user of a cluster may be allowed to do. Source: RocketMQ 5.3.3, Action of its ACL."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


IN_BODY: Final = ""
"""Where a name is that no field of the header has."""


class Touch(NamedTuple):
    """One thing that a request is about.

    Attributes:
        kind: What it is.
        field: The field of the header with its name; `IN_BODY`; of a cluster, nothing.
        rights: One of them is enough.
    """

    kind: Kind
    field: str
    rights: tuple[Right, ...]


def of_topic(field: str, *rights: Right) -> Touch:
    """A request that is about the topic which this field names."""
    return Touch(Kind.TOPIC, field, rights)


def of_group(field: str, *rights: Right) -> Touch:
    """A request that is about the consumer group which this field names."""
    return Touch(Kind.GROUP, field, rights)


def of_cluster(*rights: Right) -> Touch:
    """A request that is about no topic and no group alone."""
    return Touch(Kind.CLUSTER, IN_BODY, rights)


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
    fields: tuple[str, ...] = getattr(header, "__struct_fields__", ())
    for touch in touches:
        if touch.field and touch.field not in fields:
            raise ValueError(f"{code.name}: its header has no field {touch.field!r}: {fields}")

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
