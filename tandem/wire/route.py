"""Routes, as the name server sends them, and the other bodies about brokers and topics.

The JSON is written without blanks and with quoted keys: the Go client splits the addresses as text,
and all clients take quotes. A Java name server writes the integer keys of `brokerAddrs` unquoted
(`{0:"10.0.0.1:10911"}`), which no JSON reader takes: `decode_json_body` puts the quotes in.

Keys come in alphabetical order, as fastjson writes them.

Source: RocketMQ 5.3.3, TopicRouteData, QueueData, BrokerData, ClusterInfo, TopicList;
PermName for the permission bits.
"""

import re
from typing import Annotated, Final, TypeVar

import msgspec

from tandem.wire.errors import MalformedFrameError
from tandem.wire.untrusted import UnreadableError, decode_json

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1

MASTER_ID: Final = 0

# A string without an end goes to the end of the text: nothing after its first quote can fail, or
# each of its quotes would start the search anew.
_STRING_OR_BARE_KEY: Final = re.compile(rb'(?s)"[^"\\]*(?:\\.[^"\\]*)*"?|([{,]\s*)(-?\d+)(\s*:)')

_BARE_KEY: Final = re.compile(rb"[{,]\s*+-?\d++\s*+:")
"""There may be one; also where it is within a string."""

QueueCount = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
"""A client makes one record for each queue, so a number from a stranger needs a bound."""

BodyT = TypeVar("BodyT")


class BrokerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The brokers that share one name. Id 0 is the master; without it nobody takes a send."""

    broker_addrs: dict[int, str]
    """Broker id to "host:port"."""
    broker_name: str
    cluster: str = ""
    enable_acting_master: bool = False
    master_epoch: int | msgspec.UnsetType = msgspec.UNSET
    """Ours: the epoch of the master of a fenced group. Of two routes that differ, the one with the
    higher number is right; a classic group has none, and its JSON is RocketMQ's to the byte."""


class QueueData(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The queues of one topic at one broker name."""

    broker_name: str
    perm: int
    read_queue_nums: QueueCount
    topic_sys_flag: int = 0
    write_queue_nums: QueueCount


class TopicRouteData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a topic lives: body of the answer to GET_ROUTEINFO_BY_TOPIC."""

    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    queue_datas: list[QueueData] = []


class ClusterInfo(msgspec.Struct, frozen=True, rename="camel"):
    """Body of the answer to GET_BROKER_CLUSTER_INFO."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class TopicList(msgspec.Struct, frozen=True, rename="camel"):
    """Body of the answers that list topics."""

    topic_list: list[str] = []


def encode_json_body(body: msgspec.Struct) -> bytes:
    """Return a body record as JSON: compact, with quoted keys."""
    return msgspec.json.encode(body)


def decode_json_body(body: bytes, body_type: type[BodyT]) -> BodyT:
    """Return the record in a JSON body, also with the bare integer keys that Java writes.

    Raises:
        MalformedFrameError: it is not such a record.
    """
    try:
        return decode_json(body, body_type)
    except UnreadableError as error:
        # Quotes mend what is no JSON, and nothing else: not a value of the wrong kind. To look at
        # each string of a large body for a key takes long, so only where there may be one.
        is_no_json = not isinstance(error.__cause__, msgspec.ValidationError)
        if not is_no_json or _BARE_KEY.search(body) is None:
            raise MalformedFrameError(f"{body_type.__name__} body: {error}") from error
    try:
        return decode_json(_quote_integer_keys(body), body_type)
    except UnreadableError as error:
        raise MalformedFrameError(f"{body_type.__name__} body: {error}") from error


def _quote_integer_keys(body: bytes) -> bytes:
    """Put quotes around bare integer keys. Text inside strings is left alone."""
    return _STRING_OR_BARE_KEY.sub(
        lambda match: b'%b"%b"%b' % match.groups() if match.group(2) else match.group(0), body
    )
