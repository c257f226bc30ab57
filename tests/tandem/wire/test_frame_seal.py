"""Seals: their bytes, computed here once more from the description; and their numbers."""

import hashlib
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.errors import MalformedFrameError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.frame_seal import (
    SEAL_BYTES,
    FrameSeal,
    SealingPeer,
    connection_key,
)
from tandem.wire.remoting_command import RemotingCommand, SerializeType, encode_frame

KEY = bytes(range(32))


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def hmac_of(key: bytes, data: bytes) -> bytes:
    """RFC 2104, as it is written there."""
    block = key if len(key) <= 64 else sha256(key)
    block += bytes(64 - len(block))
    inner = bytes(byte ^ 0x36 for byte in block)
    outer = bytes(byte ^ 0x5C for byte in block)
    return sha256(outer + sha256(inner + data))


def key_by_hand(secret: str, name: str, challenge: str, target: str) -> bytes:
    user_key = hmac_of(secret.encode(), b"TandemMQ sealed requests of a user\x01")
    said = b""
    for part in (name, challenge, target):
        said += struct.pack(">I", len(part.encode())) + part.encode()
    return hmac_of(user_key, said)


def sealed_by_hand(key: bytes, frame: bytes) -> bytes:
    total, encoding, header = frame[:4], frame[4], frame[5:8]
    longer = struct.pack(">I", int.from_bytes(total, "big") + 32)
    said = longer + bytes([encoding + 128]) + header + frame[8:]
    return said + hmac_of(key, said)


def frame_of(opaque: int = 1, body: bytes = b"body", **ext: str) -> bytes:
    return encode_frame(RemotingCommand(10, opaque, ext=ext, body=body))


def is_taken(seal: FrameSeal, sealed: bytes, opaque: int) -> bool:
    number = seal.number_of(opaque)
    if number is None or not seal.is_good(number, sealed[:-32], sealed[-32:]):
        return False
    seal.last = number
    return True


def test_a_vector_that_never_changes() -> None:
    key = connection_key("a secret", "alice", "00ff", "10.0.0.1:10911")
    assert key.hex() == "c4076aade0a1cfffd353203f18a14b4356acb0cf517cc392570b76a915d782b0"
    frame = b"\0\0\0\x0a" + b"\0\0\0\x02" + b"{}" + b"body"
    assert FrameSeal(key).sealed(frame, 7).hex() == (
        "0000002a800000027b7d626f64794a03a0a44b1c721c047dc893e810adf20226cf0d015b"
        "90a50efb54a7e6dfa8c0"
    )


@given(st.text(), st.text(), st.text(), st.text())
def test_a_key_is_what_is_described(secret: str, name: str, challenge: str, target: str) -> None:
    assert connection_key(secret, name, challenge, target) == key_by_hand(
        secret, name, challenge, target
    )


@given(
    st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=4),
    st.binary(max_size=300),
    st.integers(0, 2**30 - 1),
    st.sampled_from(SerializeType),
)
def test_a_sealed_frame_is_what_is_described_and_the_same_request(
    ext: dict[str, str], body: bytes, opaque: int, encoding: SerializeType
) -> None:
    command = RemotingCommand(10, opaque, ext=ext, body=body, serialize_type=encoding)
    frame = encode_frame(command)
    sealed = FrameSeal(KEY).sealed(frame, opaque)
    assert sealed == sealed_by_hand(KEY, frame)
    frames = FrameBuffer()
    frames.receive_data(sealed + frame)
    first = frames.next_command()
    assert frames.sealed_frame() == sealed
    second = frames.next_command()
    assert frames.sealed_frame() == b""
    assert first == second
    assert is_taken(FrameSeal(KEY), sealed, opaque)


def test_names_and_values_cannot_change_places() -> None:
    """RocketMQ's signature of these two is the same."""
    one = FrameSeal(KEY).sealed(frame_of(topic="T1", zz="x"), 1)
    other = FrameSeal(KEY).sealed(frame_of(topic="T1x", zz=""), 1)
    assert len(one) == len(other)
    assert one[-SEAL_BYTES:] != other[-SEAL_BYTES:]
    forged = other[:-SEAL_BYTES] + one[-SEAL_BYTES:]
    assert not is_taken(FrameSeal(KEY), forged, 1)


