"""What every stream has that can receive."""

import pytest

from store.machine.network import ReceivesSome


class Pieces(ReceivesSome):
    """Has these, and then the end."""

    def __init__(self, *pieces: bytes) -> None:
        self.left = list(pieces)

    async def receive_some(self, bytes_max: int) -> bytes:
        piece = self.left[0][:bytes_max] if self.left else b""
        self.left[:1] = [rest] if self.left and (rest := self.left[0][bytes_max:]) else []
        return piece


async def test_all_pieces_are_taken_up_to_the_end() -> None:
    stream, taken = Pieces(b"abcde", b"f"), list[bytes]()

    def take(data: bytes) -> bool:
        taken.append(data)
        return True

    assert await stream.receive_while(2, take) is False
    assert taken == [b"ab", b"cd", b"e", b"f"]


async def test_who_wants_no_more_is_given_no_more() -> None:
    stream = Pieces(b"ab", b"cd", b"ef")
    assert await stream.receive_while(9, lambda data: data != b"cd") is True
    assert stream.left == [b"ef"]


async def test_what_is_raised_ends_it() -> None:
    def take(data: bytes) -> bool:
        raise KeyError(data)

    stream = Pieces(b"ab", b"cd")
    with pytest.raises(KeyError):
        await stream.receive_while(9, take)
    assert stream.left == [b"cd"]
    with pytest.raises(NotImplementedError):
        await ReceivesSome().receive_while(9, take)
