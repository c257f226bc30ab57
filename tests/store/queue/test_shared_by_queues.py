from node.simulated.disk import SimulatedDisk
from store.files.open_files import OpenFiles
from store.queue.shared_by_queues import SharedByQueues


def test_queues_that_share_know_of_one_another() -> None:
    shared: SharedByQueues[str] = SharedByQueues(OpenFiles(SimulatedDisk()))
    shared.awake.woke("a", 0)
    assert shared.awake.queues() == ["a"]
    assert not shared.open_files.count
