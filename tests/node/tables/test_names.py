import pytest

from node.errors import RequestError
from node.tables.names import check_name
from tandem.wire.response_code import ResponseCode


@pytest.mark.parametrize("name", ["", "g", "g" * 255, "\u4e2d" * 85])
def test_a_name_of_255_bytes_is_taken(name: str) -> None:
    check_name("consumer group", name)


@pytest.mark.parametrize(("name", "size"), [("g" * 256, 256), ("\u4e2d" * 86, 258)])
def test_a_longer_one_is_refused(name: str, size: int) -> None:
    with pytest.raises(RequestError) as caught:
        check_name("consumer group", name)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert len(caught.value.remark) < 200
