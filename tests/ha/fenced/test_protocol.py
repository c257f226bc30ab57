import contextlib
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.errors import FrameError, HandshakeError, LinkFault, RemoteHAError, ReportError
from ha.fenced.epochs import EpochEntry
from ha.fenced.protocol import (
    CHECKED_HEADER_BYTES,
    ENVELOPE,
    EPOCHS_SENT_MAX,
    FRAME_HEADER,
    HANDSHAKE_BYTES_MAX,
    REPORT,
    Attach,
    Challenge,
    FrameHeader,
    HandshakeMessage,
    Hello,
    Joined,
    Objection,
    Refused,
    Report,
    Welcome,
    decode_frame_header,
    decode_message,
    decode_report,
    encode_frame_header,
    encode_message,
    encode_report,
    is_proven,
    proven,
)
from ha.link.limits import TRANSFER_BODY_BYTES_MAX
from tandem.wire.crc import raw_crc32
from tandem.wire.store_layout import OFFSET_MAX

HELLO = Hello(
    cluster="C",
    group="g",
    node="b",
    incarnation="i1",
    epoch=3,
    file_size_bytes=4096,
    nonce="n2",
)
WELCOME = Welcome(
    epoch=3,
    node="a",
    incarnation="i0",
    epochs=(EpochEntry(1, 0), EpochEntry(3, 500)),
    log_start=0,
    log_end=900,
    confirm=800,
)
MESSAGES: list[HandshakeMessage] = [
    Challenge(nonce="n1"),
    HELLO,
    WELCOME,
    Refused(reason="no"),
    Attach(offset=7, check_from=3, checksum="c0de"),
    Objection(parting=5, confirm=7, proof="p"),
    Joined(checksum="c0de", proof="p"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_as_it_was_written_whatever_follows(message: HandshakeMessage) -> None:
    data = encode_message(message)
    assert decode_message(data + b"more", 4096) == (message, len(data))
    for size in range(len(data)):
        assert decode_message(data[:size], 4096) is None


def test_the_payload_is_json_behind_size_and_checksum() -> None:
    payload = b'{"type":"REFUSED","reason":"no"}'
    envelope = len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big")
    assert encode_message(Refused(reason="no")) == envelope + payload


@given(st.sampled_from(MESSAGES), st.data())
def test_a_damaged_message_is_refused_or_not_all_there(
    message: HandshakeMessage, data: st.DataObject
) -> None:
    wire = bytearray(encode_message(message))
    position = data.draw(st.integers(0, len(wire) - 1))
    wire[position] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(HandshakeError):
        assert decode_message(bytes(wire), 4096) is None


@given(st.binary(max_size=100))
def test_random_bytes_are_no_message(data: bytes) -> None:
    for wire in (data, ENVELOPE.pack(len(data), raw_crc32(data)) + data):
        with contextlib.suppress(HandshakeError):
            assert decode_message(wire, 4096) is None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b'{"type":"ATTACH"}',
        b'{"type":"ATTACH","offset":-1}',
        b'{"type":"ATTACH","offset":9223372036854775808}',
        b'{"type":"ATTACH","offset":1e3}',
        b'{"type":"ATTACK","offset":1}',
        b'{"type":"REFUSED","reason":"' + b"x" * 1001 + b'"}',
        b"[" * 4000,
        b'{"type":"ATTACH","offset":"\xff"}',
    ],
)
def test_json_of_something_else_is_refused(payload: bytes) -> None:
    with pytest.raises(HandshakeError) as caught:
        decode_message(ENVELOPE.pack(len(payload), raw_crc32(payload)) + payload, 4096)
    assert caught.value.fault is LinkFault.UNREADABLE


def test_a_message_that_is_too_large_is_refused_before_it_is_read() -> None:
    with pytest.raises(HandshakeError) as caught:
        decode_message(ENVELOPE.pack(5000, 0), 4999)
    assert caught.value.fault is LinkFault.SIZE


def test_a_welcome_with_as_many_epochs_as_are_sent_fits() -> None:
    epochs = tuple(
        EpochEntry(2**31 - EPOCHS_SENT_MAX + n - 1, 2**63 - EPOCHS_SENT_MAX + n - 1)
        for n in range(EPOCHS_SENT_MAX)
    )
    data = encode_message(msgspec.structs.replace(WELCOME, epochs=epochs))
    found = decode_message(data, HANDSHAKE_BYTES_MAX)
    assert found is not None
    assert isinstance(found[0], Welcome)
    assert found[0].epochs == epochs


# Proofs


def test_a_proof_covers_the_secret_both_numbers_and_all_that_is_said() -> None:
    hello = proven(HELLO, "secret", "n1", "n2")
    assert is_proven(hello, "secret", "n1", "n2")
    assert not is_proven(hello, "Secret", "n1", "n2")
    assert not is_proven(hello, "secret", "n0", "n2")
    assert not is_proven(hello, "secret", "n1", "n3")
    assert not is_proven(hello, "secret", "n1n2")
    assert not is_proven(HELLO, "secret", "n1", "n2")
    for changes in ({"node": "c"}, {"incarnation": "i2"}, {"epoch": 4}, {"group": "h"}):
        changed = msgspec.structs.replace(hello, **changes)
        assert not is_proven(changed, "secret", "n1", "n2")
    assert not is_proven(msgspec.structs.replace(hello, proof="é" * 64), "secret", "n1", "n2")


