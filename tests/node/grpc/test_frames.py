import pytest

from node.grpc.frames import (
    DATA,
    FRAME_SIZE_ERROR,
    PADDED,
    PREFACE,
    PROTOCOL_ERROR,
    FrameCutter,
    Http2Error,
    frame,
    number_frame,
    number_of,
    settings_frame,
    settings_of,
    without_padding,
)


def test_frames_are_cut_out_of_bytes_however_they_come() -> None:
    data = (
        frame(DATA, 1, 3, b"abc") + frame(0x77, 255, 2**31 - 1) + frame(DATA, 0, 1, b"x" * 70_000)
    )
    for size in (1, 2, 9, 10, 1000, len(data)):
        cutter, found = FrameCutter(100_000), []
        for at in range(0, len(data), size):
            cutter.receive_data(data[at : at + size])
            while (each := cutter.next_frame()) is not None:
                found.append(each)
        assert [(kind, flags, stream, len(payload)) for kind, flags, stream, payload in found] == [
            (0, 1, 3, 3),
            (0x77, 255, 2**31 - 1, 0),
            (0, 0, 1, 70_000),
        ]
        assert cutter.buffered_bytes == 0


def test_a_frame_that_is_too_large_is_refused_before_it_has_come() -> None:
    cutter = FrameCutter(10)
    cutter.receive_data(frame(DATA, 0, 1, b"x" * 11)[:9])
    with pytest.raises(Http2Error) as caught:
        cutter.next_frame()
    assert caught.value.code == FRAME_SIZE_ERROR


def test_the_preface_is_taken_once_all_of_it_is_there() -> None:
    cutter = FrameCutter(10)
    for byte in PREFACE[:-1]:
        cutter.receive_data(bytes([byte]))
        assert not cutter.skip(PREFACE)
    cutter.receive_data(PREFACE[-1:] + b"rest")
    assert cutter.skip(PREFACE)
    assert cutter.buffered_bytes == 4


def test_padding_is_taken_away() -> None:
    assert bytes(without_padding(PADDED, memoryview(b"\2abc\0\0"))) == b"abc"
    assert bytes(without_padding(0, memoryview(b"\2abc"))) == b"\2abc"
    for bad in (b"", b"\5abc\0"):
        with pytest.raises(Http2Error) as caught:
            without_padding(PADDED, memoryview(bad))
        assert caught.value.code == PROTOCOL_ERROR


def test_numbers_and_settings_are_read_as_they_were_written() -> None:
    assert number_of(memoryview(number_frame(8, 1, 77)[9:])) == 77
    assert settings_of(memoryview(settings_frame({1: 2, 3: 4})[9:])) == [(1, 2), (3, 4)]
    for read in (number_of, settings_of):
        with pytest.raises(Http2Error):
            read(memoryview(b"12345"))
