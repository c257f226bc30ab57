"""Many sockets with one call: nobody gets what is another one's, and nothing is waited for."""

from __future__ import annotations

import errno
import socket
import struct
from typing import TYPE_CHECKING, Final

import pytest

from store.machine.many_sockets import (
    EACH_BYTES_MAX,
    END,
    NO_SOCKET,
    SOCKETS_MAX,
    ManySockets,
    many_sockets,
)
from tandem.wire import native

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")

COUNT: Final = 5


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Connections, ours first."""
    made: list[tuple[socket.socket, socket.socket]] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(COUNT):
            theirs = socket.create_connection(listener.getsockname())
            ours, _ = listener.accept()
            ours.setblocking(False)  # noqa: FBT003
            made.append((ours, theirs))
    yield made
    for pair in made:
        for one in pair:
            one.close()


def many() -> ManySockets:
    found = many_sockets()
    assert found is not None
    return found


Pairs = list[tuple[socket.socket, socket.socket]]


def fds(pairs: Pairs) -> list[int]:
    return [ours.fileno() for ours, _ in pairs]


def wait_for(sock: socket.socket, size: int) -> None:
    """Wait until so much has come."""
    sock.setblocking(True)  # noqa: FBT003
    assert len(sock.recv(size, socket.MSG_PEEK | socket.MSG_WAITALL)) == size
    sock.setblocking(False)  # noqa: FBT003


def test_each_has_what_came_over_it(pairs: Pairs) -> None:
    said = [b"first", b"", b"third" * 9, b"4", b""]
    for (ours, theirs), words in zip(pairs, said, strict=True):
        theirs.sendall(words)
        wait_for(ours, len(words))
    came, broken = many().receive(fds(pairs))
    assert [came.rest(number) for number in range(COUNT)] == said
    assert broken == []
    again, _ = many().receive(fds(pairs))
    assert again.data == b""
    assert again.is_used_up


def test_of_much_the_rest_comes_with_the_next_call(pairs: Pairs) -> None:
    words = bytes(range(256)) * (EACH_BYTES_MAX // 256) + b"rest"
    (ours, theirs), (_, other) = pairs[:2]
    theirs.sendall(words)
    other.sendall(b"short")
    wait_for(ours, len(words))
    wait_for(pairs[1][0], 5)
    came, _ = many().receive(fds(pairs[:2]))
    assert [came.rest(0), came.rest(1)] == [words[:EACH_BYTES_MAX], b"short"]
    came, _ = many().receive(fds(pairs[:2]))
    assert [came.rest(0), came.rest(1)] == [b"rest", b""]


def test_there_is_room_for_as_much_of_all_as_one_call_takes(pairs: Pairs) -> None:
    ours, theirs = pairs[0]
    words = bytes(EACH_BYTES_MAX)
    theirs.sendall(words)
    wait_for(ours, len(words))
    came, _ = many().receive([ours.fileno()] * SOCKETS_MAX)
    assert came.data == words
    with pytest.raises(AssertionError):
        many().receive([ours.fileno()] * (SOCKETS_MAX + 1))


def test_which_are_no_more_is_said_and_why_and_the_others_have_theirs(pairs: Pairs) -> None:
    (ended, end), (reset, breaks), (sound, theirs), (closed, _) = pairs[:4]
    end.close()
    breaks.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    breaks.close()
    theirs.sendall(b"here")
    wait_for(sound, 4)
    numbers = [ended.fileno(), reset.fileno(), sound.fileno(), closed.fileno()]
    closed.close()
    came, broken = many().receive(numbers)
    assert came.rest(2) == b"here"
    assert came.data == b"here"
    assert broken == [(0, END), (1, errno.ECONNRESET), (3, errno.EBADF)]


def test_each_gets_its_own_bytes(pairs: Pairs) -> None:
    assert many().send(fds(pairs), b"abbcccde", [1, 3, 6, 7, 8]) is None
    got = [theirs.recv(100) for _, theirs in pairs]
    assert got == [b"a", b"bb", b"ccc", b"d", b"e"]
    assert many().send([], b"", []) is None


def test_what_is_no_socket_any_more_or_breaks_takes_nothing_and_the_others_get_theirs(
    pairs: Pairs,
) -> None:
    numbers = fds(pairs)
    pairs[1][0].close()
    breaks = pairs[2][1]
    breaks.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    breaks.close()
    numbers[3] = NO_SOCKET
    assert many().send(numbers, b"abbcccde", [1, 3, 6, 7, 8]) == [1, 0, 0, 0, 1]
    assert [pairs[n][1].recv(100) for n in (0, 4)] == [b"a", b"e"]
    pairs[3][1].setblocking(False)  # noqa: FBT003
    with pytest.raises(BlockingIOError):
        pairs[3][1].recv(1)


def test_how_much_a_peer_takes_that_does_not_read_is_said(pairs: Pairs) -> None:
    words = bytes(range(256)) * (1 << 16)
    ours, theirs = pairs[0]
    taken = many().send(
        [ours.fileno(), pairs[1][0].fileno()], words + b"x", [len(words), len(words) + 1]
    )
    assert taken is not None
    assert 0 < taken[0] < len(words)
    assert taken[1] == 1
    assert theirs.recv(taken[0], socket.MSG_WAITALL) == words[: taken[0]]


def test_no_bytes_are_taken_from_behind_the_data(pairs: Pairs) -> None:
    with pytest.raises(AssertionError):
        many().send(fds(pairs[:1]), b"ab", [3])
    with pytest.raises(AssertionError):
        many().send(fds(pairs[:2]), b"ab", [2])


def test_without_the_loops_in_c_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "loops", None)
    assert many_sockets() is None
