from tests.store.store_world import *


def test_smoke() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 60)
    put(store, a_batch(range(60, 75)))
    assert [number_of(m) for m in check_store(store)] == list(range(75))
    store.close()
    recover_and_check(disk)
