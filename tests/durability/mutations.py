"""Syncs left out of the real disk and of the coordinator's journal, one at a time.

No simulation sees them: there, another disk is in their place. Each has to fail one of the
`OPERATIONS`, named here.
"""

from typing import Final

from ha.fenced.epoch_file import EpochFile
from node.tables.topic_config_table import TopicConfigTable
from store.machine import drafts, many_syncs, real_disk, real_file
from store.machine.real_disk import RealDisk
from store.machine.real_file import RealFile
from store.queue.consume_queue_store import ConsumeQueueStore
from store.services.flush_service import FlushService
from tandem import durable_file
from tandem.cli import cluster_init
from tandem.client.local_offsets import LocalOffsets
from tandem.coordinator import journal
from tandem.coordinator.journal import DiskFile, Journal
from tandem.coordinator.server import CoordinatorServer
from tests.support.source_mutation import SourceMutation

NOTHING: Final = "None"

MUTATIONS: Final[dict[str, tuple[SourceMutation, str]]] = {
    "a file is replaced without a sync of its bytes": (
        SourceMutation(drafts.write_durably, "os.fdatasync(file.fileno())", NOTHING),
        "replace_a_file",
    ),
    "a file is replaced by what was written ahead without a sync": (
        SourceMutation(drafts.write_durably, "os.fdatasync(file.fileno())", NOTHING),
        "replace_a_file_ahead",
    ),
    "a file is replaced without a sync of its directory": (
        SourceMutation(RealDisk.replace, "sync_directory(directory)", NOTHING),
        "replace_a_file",
    ),
    "a directory is made without a sync of the one it is in": (
        SourceMutation(real_file.make_directories, "sync_directory(parent)", NOTHING),
        "replace_a_file",
    ),
    "no directory is ever synced": (
        SourceMutation(real_file.sync_directory, "os.fsync(descriptor)", NOTHING),
        "begin_an_epoch",
    ),
    "the package replaces a file without a sync of its bytes": (
        SourceMutation(durable_file.write_draft, "os.fsync(file.fileno())", NOTHING),
        "replace_a_file_of_the_package",
    ),
    "the package replaces a file without a sync of its directory": (
        SourceMutation(durable_file.move_durably, "sync_directory(target.parent)", NOTHING),
        "replace_a_file_of_the_package",
    ),
    "the package makes a directory without a sync of the one it is in": (
        SourceMutation(durable_file.make_directory, "sync_directory(path.parent)", NOTHING),
        "replace_a_file_of_the_package",
    ),
    "the offsets of a broadcasting consumer are written without a sync": (
        SourceMutation(
            LocalOffsets.save, "write_durably(self._path, data)", "self._path.write_bytes(data)"
        ),
        "store_offsets_of_a_broadcasting_consumer",
    ),
    "a cluster file is written without a sync of its bytes": (
        SourceMutation(cluster_init._write, "sync_file(draft)", NOTHING),
        "write_a_cluster_file",
    ),
    "a file is created without a sync of its directory": (
        SourceMutation(real_file.named, "sync_directory(os.path.dirname(path))", NOTHING),
        "create_a_file",
    ),
    "a file is created beforehand without a sync of its directory": (
        SourceMutation(
            RealDisk.create_in_background,
            "await run_sync(sync_directory, os.path.dirname(path), limiter=self._limiter)",
            NOTHING,
        ),
        "create_a_file_beforehand",
    ),
    "a file is removed without a sync of its directory": (
        SourceMutation(RealDisk.remove, "sync_directory(os.path.dirname(path))", NOTHING),
        "remove_a_file",
    ),
    "a directory is removed without a sync of the one it was in": (
        SourceMutation(RealDisk.remove_directory, "sync_directory(os.path.dirname(path))", NOTHING),
        "remove_a_file",
    ),
    "a file is moved without a sync of where it is": (
        SourceMutation(RealDisk.rename, "sync_directory(os.path.dirname(new_path))", NOTHING),
        "move_a_file",
    ),
    "a file is moved without a sync of where it was": (
        SourceMutation(RealDisk.rename, "sync_directory(os.path.dirname(path))", NOTHING),
        "move_a_file",
    ),
    "a file is not synced when it is closed": (
        SourceMutation(RealFile.sync, "os.fdatasync(self._descriptor)", NOTHING),
        "create_a_file",
    ),
    "a file is not synced in the background": (
        SourceMutation(real_disk._sync_bytes, "os.fdatasync(descriptor)", NOTHING),
        "answer_a_put",
    ),
    "the name of a file of a queue is not synced with it": (
        SourceMutation(RealFile.sync, "self._names.sync([self.path])", NOTHING),
        "sync_a_file_of_a_queue",
    ),
    "the name of a file of a queue is not synced in the background": (
        SourceMutation(real_disk._sync_all, "names.sync(grown)", NOTHING),
        "sync_files_of_queues_together",
    ),
    "the directories of a file of a queue are not synced": (
        SourceMutation(real_file.make_growing_file, "names.made_in(parent)", NOTHING),
        "sync_a_file_of_a_queue",
    ),
    "names that an earlier process has left are not synced": (
        SourceMutation(RealDisk.sync_names, "at_once(sync_directory, ", "list("),
        "sync_names_of_an_earlier_process",
    ),
    "a few files that are synced together are not synced": (
        SourceMutation(many_syncs.at_once, "sync(thing)\n        return", "pass\n        return"),
        "sync_files_of_queues_together",
    ),
    "a closed file is not synced": (
        SourceMutation(real_disk._sync_closed, "_sync_bytes((path, descriptor))", NOTHING),
        "sync_closed_files",
    ),
    "the names of closed files are not synced": (
        SourceMutation(RealDisk.sync_closed_now, "self._names.sync(paths)", NOTHING),
        "sync_closed_files",
    ),
    "a tree that is not synced counts as synced": (
        SourceMutation(ConsumeQueueStore.sync_all, "self._disk.sync_tree_now(self._root)", "True"),
        "stop_with_many_queues",
    ),
    "puts are answered before the sync": (
        SourceMutation(
            FlushService._group_commit,
            "await self._sync_commit_log(0)\n        self._answer_flushed()",
            "self._commit_log.files.dirty_files(0)[-1].flushed_position = 1 << 40\n"
            "        self._answer_flushed()",
        ),
        "answer_a_put",
    ),
    "the list of epochs has no second copy": (
        SourceMutation(EpochFile.replace, "self._put(self._backup, content)", NOTHING),
        "begin_an_epoch",
    ),
    "a topic of a large table shows before it is written": (
        SourceMutation(TopicConfigTable.update, "self._pending.write()", NOTHING),
        "create_a_topic",
    ),
    "a change of the coordinator is appended without a sync": (
        SourceMutation(DiskFile.write, "os.fdatasync(self._fd)", NOTHING),
        "journal_a_change",
    ),
    "what was read of the journal at a start is not written anew": (
        SourceMutation(
            Journal.restore,
            "self._file.replace(content, ",
            "if not records:\n        self._file.replace(content, ",
        ),
        "mend_a_torn_journal",
    ),
    "the journal's image is not synced": (
        SourceMutation(DiskFile.replace, "os.fsync(fd)", NOTHING),
        "journal_a_change",
    ),
    "the journal is replaced without a sync of its directory": (
        SourceMutation(DiskFile.replace, "os.fsync(self._directory_fd)", NOTHING),
        "journal_a_change",
    ),
    "the journal's directory is made without a sync of the one it is in": (
        SourceMutation(journal._make_directories, "os.fsync(parent_fd)", NOTHING),
        "journal_a_change",
    ),
    "the coordinator answers before its journal is written": (
        SourceMutation(CoordinatorServer._answer, "await self._wait_synced()", "True"),
        "answer_a_transaction",
    ),
}
"""By what they do: the mistake, and who has to notice."""
