"""Result records: RocketMQ's words in RocketMQ's order."""

import pytest

from store import PutMessageResult, PutMessageStatus


def test_put_statuses_have_rocketmqs_order() -> None:
    """org.apache.rocketmq.store.PutMessageStatus."""
    assert [status.name for status in PutMessageStatus] == [
        "PUT_OK",
        "FLUSH_DISK_TIMEOUT",
        "FLUSH_SLAVE_TIMEOUT",
        "SLAVE_NOT_AVAILABLE",
        "SERVICE_NOT_AVAILABLE",
        "CREATE_MAPPED_FILE_FAILED",
        "MESSAGE_ILLEGAL",
        "PROPERTIES_SIZE_EXCEEDED",
        "OS_PAGE_CACHE_BUSY",
        "UNKNOWN_ERROR",
        "IN_SYNC_REPLICAS_NOT_ENOUGH",
        "PUT_TO_REMOTE_BROKER_FAIL",
        "LMQ_CONSUME_QUEUE_NUM_EXCEEDED",
        "WHEEL_TIMER_FLOW_CONTROL",
        "WHEEL_TIMER_MSG_ILLEGAL",
        "WHEEL_TIMER_NOT_ENABLE",
    ]
    assert list(PutMessageStatus) == list(range(16))


@pytest.mark.parametrize("status", PutMessageStatus)
def test_the_first_four_mean_that_the_message_is_in_the_log(status: PutMessageStatus) -> None:
    assert status.is_stored == (status < 4)


def test_ids_are_made_of_host_and_place() -> None:
    one = PutMessageResult(PutMessageStatus.PUT_OK, "", 255, 10, store_host_hex="7F00000100002A9F")
    assert one.msg_id == "7F00000100002A9F00000000000000FF"
    assert one.end_offset == 265
    several = PutMessageResult(
        PutMessageStatus.PUT_OK, "", 1, 9, store_host_hex="AB", record_offsets=(1, 4)
    )
    assert several.msg_id == "AB0000000000000001,AB0000000000000004"
