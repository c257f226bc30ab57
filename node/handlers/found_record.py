"""Whose message a record is that was found by its place: its topic is in it, and not in a request.

A record that waits, of a delayed message or the half of a transaction, is in a topic of the system
and says itself where it belongs. An ordinary one may say so too, and is not believed.
"""

from __future__ import annotations

from node.errors import RequestError
from node.remoting.caller import ANYBODY, Caller
from tandem.wire.access_control import Kind, Right
from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.message_properties import PROPERTY_REAL_TOPIC
from tandem.wire.receipt_handle import normal_topic
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import is_system_topic


def topic_of(message: MessageExt) -> str:
    """Return the topic that a message is of, also while it waits."""
    if is_system_topic(message.topic):
        return message.properties.get(PROPERTY_REAL_TOPIC, message.topic)
    return message.topic


def check_only_topic(record: bytes | memoryview, only: str | None, group: str = "") -> None:
    """Ask whether a record is of the topic that a request says it has to be of.

    A message that comes again to `group` is of the topic that it was first in.

    Raises:
        RequestError: it is of another one.
    """
    if only is None:
        return
    for message in decode_messages(record):
        topic = topic_of(message)
        if only not in (topic, normal_topic(topic, group)):
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"there is a message of another topic than {only}"
            )


def check_found(caller: Caller, record: bytes | memoryview, *rights: Right) -> None:
    """Ask whether a caller may do one of some things with a record.

    Raises:
        RequestError: they may not.
    """
    if caller is ANYBODY:
        return
    for message in decode_messages(record):
        caller.check(Kind.TOPIC, topic_of(message), *rights)
