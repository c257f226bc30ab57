import pytest

from tandem.client.ack import ACK_PROPERTIES, Ack, chosen_ack
from tandem.wire.message_properties import decode_properties


def test_each_contract_is_told_in_properties() -> None:
    told = {ack: decode_properties(text.encode()) for ack, text in ACK_PROPERTIES.items()}
    assert told == {
        Ack.ASYNC: {"WAIT": "false"},
        Ack.REPLICATED: {"WAIT": "true"},
        Ack.REPLICATED_FLUSHED: {"WAIT": "true", "TANDEM_ACK": "flushed"},
    }


@pytest.mark.parametrize(
    ("ack", "wait", "message_wait", "default", "expected"),
    [
        (None, None, None, Ack.REPLICATED_FLUSHED, Ack.REPLICATED_FLUSHED),
        (None, None, False, Ack.REPLICATED, Ack.ASYNC),
        (None, True, False, Ack.ASYNC, Ack.REPLICATED),
        (None, True, None, Ack.REPLICATED_FLUSHED, Ack.REPLICATED_FLUSHED),
        (Ack.ASYNC, True, True, Ack.REPLICATED, Ack.ASYNC),
    ],
)
def test_what_is_said_more_closely_wins(
    ack: Ack | None,
    wait: bool | None,  # noqa: FBT001
    message_wait: bool | None,  # noqa: FBT001
    default: Ack,
    expected: Ack,
) -> None:
    assert chosen_ack(ack, wait=wait, message_wait=message_wait, default=default) is expected
