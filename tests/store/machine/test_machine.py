import pytest

from store.machine import kept_threads
from store.machine.machine import THREADS, this_machine
from store.machine.real_disk import CALLS_AT_ONCE


def test_this_machine_has_a_boot_id_that_stays_and_a_clock_that_goes_on() -> None:
    machine = this_machine()
    assert len(machine.boot_id) == 36
    assert machine.boot_id == this_machine().boot_id
    before = machine.boottime()
    assert machine.boottime() >= before


def test_the_threads_of_a_node_are_there_before_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_threads, "_idle", [])
    this_machine()
    assert len(kept_threads._idle) == THREADS > CALLS_AT_ONCE
    this_machine()
    assert len(kept_threads._idle) == THREADS
