"""What `tandem testing serve` reads and writes: lines of JSON. No I/O.

    in   {"kill_master": {}, "id": 7}
    out  {"ready": {"name_servers": "127.4.17.201:10911;...", ...}}            first, and once
         {"id": 7, "done": "kill_master", "result": {"node": "broker-a-2"}}
         {"id": 7, "error": {"code": "unknown_node", "text": "..."}}

A line has one order and, if the caller likes, an `id` of its own, which the answer has, too. There
is one answer for each line, in their order. `schema` describes all of it.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec

from tandem.cluster.node_lifecycle import NodeStatus
from tandem.testing.faults import Direction
from tandem.wire.untrusted import UnreadableError, json_decoder

PROTOCOL: Final = 1
"""Orders, arguments and fields of answers may come without another one; none goes."""

LINE_BYTES_MAX: Final = 65_536

SECONDS_MAX: Final = 600

Name = Annotated[str, msgspec.Meta(max_length=255)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=SECONDS_MAX)]
Queues = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Id = Int64 | Annotated[str, msgspec.Meta(max_length=255)]


class Code(enum.StrEnum):
    """Why an order was not carried out."""

    NOT_JSON = "not_json"
    """The line is no JSON object."""
    TOO_LONG = "too_long"
    """The line is longer than 65,536 bytes."""
    WRONG_ID = "wrong_id"
    """An id is a whole number or a text."""
    NO_ORDER = "no_order"
    """The line names none."""
    SEVERAL_ORDERS = "several_orders"
    """The line names more than one."""
    UNKNOWN_ORDER = "unknown_order"
    WRONG_ARGUMENTS = "wrong_arguments"
    UNKNOWN_NODE = "unknown_node"
    UNKNOWN_FAULT = "unknown_fault"
    """No fault has this number."""
    NOT_POSSIBLE = "not_possible"
    """The cluster was started without what this needs; the text says how to start it."""
    REFUSED = "refused"
    """A node is in another state, or a broker said no."""
    NO_ANSWER = "no_answer"
    """No node answers what was asked for the order."""
    TIMEOUT = "timeout"
    """What was waited for did not come."""
    GONE = "gone"
    """The cluster's supervisor, or its network, has ended."""
    SYSTEM = "system"
    """The system refused."""
    WRONG_SETTINGS = "wrong_settings"
    """In the first line: the settings are none of a cluster file."""
    NOT_STARTED = "not_started"
    """In the first line: the cluster could not be started for another reason."""


class LineError(Exception):
    """A line that is no order of ours.

    Attributes:
        code: What is wrong with it.
        id: What the answer is to have; UNSET if the line has none.
    """

    def __init__(
        self,
        code: Code,
        text: str,
        id: "Id | msgspec.UnsetType" = msgspec.UNSET,  # noqa: A002
    ) -> None:
        super().__init__(code, text, id)
        self.code = code
        self.text = text
        self.id = id

    def __str__(self) -> str:
        return self.text


# --- arguments ---------------------------------------------------------------------------------


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of an order."""


class NoArguments(Arguments, frozen=True):
    """An order that needs none."""


class OfNode(Arguments, frozen=True):
    """An order to one node."""

    node: Name


class OfTopic(Arguments, frozen=True):
    """A topic to make. Without a name it gets one that no other has."""

    name: Name = ""
    queues: Queues = 4


class OfWait(Arguments, frozen=True):
    """How long to wait."""

    seconds_max: Seconds = 30


class OfMasterWait(Arguments, frozen=True):
    """How long to wait, and for whom not."""

    other_than: Name = ""
    seconds_max: Seconds = 30


class OfPartition(Arguments, frozen=True):
    """Nodes that are cut off from all others; `direction` as they see it."""

    nodes: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=16)]
    direction: Direction = "both"


class OfLink(Arguments, frozen=True):
    """A link of two nodes, or of a node and the "coordinator"; `direction` as `node` sees it."""

    node: Name
    other: Name
    direction: Direction = "both"


class OfSlowLink(Arguments, frozen=True):
    """A link, and what it is slow in: 0 for none."""

    node: Name
    other: Name
    delay_ms: Annotated[float, msgspec.Meta(ge=0, le=600_000)] = 0
    bytes_per_second: Annotated[float, msgspec.Meta(ge=0)] = 0
    direction: Direction = "both"


class OfFault(Arguments, frozen=True):
    """A fault that is to end."""

    fault: Int64


# --- results -----------------------------------------------------------------------------------


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Of an order."""