def test_no_part_of_a_frame_may_change() -> None:
    sealed = FrameSeal(KEY).sealed(frame_of(topic="T"), 1)
    assert is_taken(FrameSeal(KEY), sealed, 1)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert not is_taken(FrameSeal(KEY), bytes(changed), 1), place


def test_numbers_only_rise() -> None:
    sender, receiver = FrameSeal(KEY), FrameSeal(KEY)
    frames = {opaque: sender.sealed(frame_of(opaque), opaque) for opaque in (3, 4, 9)}
    assert is_taken(receiver, frames[4], 4)
    for opaque in (3, 4):  # out of order, and again
        assert receiver.number_of(opaque) is None
    assert is_taken(receiver, frames[9], 9)
    assert receiver.last == 9
    # A number that was not taken does not count.
    number = receiver.number_of(10)
    assert number is not None
    assert not receiver.is_good(number, frame_of(10), bytes(32))
    assert receiver.last == 9


def test_after_two_to_the_thirty_first_numbers_go_on_with_another_key() -> None:
    sender, receiver = FrameSeal(KEY), FrameSeal(KEY)
    sender.last = receiver.last = 2**31 - 3
    before = sender.sealed(frame_of(2**31 - 2), 2**31 - 2)
    after = sender.sealed(frame_of(5), 5)
    assert before == sealed_by_hand(KEY, frame_of(2**31 - 2))
    second = hmac_of(KEY, struct.pack(">Q", 1))
    assert after == sealed_by_hand(second, frame_of(5))
    assert is_taken(receiver, before, 2**31 - 2)
    assert is_taken(receiver, after, 5)
    assert receiver.last == 2**31 + 5
    # That of the first turn is not good in the second.
    old = sealed_by_hand(KEY, frame_of(6))
    assert not is_taken(receiver, old, 6)
    assert receiver.number_of(2**31 - 2) is None


@given(st.lists(st.integers(1, 2**30), min_size=1, max_size=30))
def test_both_ends_count_alike(steps: list[int]) -> None:
    sender, receiver = FrameSeal(KEY), FrameSeal(KEY)
    opaque, lasts = 0, []
    for step in steps:
        opaque = (opaque + step) % 2**31
        if sender.number_of(opaque) is None:
            return  # the first may be further than a client ever is
        assert is_taken(receiver, sender.sealed(frame_of(opaque), opaque), opaque)
        lasts.append(receiver.last)
    assert all(one < other for one, other in pairwise(lasts))


def test_numbers_go_on_when_the_secret_changes_and_comes_back() -> None:
    """Otherwise what was sealed with the first could be sent again."""
    peer = SealingPeer("number")
    peer.name, peer.target = "alice", "here"
    asked: list[tuple[str, str]] = []

    def key_of(challenge: str, target: str) -> bytes:
        asked.append((challenge, target))
        return bytes([len(asked)]) * 32 if len(asked) == 2 else KEY

    old = FrameSeal(KEY).sealed(frame_of(1), 1)
    assert peer.ready_seal("one") is None
    assert is_taken(peer.seal_of("one", key_of), old, 1)
    assert peer.is_proven
    assert peer.seal_of("one", key_of) is peer.ready_seal("one")
    assert asked == [("number", "here")]
    assert peer.seal_of("two", key_of).number_of(1) is None
    assert peer.ready_seal("one") is None
    again = peer.seal_of("one", key_of)
    assert not is_taken(again, old, 1)
    assert is_taken(again, FrameSeal(KEY).sealed(frame_of(2), 2), 2)


@pytest.mark.parametrize("size", [0, 1, 31])
def test_a_frame_that_is_too_short_for_its_seal_ends_the_connection(size: int) -> None:
    header = b'{"code":10,"opaque":1}'
    frame = struct.pack(">II", 4 + len(header) + size, 0x80 << 24 | len(header))
    frames = FrameBuffer()
    frames.receive_data(frame + header + bytes(size))
    with pytest.raises(MalformedFrameError):
        frames.next_command()
