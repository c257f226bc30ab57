import pytest

import node.remoting.client_memory
from node.remoting.client_memory import SMALL_BYTES, ClientMemory
from tandem.wire.message import Host

MIB = 1 << 20


class FakeConnection:
    def __init__(self, memory: ClientMemory, ip: str, last_active: float) -> None:
        self.peer = Host(ip, 1)
        self.last_active = last_active
        self.closed = False
        self._memory = memory

    def close(self) -> None:
        self.closed = True
        self._memory.note(self, 0)


class World:
    """Memory of 10 MiB, 6 for an address; every connection is older than the next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = node.remoting.client_memory
        monkeypatch.setattr(module, "KEPT_BYTES_MAX", 10 * MIB)
        monkeypatch.setattr(module, "KEPT_BYTES_PER_ADDRESS_MAX", 6 * MIB)
        self.memory = ClientMemory()
        self.connections: list[FakeConnection] = []

    def keep(self, ip: str, kept_bytes: int) -> FakeConnection:
        connection = FakeConnection(self.memory, ip, len(self.connections))
        self.connections.append(connection)
        self.memory.note(connection, kept_bytes)
        return connection

    @property
    def closed(self) -> list[int]:
        return [number for number, each in enumerate(self.connections) if each.closed]


def test_what_is_sent_or_whole_is_kept_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    connection = world.keep("a", 3 * MIB)
    world.memory.note(connection, 2 * MIB)
    assert world.memory.kept_bytes == 2 * MIB
    world.memory.note(connection, SMALL_BYTES - 1)
    world.memory.note(connection, 10)
    assert world.memory.kept_bytes == 0
    assert world.closed == []


def test_of_an_address_with_too_much_the_one_that_is_still_for_longest_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.keep("other", 2 * MIB)
    first = world.keep("a", 3 * MIB)
    world.keep("a", 2 * MIB)
    first.last_active = 50  # a slow one, but it goes on
    world.keep("a", 2 * MIB)
    assert world.closed == [2]


def test_of_all_the_one_that_is_still_for_longest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    for ip in "abcdef":
        world.keep(ip, 3 * MIB)
    assert world.closed == [0, 1, 2]
    assert world.memory.kept_bytes == 9 * MIB