class NoResult(Result, frozen=True):
    """There is nothing to say but that it is done."""


class NodeResult(Result, frozen=True):
    """A node; an empty name if there is none."""

    node: str


class TopicResult(Result, frozen=True):
    """A topic that is there, and known to every name server that answers."""

    topic: str


class FaultResult(Result, frozen=True):
    """The number of a fault, for `undo`."""

    fault: int


class StatusResult(Result, frozen=True):
    """All nodes."""

    nodes: list[NodeStatus]


# --- orders ------------------------------------------------------------------------------------


class OrderKind(msgspec.Struct, frozen=True):
    """What an order takes, what it gives, and what it does."""

    arguments: type[Arguments]
    result: type[Result]
    text: str


ORDERS: Final[Mapping[str, OrderKind]] = {
    "status": OrderKind(NoArguments, StatusResult, "Say the state of every node."),
    "master": OrderKind(NoArguments, NodeResult, "Say who is master and takes messages."),
    "wait_for_master": OrderKind(OfMasterWait, NodeResult, "Wait for a master; say its name."),
    "wait_in_sync": OrderKind(OfWait, NoResult, "Wait until every live node is in sync."),
    "topic": OrderKind(OfTopic, TopicResult, "Make a topic."),
    "kill": OrderKind(OfNode, NoResult, "End a node with SIGKILL."),
    "kill_master": OrderKind(NoArguments, NodeResult, "The same to the master; say its name."),
    "stop": OrderKind(OfNode, NoResult, "Stop a node in an orderly way."),
    "start": OrderKind(OfNode, NoResult, "Start a node; done when it serves."),
    "restart": OrderKind(OfNode, NoResult, "Stop a node and start it; done when it serves."),
    "freeze": OrderKind(OfNode, FaultResult, "SIGSTOP: connections stay open and silent."),
    "thaw": OrderKind(OfNode, NoResult, "Let a frozen node go on."),
    "partition": OrderKind(OfPartition, FaultResult, "Cut nodes off from all others."),
    "cut": OrderKind(OfLink, FaultResult, "Cut one link."),
    "slow_link": OrderKind(OfSlowLink, FaultResult, "Let bytes of one link arrive late."),
    "fill_disk": OrderKind(OfNode, FaultResult, "Leave no room on the disk of a node."),
    "undo": OrderKind(OfFault, NoResult, "End one fault; one that has ended may end again."),
    "heal": OrderKind(NoArguments, NoResult, "End every fault. Dead nodes stay dead."),
    "recover": OrderKind(NoArguments, NoResult, "Heal, start what is down, wait for all."),
}
"""All that there are, by name."""


class Order(msgspec.Struct, frozen=True):
    """A line that was understood."""

    name: str
    arguments: Arguments
    id: Id | msgspec.UnsetType


_read_object: Final[Callable[[bytes], dict[str, msgspec.Raw]]] = json_decoder(
    dict[str, msgspec.Raw]
)
_read_id: Final = json_decoder(Id)
_readers: Final = {name: json_decoder(kind.arguments) for name, kind in ORDERS.items()}


def read_order(line: bytes | None) -> Order:
    """Read one line, as a `LineCutter` has cut it.

    Raises:
        LineError: It is no order.
    """
    if line is None:
        raise LineError(Code.TOO_LONG, f"a line has at most {LINE_BYTES_MAX:,} bytes")
    try:
        found = _read_object(line)
    except UnreadableError as error:
        text = f'{error}; an order is a line such as {{"kill_master": {{}}}}'
        raise LineError(Code.NOT_JSON, text) from error
    line_id = _id_of(found)
    names = [name for name in found if name != "id"]
    if not names:
        raise LineError(Code.NO_ORDER, f"no order; give one of {_known()}", line_id)
    name = names[0]
    if len(names) > 1:
        text = f"{len(names)} orders in one line; give each a line of its own"
        raise LineError(Code.SEVERAL_ORDERS, text, line_id)
    if name not in ORDERS:
        text = f"there is no order {_short(name)}; give one of {_known()}"
        raise LineError(Code.UNKNOWN_ORDER, text, line_id)
    try:
        return Order(name, _readers[name](found[name]), line_id)
    except UnreadableError as error:
        text = f"{name}: {error}; it takes {_shape(ORDERS[name].arguments)}"
        raise LineError(Code.WRONG_ARGUMENTS, text, line_id) from error


