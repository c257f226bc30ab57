"""The bytes before a joint: equal logs have equal checksums, whatever files they are in."""

from ha.fenced.joint import checksum
from store import PutMessage
from tests.ha.world import FILE_SIZE_BYTES, World


async def test_a_checksum_is_of_all_bytes_between_two_offsets() -> None:
    world = World()
    with world.open_store("a") as store:
        store.become_master()
        for number in range(12):
            body = b"%d" % number * 3000
            store.puts.put_message(PutMessage("T", 0, body, b"", 1, bytes(8)))
        store.announce()
        end = store.max_physical_offset
        assert end > 2 * FILE_SIZE_BYTES
        whole = checksum(store, 0, end)
        assert whole == checksum(store, 0, end)
        assert len({whole, checksum(store, 0, end - 1), checksum(store, 1, end)}) == 3
        assert checksum(store, end, end) == checksum(store, 5, 5), "of nothing"
