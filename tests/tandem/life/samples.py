"""Evidence in a few words: records of one message, logs of nodes, groups."""

from typing import Any, Final

import msgspec

from tandem.life.evidence import Copy, Evidence, GroupAt, Held, NodeLog, QueueAt
from tandem.life.lives import why_of
from tandem.life.result import Finding, Kind, Life, Why
from tandem.wire.message import Host, MessageExt
from tests.tandem.client.fake_broker import message_ext

KEY: Final = "7F0000014E5091C3F1A28BC181E80000"
"""By process 20048 at 127.0.0.1."""
NOW_MS: Final = 1_795_836_000_000
"""2026-11-28 in the morning."""
STORED_MS: Final = NOW_MS - 60_000
MASTER: Final = Host("10.0.0.1", 10_911)


def stored(
    topic: str = "T",
    offset: int = 0,
    *,
    queue_id: int = 0,
    at_ms: int = 0,
    place: int | None = None,
    properties: dict[str, str] | None = None,
    **fields: Any,  # noqa: ANN401
) -> MessageExt:
    """Return a record. `at_ms` counts from when the message was stored first."""
    named = {"UNIQ_KEY": KEY, "KEYS": "k1 k2", "TAGS": "paid"}
    message = message_ext(
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        properties=named | (properties or {}),
        sys_flag=fields.pop("sys_flag", 0),
    )
    return msgspec.structs.replace(
        message,
        store_size=100,
        physical_offset=1_000 + at_ms if place is None else place,
        born_timestamp_ms=STORED_MS - 2,
        store_timestamp_ms=STORED_MS + at_ms,
        store_host=MASTER,
        **fields,
    )


def copy(message: MessageExt, node: str = "n1", **facts: Any) -> Copy:  # noqa: ANN401
    return Copy(
        **{"node": node, "broker": "b", "source": f"{node} says", "message": message, **facts}
    )


def cut(message: MessageExt, node: str = "n1", held: Held = Held.CUT) -> Copy:
    """A record that is not in the log of its node any more."""
    return copy(message, node, held=held, why_held="n2 became master of epoch 2")


def log(node: str = "n1", **facts: Any) -> NodeLog:  # noqa: ANN401
    known = {"broker": "b", "source": f"status of {node}", "start": 0, "end": 10_000}
    return NodeLog(node=node, **{**known, **facts})


def fenced(node: str = "n1", **facts: Any) -> NodeLog:  # noqa: ANN401
    known = {"is_fenced": True, "confirm": 10_000, "flushed": 10_000, "min_isr": 2}
    return log(node, **{**known, "ack_level": "written", "role": "FOLLOWER", **facts})


def group(name: str = "g", *queues: tuple[str, int, int], **facts: Any) -> GroupAt:  # noqa: ANN401
    """A group, and its offsets: (topic, queue id, committed)."""
    places = tuple(
        QueueAt(topic=topic, queue_id=queue_id, committed=committed, broker="b")
        for topic, queue_id, committed in queues
    )
    return GroupAt(**{"group": name, "source": "offsets", "queues": places, **facts})


def evidence(*copies: Copy | MessageExt, **facts: Any) -> Evidence:  # noqa: ANN401
    found = [each if isinstance(each, Copy) else copy(each) for each in copies]
    known = {"message": KEY, "now_ms": NOW_MS, "is_cluster": True, "readers_known": {"T"}}
    return Evidence(copies=found, **{**known, **facts})


def why(*copies: Copy | MessageExt, **facts: Any) -> Why:  # noqa: ANN401
    return why_of(evidence(*copies, **facts))


def life(*copies: Copy | MessageExt, **facts: Any) -> Life:  # noqa: ANN401
    (found,) = why(*copies, **facts).lives
    return found


def kinds(found: Life) -> set[Kind]:
    return {each.kind for each in found.findings}


def the(found: Life | list[Finding], kind: Kind) -> Finding:
    """Return the one finding of a kind."""
    findings = found.findings if isinstance(found, Life) else found
    (one,) = [each for each in findings if each.kind is kind]
    return one