def _id_of(found: Mapping[str, msgspec.Raw]) -> Id | msgspec.UnsetType:
    if "id" not in found:
        return msgspec.UNSET
    try:
        line_id: Id = _read_id(found["id"])
    except UnreadableError as error:
        text = "an id is a whole number of 64 bits, or a text of at most 255 characters"
        raise LineError(Code.WRONG_ID, text) from error
    return line_id


def _known() -> str:
    return ", ".join(ORDERS)


def _short(name: str) -> str:
    return repr(name if len(name) <= 40 else f"{name[:40]}...")


def _shape(arguments: type[Arguments]) -> str:
    fields = msgspec.structs.fields(arguments)
    return "{" + ", ".join(f'"{field.name}": ...' for field in fields) + "}"


# --- what is written ---------------------------------------------------------------------------


class ServedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster that is ready."""

    name: str
    address: str
    """`host:port` for clients, of RocketMQ's protocol and of gRPC; also a name server."""
    log_file: str


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster whose nodes all serve and are in sync."""

    name_servers: str
    """Every node's `host:port` with ";" between, as RocketMQ's clients take them."""
    group: str
    kind: str
    """"fenced" or "classic"."""
    master: str
    nodes: list[ServedNode]
    topics: list[str]
    cluster_file: str
    """What `--config` of the command line takes."""
    ca_file: str
    """Whom clients have to believe, if the settings ask for TLS; else empty."""
    pid: int
    protocol: int = PROTOCOL
    version: str


class ReadyLine(msgspec.Struct, frozen=True):
    """The first line."""

    ready: Ready


class DoneLine(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an order that was carried out."""

    id: Id | msgspec.UnsetType = msgspec.UNSET
    done: str
    """The name of the order."""
    result: Result


class Trouble(msgspec.Struct, frozen=True):
    """What went wrong. Programs look at the code; the text is for people."""

    code: Code
    text: str


class ErrorLine(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a line that was not carried out; as first and only line: no cluster."""

    id: Id | msgspec.UnsetType = msgspec.UNSET
    error: Trouble


def encoded(line: ReadyLine | DoneLine | ErrorLine) -> bytes:
    """Return it as a line, with its end."""
    return msgspec.json.encode(line) + b"\n"


class LineCutter:
    """Cuts what comes into lines. Of a line that is too long it keeps nothing: it is None."""

    def __init__(self) -> None:
        self._begun = b""
        self._is_too_long = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Take more bytes; return the lines that are whole now."""
        *parts, rest = data.split(b"\n")
        lines = []
        for part in parts:
            self._take(part)
            lines += self._ended()
        self._take(rest)
        return lines

    def end(self) -> list[bytes | None]:
        """Return the line that has no end, if there is one."""
        return self._ended() if self._begun or self._is_too_long else []

    def _take(self, part: bytes) -> None:
        if len(self._begun) + len(part) > LINE_BYTES_MAX:
            self._begun, self._is_too_long = b"", True
        elif not self._is_too_long:
            self._begun += part

    def _ended(self) -> list[bytes | None]:
        line = None if self._is_too_long else self._begun
        self._begun, self._is_too_long = b"", False
        return [line]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a line in and of a line out, as `$defs` `Order` and `Answer`."""
    place = "#/$defs/{name}"
    results = {kind.result for kind in ORDERS.values()}
    kinds = [kind.arguments for kind in ORDERS.values()]
    _, definitions = msgspec.json.schema_components(
        [*kinds, *results, ReadyLine, ErrorLine], ref_template=place
    )
    id_schema = msgspec.json.schema(Id)
    orders = [
        _line({name: {"$ref": place.format(name=kind.arguments.__name__)}}, id_schema, kind.text)
        for name, kind in ORDERS.items()
    ]
    answers = [
        _line(
            {"done": {"const": name}, "result": {"$ref": place.format(name=kind.result.__name__)}},
            id_schema,
        )
        for name, kind in ORDERS.items()
    ]
    others = [{"$ref": place.format(name=each)} for each in ("ReadyLine", "ErrorLine")]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tandem testing serve",
        "anyOf": [{"$ref": "#/$defs/Order"}, {"$ref": "#/$defs/Answer"}],
        "$defs": {"Order": {"oneOf": orders}, "Answer": {"oneOf": answers + others}, **definitions},
    }


def _line(fields: dict[str, Any], id_schema: dict[str, Any], text: str = "") -> dict[str, Any]:
    description = {"description": text} if text else {}
    return {
        **description,
        "type": "object",
        "properties": {"id": id_schema, **fields},
        "required": list(fields),
        "additionalProperties": False,
    }
