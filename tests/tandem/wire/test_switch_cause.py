import msgspec
import pytest

from tandem.wire.group_state import GroupState, decode_state, encode_record
from tandem.wire.switch_cause import SwitchCause

STATE = GroupState(epoch=3, master="a", isr={"a": "a1"}, min_isr=2, reason="first")


@pytest.mark.parametrize("cause", [*SwitchCause, "of-a-newer-version"])
def test_a_cause_travels_in_the_record_of_a_group(cause: str) -> None:
    state = msgspec.structs.replace(STATE, cause=cause, has_stepped_down=True)
    assert decode_state(encode_record(state)) == state


def test_a_record_of_an_older_version_has_none() -> None:
    older = b'{"epoch":3,"master":"a","isr":{"a":"a1"},"min_isr":2,"reason":"first"}'
    assert decode_state(older) == STATE
    assert (STATE.cause, STATE.has_stepped_down) == ("", False)
