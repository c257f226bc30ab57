from ha.classic.protocol import REPORT, TRANSFER_HEADER, encode_refusal, refused_log_end
from ha.link.limits import TRANSFER_BODY_BYTES_DEFAULT, TRANSFER_BODY_BYTES_MAX


def test_the_classic_layouts_are_kept_byte_for_byte() -> None:
    assert REPORT.pack(0x0102030405060708) == bytes(range(1, 9))
    assert TRANSFER_HEADER.pack(1, 2) == b"\0\0\0\0\0\0\0\x01\0\0\0\x02"


def test_the_biggest_frame_fits_the_buffer_of_a_java_slave() -> None:
    assert TRANSFER_BODY_BYTES_MAX + TRANSFER_HEADER.size == 4 * 1024 * 1024
    assert TRANSFER_BODY_BYTES_DEFAULT <= TRANSFER_BODY_BYTES_MAX


def test_a_refusal_is_negative_and_carries_the_log_end() -> None:
    for log_end in (0, 1, 2**62):
        (report,) = REPORT.unpack(encode_refusal(log_end))
        assert report < 0
        assert refused_log_end(report) == log_end
