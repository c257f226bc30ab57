"""Records of message traces: RocketMQ's bytes, older clients, and what anybody may write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.trace_records import (
    ContextCode,
    EndTransaction,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
    TraceRecord,
    decode_traces,
    encode_traces,
)
from tandem.wire.untrusted import UnreadableError

PUB = Pub(
    *(1795632317333, "DefaultRegion", "pg", "T1", "7F00000178F3", "TagA", "key1"),
    *("127.0.0.5:10911", 5, 77, MessageType.NORMAL, "7F000005", True),
)
BEFORE = SubBefore(1, "DefaultRegion", "cg", "R1", "7F00000178F3", 2, "key1 key2")
AFTER = SubAfter(*("R1", "7F00000178F3", 12, False, "key1", ContextCode.FAILED, 13, "cg"))
END = EndTransaction(
    *(1, "DefaultRegion", "pg", "T1", "ID", "", "", "h:1", MessageType.COMMIT, "ID"),
    *("COMMIT_MESSAGE", False),
)

# As TraceDataEncoder of RocketMQ 5.3.3 has written it.
PUB_BYTES = (
    b"Pub\x011795632317333\x01DefaultRegion\x01pg\x01T1\x017F00000178F3\x01TagA\x01key1"
    b"\x01127.0.0.5:10911\x015\x0177\x010\x017F000005\x01true\x02"
)


def test_a_record_of_a_send_has_rocketmqs_bytes() -> None:
    assert encode_traces([PUB]) == PUB_BYTES
    assert decode_traces(PUB_BYTES) == [PUB]


def test_all_records_are_read_as_they_were_written() -> None:
    records: list[TraceRecord] = [PUB, BEFORE, AFTER, END]
    assert decode_traces(encode_traces(records)) == records


@pytest.mark.parametrize(
    ("fields", "offset_msg_id", "is_success"),
    [
        ("Pub,1,r,g,t,id,tag,key,h:1,5,7,0,true", "", True),
        ("Pub,1,r,g,t,id,tag,key,h:1,5,7,0,0A,true", "0A", True),
        ("Pub,1,r,g,t,id,tag,key,h:1,5,7,0,0A,false,10.0.0.1", "0A", False),
    ],
)
def test_clients_of_other_versions_write_other_numbers_of_fields(
    fields: str, offset_msg_id: str, *, is_success: bool
) -> None:
    [record] = decode_traces(fields.replace(",", "\x01").encode() + b"\x02")
    assert isinstance(record, Pub)
    assert (record.offset_msg_id, record.is_success) == (offset_msg_id, is_success)


@pytest.mark.parametrize("count", [6, 7, 9])
def test_the_end_of_consuming_may_lack_its_time(count: int) -> None:
    fields = ["SubAfter", "R", "id", "5", "true", "key", "0", "9", "g"][:count]
    [record] = decode_traces("\x01".join(fields).encode() + b"\x02")
    assert isinstance(record, SubAfter)
    assert (record.request_id, record.cost_ms, record.is_success) == ("R", 5, True)
    assert record.time_ms == (9 if count == 9 else None)


def test_what_is_not_known_is_null() -> None:
    bare = encode_traces([BEFORE.__class__(1, "r", "g", "R", "id", 0, "")])
    assert bare.endswith(b"\x010\x01null\x02")
    [record] = decode_traces(bare)
    assert isinstance(record, SubBefore)
    assert record.keys == ""


@pytest.mark.parametrize("body", [b"", b"\x02\x02", b"Pub\x02", b"Sub\x01\x02", b"Pub\x01" * 5])
def test_what_is_no_record_is_left_out(body: bytes) -> None:
    assert decode_traces(body + b"\x02" + PUB_BYTES) == [PUB]


@pytest.mark.parametrize("number", ["", "x", "1_0", "٣", "9" * 5_000, "-"])
def test_a_number_that_is_none_is_zero(number: str) -> None:
    body = PUB_BYTES.decode().replace("\x0177\x01", f"\x01{number}\x01").encode()
    [record] = decode_traces(body)
    assert isinstance(record, Pub)
    assert record.cost_ms == 0


def test_a_body_that_is_no_text_is_refused() -> None:
    with pytest.raises(UnreadableError):
        decode_traces(b"\xff\xfe")


@given(st.text())
def test_a_separator_in_a_name_does_not_make_another_field(name: str) -> None:
    record = SubBefore(1, "r", name, "R", "id", 0, name)
    [found] = decode_traces(encode_traces([record]))
    assert isinstance(found, SubBefore)
    assert (found.request_id, found.msg_id, found.retry_times) == ("R", "id", 0)


@given(st.binary())
def test_any_bytes_are_records_or_refused(body: bytes) -> None:
    try:
        records = decode_traces(body)
    except UnreadableError:
        return
    encode_traces(records)
