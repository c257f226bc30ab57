"""Lines of a ledger that was made up."""

from tandem.drill.ledger import LedgerEntry
from tandem.drill.outcomes import SEND_OK

STARTED_MS = 1_000_000.0


def send(at_seconds: float, latency_ms: float = 5.0, status: str = SEND_OK) -> LedgerEntry:
    return LedgerEntry(
        send_id=f"sync-1-{at_seconds:g}",
        scenario="a",
        phase="p",
        producer="sync-1",
        sequence=1,
        mode="sync",
        topic="t",
        body_crc32=0,
        body_bytes=1,
        status=status,
        reason="",
        offset_msg_id="",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        sent_at_ms=STARTED_MS + at_seconds * 1000,
        answered_at_ms=STARTED_MS + at_seconds * 1000 + latency_ms,
        latency_ms=latency_ms,
        attempts=1,
    )
