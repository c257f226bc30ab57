"""Whose message a record is that was found by its place: its topic is in it, and not in a request.

A record that waits, of a delayed message or the half of a transaction, is in a topic of the system
and says itself where it belongs. An ordinary one may say so too, and is not believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.remoting.caller import ANYBODY
from tandem.wire.access_control import Kind, Right
from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.message_properties import PROPERTY_REAL_TOPIC
from tandem.wire.system_topics import is_system_topic

if TYPE_CHECKING:
    from node.remoting.caller import Caller


def topic_of(message: MessageExt) -> str:
    """Return the topic that a message is of, also while it waits."""
    if is_system_topic(message.topic):
        return message.properties.get(PROPERTY_REAL_TOPIC, message.topic)
    return message.topic


def check_found(caller: Caller, record: bytes | memoryview, *rights: Right) -> None:
    """Ask whether a caller may do one of some things with a record.

    Raises:
        RequestError: they may not.
    """
    if caller is ANYBODY:
        return
    for message in decode_messages(record):
        caller.check(Kind.TOPIC, topic_of(message), *rights)
