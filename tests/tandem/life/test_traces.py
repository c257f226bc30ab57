from hypothesis import given
from hypothesis import strategies as st

from tandem.life.traces import marks_of
from tests.tandem.client.fake_broker import message_ext

KEY = "7F00000178F3"
PUB = (
    f"Pub\x011795632317333\x01DefaultRegion\x01pg\x01T1\x01{KEY}\x01TagA\x01key1"
    "\x01127.0.0.5:10911\x015\x0177\x010\x017F000005\x01true\x02"
)
BEFORE = f"SubBefore\x011795632317400\x01DefaultRegion\x01g\x01R1\x01{KEY}\x010\x01key1\x02"
AFTER = f"SubAfter\x01R1\x01{KEY}\x0112\x01true\x01key1\x010\x011795632317412\x01g\x02"


def body(text: str) -> bytes:
    return text.encode()


def test_what_clients_wrote_is_read_in_the_order_of_time() -> None:
    messages = [message_ext(body(AFTER)), message_ext(body(PUB + BEFORE))]
    sent, received, handled = marks_of(messages, KEY)
    assert (sent.what, sent.at_ms, sent.group, sent.success, sent.cost_ms) == (
        "sent",
        1_795_632_317_333,
        "pg",
        True,
        77,
    )
    assert (received.what, received.group) == ("received", "g")
    assert (handled.what, handled.at_ms, handled.success, handled.cost_ms) == (
        "handled",
        1_795_632_317_412,
        True,
        12,
    )


def test_what_is_about_other_messages_is_left_out() -> None:
    assert marks_of([message_ext(body(PUB + BEFORE + AFTER))], "OTHER") == []


def test_a_client_that_writes_its_host_at_the_end_is_understood() -> None:
    (sent,) = marks_of([message_ext(body(PUB.replace("true\x02", "true\x0110.1.1.1\x02")))], KEY)
    assert sent.success


def test_a_send_that_is_stored_and_not_with_all_is_told_apart() -> None:
    late, lost = (
        PUB.replace("true\x02", "false\x02"),
        PUB.replace("7F000005\x01true\x02", "null\x01false\x02"),
    )
    for text, is_stored in ((late, True), (lost, False)):
        (sent,) = marks_of([message_ext(body(text))], KEY)
        assert (sent.success, sent.is_stored) == (False, is_stored)


def test_the_end_of_a_transaction_is_read() -> None:
    fields = ["EndTransaction", "17", "R", "pg", "T", KEY, "", "", "h", "1", "X"]
    end = "\x01".join([*fields, "COMMIT_MESSAGE", "false"]) + "\x02"
    (mark,) = marks_of([message_ext(body(end))], KEY)
    assert (mark.what, mark.at_ms, mark.state) == ("ended", 17, "COMMIT_MESSAGE")


def test_a_trace_that_was_told_twice_is_one() -> None:
    assert len(marks_of([message_ext(body(PUB)), message_ext(body(PUB))], KEY)) == 1


@given(st.binary())
def test_any_body_is_read(data: bytes) -> None:
    marks_of([message_ext(data)], KEY)
