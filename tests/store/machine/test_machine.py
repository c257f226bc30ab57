from store.machine.machine import this_machine


def test_this_machine_has_a_boot_id_that_stays_and_a_clock_that_goes_on() -> None:
    machine = this_machine()
    assert len(machine.boot_id) == 36
    assert machine.boot_id == this_machine().boot_id
    before = machine.boottime()
    assert machine.boottime() >= before
