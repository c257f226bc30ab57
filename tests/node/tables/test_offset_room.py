import pytest

import node.tables.offset_room
from node.errors import RequestError
from node.tables.offset_room import OFFSET_BYTES_MAX, OffsetRoom
from tandem.wire.frame_buffer import FRAME_BYTES_MAX
from tandem.wire.request_headers import ConsumerOffsetTableBody
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body


def test_a_full_table_fits_a_frame() -> None:
    largest = {f"{number:08d}@g": {2**31 - 1: 2**63 - 1} for number in range(1000)}
    sample_bytes = len(encode_json_body(ConsumerOffsetTableBody(largest)))
    assert sample_bytes / OffsetRoom(largest).used_bytes * OFFSET_BYTES_MAX < FRAME_BYTES_MAX


def test_a_refused_offset_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.tables.offset_room, "OFFSET_BYTES_MAX", 90)
    room = OffsetRoom({"T@g": {0: 1}})
    with pytest.raises(RequestError) as caught:
        room.take("T@h", is_new_key=True)
    assert caught.value.code == ResponseCode.SYSTEM_BUSY
    room.take("T@g", is_new_key=False)
    with pytest.raises(RequestError):
        room.take("T@g", is_new_key=False)


def test_the_last_byte_of_the_room_may_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    room = OffsetRoom({"T@g": {0: 1}})
    with_another = OffsetRoom({"T@g": {0: 1, 1: 1}}).used_bytes
    monkeypatch.setattr(node.tables.offset_room, "OFFSET_BYTES_MAX", with_another)
    room.take("T@g", is_new_key=False)
    assert room.used_bytes == with_another