def test_a_welcome_cannot_be_said_again_by_somebody_else() -> None:
    welcome = proven(WELCOME, "secret", "n1", "n2")
    assert is_proven(welcome, "secret", "n1", "n2")
    assert not is_proven(welcome, "secret", "n9", "n2")
    assert not is_proven(msgspec.structs.replace(welcome, epoch=4), "secret", "n1", "n2")


# Frames and reports

OFFSETS = st.integers(0, OFFSET_MAX)
EPOCHS = st.integers(0, 2**31 - 1)


@given(st.binary(max_size=50), st.integers(0, 2**62), EPOCHS, OFFSETS, OFFSETS, OFFSETS)
def test_a_frame_is_read_as_it_was_written(
    body: bytes, offset: int, epoch: int, start: int, confirm: int, flush: int
) -> None:
    header = FrameHeader(len(body), offset, epoch, start, confirm, flush)
    wire = encode_frame_header(header, body)
    assert len(wire) == FRAME_HEADER.size == 56
    found, crc, expected = decode_frame_header(b"before" + wire + body, 6)
    assert found == header
    assert raw_crc32(body, crc) == expected


def test_a_frame_header_lies_on_the_wire_as_documented() -> None:
    wire = encode_frame_header(FrameHeader(4, 0x1122, 5, 0x1000, 0x1100, 0x1080), b"body")
    checked = bytes.fromhex(
        "00000002 00000004 0000000000001122 00000005 00000000"
        " 0000000000001000 0000000000001100 0000000000001080"
    )
    assert wire[:CHECKED_HEADER_BYTES] == checked
    assert wire[48:52] == raw_crc32(checked).to_bytes(4, "big")
    assert wire[52:] == raw_crc32(checked + b"body").to_bytes(4, "big")


@pytest.mark.parametrize("position", range(52))
@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_a_bit_that_flips_in_a_header_is_noticed_at_once(position: int, flip: int) -> None:
    wire = bytearray(encode_frame_header(FrameHeader(4, 8, 1, 0, 0, 0), b"body"))
    wire[position] ^= flip
    with pytest.raises(FrameError):
        decode_frame_header(bytes(wire), 0)


@pytest.mark.parametrize(
    "header",
    [
        FrameHeader(-1, 0, 1, 0, 0, 0),
        FrameHeader(TRANSFER_BODY_BYTES_MAX + 1, 0, 1, 0, 0, 0),
        FrameHeader(0, -1, 1, 0, 0, 0),
        FrameHeader(2, OFFSET_MAX - 1, 1, 0, 0, 0),
        FrameHeader(0, 0, -1, 0, 0, 0),
        FrameHeader(0, 0, 1, -1, 0, 0),
        FrameHeader(0, 0, 1, 0, -1, 0),
        FrameHeader(0, 0, 1, 0, 0, -1),
    ],
)
def test_a_header_that_no_master_sends_is_refused(header: FrameHeader) -> None:
    with pytest.raises(FrameError):
        decode_frame_header(encode_frame_header(header, b""), 0)


def test_a_frame_of_another_kind_is_refused() -> None:
    for fields in ((1, 0, 0, 1, 0, 0, 0, 0), (2, 0, 0, 1, 1, 0, 0, 0)):
        wire = FRAME_HEADER.pack(*fields, 0, 0)
        crc = raw_crc32(wire[:48]).to_bytes(4, "big")
        with pytest.raises(FrameError) as caught:
            decode_frame_header(wire[:48] + crc + crc, 0)
        assert caught.value.fault is LinkFault.VALUES


def test_a_report_is_read_as_it_was_written() -> None:
    wire = encode_report(Report(3, 500, 400))
    assert len(wire) == REPORT.size == 32
    assert decode_report(b"x" + wire, 1) == Report(3, 500, 400)


@pytest.mark.parametrize("position", range(32))
def test_a_bit_that_flips_in_a_report_is_noticed(position: int) -> None:
    wire = bytearray(encode_report(Report(3, 500, 400)))
    wire[position] ^= 0x10
    with pytest.raises(ReportError):
        decode_report(bytes(wire), 0)


@pytest.mark.parametrize(("written", "flushed"), [(-1, -1), (5, -1), (5, 6)])
def test_a_report_that_no_follower_sends_is_refused(written: int, flushed: int) -> None:
    with pytest.raises(ReportError) as caught:
        decode_report(encode_report(Report(1, written, flushed)), 0)
    assert caught.value.fault is LinkFault.VALUES


@given(st.binary(min_size=56, max_size=56))
def test_random_bytes_are_neither_frame_nor_report(data: bytes) -> None:
    with pytest.raises(RemoteHAError):
        decode_frame_header(data, 0)
    with pytest.raises(RemoteHAError):
        decode_report(data, 0)
