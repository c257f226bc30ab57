from node.simulated.disk import SimulatedDisk
from tests.store.store_world import COMMIT_LOG_BYTES, open_store, put_many


def test_an_open_store_says_where_its_log_is_and_how_many_records_are_in_it() -> None:
    store = open_store(SimulatedDisk())
    put_many(store, 60)
    end = store.max_physical_offset

    assert store.min_physical_offset == 0
    assert end == store.commit_log.max_offset > 2 * COMMIT_LOG_BYTES
    assert store.flushed_where == 0
    assert store.count_records(0, end) == store.count_records(0, 1 << 60) == 60
    assert store.count_records(store.last_record_offset, end) == 1
    with store.read_log(COMMIT_LOG_BYTES - 9, 100) as view:
        assert bytes(view) == store.commit_log.files.files[0].buffer[-9:]
    store.sync_log()
    assert store.flushed_where == end
