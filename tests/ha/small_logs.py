"""Small commit logs as bytes, for the engines' tests."""

from tandem.wire.message import Host
from tests.support.log_builder import LogBuilder

FILE_SIZE_BYTES = 4096
RECORD_BYTES_MAX = 2048

MASTER = Host("127.0.0.1", 10911)


def record(offset: int, body: bytes = b"body", *, topic: str = "T", host: Host = MASTER) -> bytes:
    log = LogBuilder(start_offset=offset)
    log.put(topic, body, born_host=host, store_host=host)
    return bytes(log.log)


def build_log(bodies: list[bytes], *, start: int = 0) -> bytes:
    """Return a log of these bodies in files from offset `start` on."""
    log = LogBuilder(file_bytes=FILE_SIZE_BYTES, start_offset=start)
    for body in bodies:
        log.put("T", body)
    return bytes(log.log)
