"""A send, and what stands for disk and replicas that it waits for."""

import itertools
import re
from collections.abc import Callable
from typing import Final

import msgspec
from hypothesis import strategies as st

from ha.results import PutWait
from store import PutMessageStatus
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import FRAME_HEAD, SerializeType, encode_frame
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tests.node.doubles import NOW_MS

Done = Callable[[PutMessageStatus, str], None]

HEADER = SendMessageRequestHeaderV2(
    producer_group="PG",
    topic="T",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=1,
    sys_flag=0,
    born_timestamp=NOW_MS - 5,
    flag=3,
    properties="KEYS\x01k\x02UNIQ_KEY\x01U1\x02",
)


_NUMBERS = re.compile(
    rb'"(d|e|f|g|h|j|l|defaultTopicQueueNums|queueId|sysFlag|bornTimestamp|flag|reconsumeTimes'
    rb"|maxReconsumeTimes|queueOffset|maxMsgNums|commitOffset|suspendTimeoutMillis|subVersion"
    rb"""|maxMsgBytes)":"(-?[0-9]+)\""""
)


def as_in_cpp(frame: bytes) -> bytes:
    """Return a request in JSON with its numbers without quotes, as the client in C++ has them."""
    length, word = FRAME_HEAD.unpack_from(frame)
    end = FRAME_HEAD.size + (word & 0xFFFFFF)
    if word >> 24 != SerializeType.JSON:
        return frame
    header = _NUMBERS.sub(rb'"\1":\2', frame[FRAME_HEAD.size : end])
    less = end - FRAME_HEAD.size - len(header)
    return FRAME_HEAD.pack(length - less, word - less) + header + frame[end:]


def with_more(frame: bytes, more: dict[str, str]) -> bytes:
    """Return a request with more fields than it has."""
    frames = FrameBuffer()
    frames.receive_data(frame)
    command = frames.next_command()
    assert command is not None
    fields = command.ext_fields()
    return encode_frame(msgspec.structs.replace(command, ext={**fields, **more}))


MORE: Final = st.dictionaries(
    st.sampled_from(
        ["AccessKey", "Signature", "SecurityToken", "tandemSignature", "tandemChallenge", "ns", "z"]
    ),
    st.sampled_from(["", "mallory", "wrong", "tandem-operator", "q" * 40]),
    max_size=3,
)
"""Fields that no header has: who sends a request, rightly or not, and others."""


@st.composite
def received(draw: st.DrawFn, requests: st.SearchStrategy[bytes]) -> list[bytes]:
    """Some requests as they come over a connection: cut anywhere, and sometimes damaged."""
    data = bytearray(b"".join(draw(st.lists(requests, max_size=12))))
    damages = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3)
    for at, value in draw(damages) if data else []:
        data[at % len(data)] = value
    cuts = draw(st.lists(st.integers(0, 5_000), max_size=3))
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [bytes(data[a:b]) for a, b in itertools.pairwise(places)]


class Waiters:
    """Stands for a service that answers later. `reached` is how far it has got."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, float, Done]] = []
        self.reached = 0

    def wait(self, timeout_seconds: float = 3.0) -> PutWait:
        return PutWait(self._submit, lambda: self.reached, timeout_seconds)

    def answer(self, status: PutMessageStatus, reason: str = "") -> None:
        waiting, self.waiting = self.waiting, []
        for _, _, done in waiting:
            done(status, reason)

    def _submit(self, end_offset: int, deadline: float, done: Done) -> None:
        self.waiting.append((end_offset, deadline, done))
