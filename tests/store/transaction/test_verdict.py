"""What is done about an open half depends on its age, its checks and its immunity alone."""

import msgspec
import pytest

from store.transaction.transaction import TransactionSettings
from store.transaction.verdict import Verdict, verdict_on
from tandem.wire.message import Host, MessageExt

BORN = 1_700_000_000_000
HOUR_MS = 3_600_000

HALF = MessageExt(
    topic="RMQ_SYS_TRANS_HALF_TOPIC",
    body=b"",
    properties={},
    queue_id=0,
    queue_offset=0,
    physical_offset=0,
    store_size=0,
    flag=0,
    sys_flag=0,
    born_timestamp_ms=BORN,
    born_host=Host("127.0.0.1", 1),
    store_timestamp_ms=BORN,
    store_host=Host("127.0.0.1", 10911),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body_crc=0,
)


@pytest.mark.parametrize(
    ("age_ms", "properties", "expected"),
    [
        (0, {}, Verdict.LATER),
        (6_000, {}, Verdict.LATER),
        (6_001, {}, Verdict.ASK),
        (6_001, {"TRANSACTION_CHECK_TIMES": "14"}, Verdict.ASK),
        (1, {"TRANSACTION_CHECK_TIMES": "15"}, Verdict.GIVE_UP),
        (72 * HOUR_MS, {}, Verdict.ASK),
        (72 * HOUR_MS + 1, {}, Verdict.GIVE_UP),
        (9_999, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"}, Verdict.IMMUNE),
        (10_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"}, Verdict.ASK),
        (5_999, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, Verdict.IMMUNE),
        (6_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"}, Verdict.ASK),
        (-1, {}, Verdict.ASK),
    ],
)
def test_a_verdict(age_ms: int, properties: dict[str, str], expected: Verdict) -> None:
    half = msgspec.structs.replace(HALF, properties=properties, store_timestamp_ms=BORN - 5_000)
    now_ms = BORN + age_ms
    assert verdict_on(half, TransactionSettings(), now_ms, now_ms) is expected


def test_a_half_stored_since_the_check_began_has_time() -> None:
    now_ms = BORN + 60_000
    assert verdict_on(HALF, TransactionSettings(), now_ms, BORN) is Verdict.LATER
    assert verdict_on(HALF, TransactionSettings(), now_ms, BORN + 1) is Verdict.ASK
