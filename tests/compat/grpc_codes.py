"""Which codes are answered to requests that no client would make; see python/status_codes.py."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from tests.compat.agents import PROGRAMS, python_library, unique
from tests.compat.grpc_places import Place

SECONDS_MAX: Final = 240.0

EXPECTED: Final[Mapping[str, str]] = {
    "route without a client id": "CLIENT_ID_REQUIRED",
    "route with a blank client id": "CLIENT_ID_REQUIRED",
    "route of an unknown topic": "TOPIC_NOT_FOUND",
    "route of an illegal topic": "ILLEGAL_TOPIC",
    "route of a system topic": "ILLEGAL_TOPIC",
    "send": "OK",
    "send nothing": "MESSAGE_CORRUPTED",
    "send to two topics": "MESSAGE_CORRUPTED",
    "send to an illegal topic": "ILLEGAL_TOPIC",
    "send an empty body": "MESSAGE_BODY_EMPTY",
    "send 4 MiB and a byte": "MESSAGE_BODY_TOO_LARGE",
    "send without an id": "ILLEGAL_MESSAGE_ID",
    "send another type": "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
    "send to an unknown topic": "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
    "send a tag with a bar": "ILLEGAL_MESSAGE_TAG",
    "send a blank tag": "ILLEGAL_MESSAGE_TAG",
    "send a control character in a key": "ILLEGAL_MESSAGE_KEY",
    "send a blank message group": "ILLEGAL_MESSAGE_GROUP",
    "send a message group of 64": "ILLEGAL_MESSAGE_GROUP",
    "send a reserved property": "ILLEGAL_MESSAGE_PROPERTY_KEY",
    "send 129 properties": "MESSAGE_PROPERTIES_TOO_LARGE",
    "send 17 KB of properties": "MESSAGE_PROPERTIES_TOO_LARGE",
    "send for 25 hours later": "ILLEGAL_DELIVERY_TIME",
    "receive nothing": "MESSAGE_NOT_FOUND",
    "receive as a blank group": "ILLEGAL_CONSUMER_GROUP",
    "receive as a system group": "ILLEGAL_CONSUMER_GROUP",
    "receive from an unknown topic": "TOPIC_NOT_FOUND",
    "receive, invisible for 9 s": "ILLEGAL_INVISIBLE_TIME",
    "receive, invisible for 13 h": "ILLEGAL_INVISIBLE_TIME",
    "receive in 3 s": "ILLEGAL_POLLING_TIME",
    "receive with bad SQL": "INTERNAL_SERVER_ERROR",
    "acknowledge nothing": "INTERNAL_SERVER_ERROR",
    "acknowledge garbage": "INTERNAL_SERVER_ERROR",
    "acknowledge what is expired": "INVALID_RECEIPT_HANDLE",
    "acknowledge what was never given": "OK",
    "change to 13 h": "ILLEGAL_INVISIBLE_TIME",
    "end a blank transaction": "INVALID_TRANSACTION_ID",
    "end an unknown transaction": "INTERNAL_SERVER_ERROR",
    "recall by garbage": "INTERNAL_SERVER_ERROR",
    "recall of a normal topic": "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
    "heartbeat without settings": "UNRECOGNIZED_CLIENT_TYPE",
}
"""RocketMQ's proxy 5.3.3."""

OURS: Final[Mapping[str, str]] = {"heartbeat without settings": "OK"}
"""Where ours is another: see docs/grpc.md."""


def codes_at(place: Place) -> dict[str, str]:
    """Ask all of it; return the code of each."""
    topics = [unique(f"codes-{kind}") for kind in ("normal", "fifo", "delay", "transaction")]
    for topic, kind in zip(topics, ("normal", "fifo", "delay", "transaction"), strict=True):
        place.make_topics(topic, kind=kind)  # type: ignore[arg-type]
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "python" / "status_codes.py"), place.endpoints, *topics],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={"PYTHONPATH": python_library(), "HOME": "/tmp", "PATH": ""},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = (msgspec.json.decode(line) for line in done.stdout.splitlines())
    return {line["name"]: line["code"] for line in lines}


def expected_at(place: str) -> dict[str, str]:
    """What has to be answered at a place."""
    return dict(EXPECTED) if place == "real" else dict(EXPECTED) | dict(OURS)
