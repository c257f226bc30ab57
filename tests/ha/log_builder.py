"""Small commit logs as bytes, for the engines' tests."""

from tandem.wire.message import BLANK_MAGIC_CODE, Host, MessageExt, encode_record

FILE_SIZE_BYTES = 4096
RECORD_BYTES_MAX = 2048

MASTER = Host("127.0.0.1", 10911)


def record(offset: int, body: bytes = b"body", *, topic: str = "T", host: Host = MASTER) -> bytes:
    return encode_record(
        MessageExt(
            topic=topic,
            body=body,
            properties={},
            queue_id=0,
            queue_offset=0,
            physical_offset=offset,
            store_size=0,
            flag=0,
            sys_flag=0,
            born_timestamp_ms=1,
            born_host=host,
            store_timestamp_ms=2,
            store_host=host,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=0,
        )
    )


def blank(size: int) -> bytes:
    return size.to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big") + bytes(size - 8)


def build_log(bodies: list[bytes], *, start: int = 0) -> bytes:
    """Return a log of these bodies from offset `start` on, rolled as a commit log rolls."""
    log = bytearray()
    for body in bodies:
        left = FILE_SIZE_BYTES - (start + len(log)) % FILE_SIZE_BYTES
        if len(record(0, body)) + 8 > left:
            log += blank(left)
        log += record(start + len(log), body)
    return bytes(log)


def record_starts(log: bytes | bytearray, *, start: int = 0) -> list[int]:
    """Return the offsets of all records, end-of-file records included."""
    starts = []
    position = 0
    while position < len(log):
        starts.append(start + position)
        position += int.from_bytes(log[position : position + 4], "big")
    return starts
