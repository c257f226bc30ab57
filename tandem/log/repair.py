"""Plans the repair of a store, and has it carried out.

The plan is made from what `verify` finds, and writes nothing:

    the log        cut where it is torn; where it is corrupt only on demand, and with the loss named
    queues         those with findings are built anew from the log
    index          the same; all of it, if its settings are known

What another directory of the same log has whole is taken from there first: see `healing`.

The repair itself is done by the store's own recovery: `python -P -m tandem_server store repair`,
or `store heal`, gets the plan as JSON. So the rules for a valid end exist once, and the library
still imports nothing of the server.
"""

import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from tandem.cluster.spec import SERVER, node_environment
from tandem.log.errors import BadRequestError, NoRepair, RepairError, RequestFault
from tandem.log.files import open_file
from tandem.log.findings import Finding
from tandem.log.healing import HealPlan
from tandem.log.index_file import DEFAULT_SETTINGS, IndexSettings, find_settings
from tandem.log.log_scan import LogWindow, adds_up, scan_log
from tandem.log.store_directory import StoreDirectory, usual_size
from tandem.log.verify import VerifyReport, verify_store
from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL
from tandem.wire.store_layout import QUEUE_KINDS, QueueKind
from tandem.wire.untrusted import UnreadableError, decode_json

LOG_DAMAGE: Final = frozenset(
    {"record-corrupt", "record-crc", "log-end-damaged", "log-file-missing"}
)
"""What a recovery cannot go over: it would lose what follows."""

QUEUE_FINDINGS: Final = frozenset(
    {
        "queue-file-length",
        "queue-file-missing",
        "queue-gap",
        "unit-missing",
        "unit-wrong",
        "unit-without-record",
        "unit-order",
        "filler-misplaced",
        "ext-unit",
        "unsynced",
    }
)

_QUEUE_BYTES: Final[dict[QueueKind, int]] = {
    "consumequeue": 6_000_000,
    "batchconsumequeue": 13_800_000,
}
_EXT_BYTES: Final = 50_331_648
_COMMAND: Final = [*SERVER, "store"]

_Result = TypeVar("_Result", bound=msgspec.Struct)


class RepairPlan(msgspec.Struct, frozen=True):
    """What a repair would do. `steps` are for people, `request` is for the store.

    `refusal` says why it will not be done, empty if it can be, and `cause` is its kind. `cut_at`
    is -1 if the log is only cut where it is torn; `lost_count` is how many sound records a cut
    costs.
    """

    report: VerifyReport
    steps: tuple[str, ...]
    refusal: str
    cause: NoRepair | None
    cut_at: int
    lost_count: int
    request: dict[str, Any]

    @property
    def is_needless(self) -> bool:
        """Whether there is nothing to do."""
        return not self.steps and self.cause is None


class RepairResult(msgspec.Struct, frozen=True):
    """What was done, as the store says; see `store.repair.RepairResult`."""

    log_start: int
    log_end: int
    index_end: int
    kept: tuple[str, ...]
    rebuilt: tuple[str, ...]
    restored: tuple[str, ...]


class HealResult(msgspec.Struct, frozen=True):
    """What was healed, as the store says; see `store.log_from_copy.HealResult`."""

    healed_bytes: int
    healed: tuple[str, ...]
    kept: tuple[str, ...]


def plan_repair(
    store: StoreDirectory,
    *,
    cut_at: int | None = None,
    accept_loss: bool = False,
    jobs: int = 1,
    index_settings: IndexSettings | None = None,
    message_delay_level: str = MESSAGE_DELAY_LEVEL,
    commit_log_directories: Sequence[str | Path] = (),
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> RepairPlan:
    """Verify the store and decide what a repair has to do.

    Raises:
        BadRequestError: the directory is only a log, or `cut_at` is no place to cut at.
        UnreadableFileError, WorkerError, ValueError: see `verify_store`.
    """
    if Path(store.path).name == "commitlog" or store.log_file_bytes == 0:
        text = f"{store.path}: repair needs a store root with a commit log in it"
        raise BadRequestError(text, RequestFault.NO_LOG, str(store.path))
    report = verify_store(
        store,
        jobs=jobs,
        index_settings=index_settings,
        message_delay_level=message_delay_level,
        on_progress=on_progress,
    )
    planner = _Planner(store, report, find_settings(store.index_files, index_settings))
    planner.given_settings = index_settings
    planner.directories = [str(directory) for directory in commit_log_directories]
    planner.message_delay_level = message_delay_level
    return planner.plan(cut_at, accept_loss=accept_loss)


def write_repair(plan: RepairPlan, *, now: datetime | None = None) -> RepairResult:
    """Carry out a plan in a process of its own. Removed files go to `repair-<time>/`.

    Raises:
        RepairError: the plan is a refusal, or the store refused; the text says why.
    """
    if plan.cause is not None:
        raise RepairError(plan.refusal, plan.cause)
    return _carried_out("repair", plan.request, now, RepairResult)


def write_healing(plan: HealPlan, *, now: datetime | None = None) -> HealResult:
    """Carry out a healing in a process of its own. Replaced bytes go to `repair-<time>/`.

    Raises:
        RepairError: the plan is a refusal, or the store refused; the text says why.
    """
    if plan.cause is not None:
        raise RepairError(plan.refusal, plan.cause)
    return _carried_out("heal", plan.request, now, HealResult)


def _carried_out(
    command: str, request: dict[str, Any], now: datetime | None, kind: type[_Result]
) -> _Result:
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S%f")[:-3]
    side = f"{request['directory']}/repair-{stamp}"
    done = subprocess.run(
        [*_COMMAND, command],
        env=node_environment(),
        input=msgspec.json.encode({**request, "side_directory": side}),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        text = words[-1] if words else f"the {command} ended with {done.returncode}"
        raise RepairError(text, NoRepair.STORE, 2 if done.returncode == 2 else 1)
    try:
        return decode_json(done.stdout, kind)
    except UnreadableError as error:
        text = f"what the {command} answered cannot be read ({error})"
        raise RepairError(text, NoRepair.STORE) from error


class _Planner:
    def __init__(
        self, store: StoreDirectory, report: VerifyReport, settings: IndexSettings | None
    ) -> None:
        self._store = store
        self._report = report
        self._settings = settings
        self._steps: list[str] = []
        self.given_settings: IndexSettings | None = None
        self.directories: list[str] = []
        self.message_delay_level = MESSAGE_DELAY_LEVEL

    def plan(self, cut_at: int | None, *, accept_loss: bool) -> RepairPlan:
        needed = self._needed_cut()
        end = cut_at if cut_at is not None else needed
        lost = 0
        if end is not None:
            if cut_at is not None:
                self._check_cut(cut_at, needed)
            lost = self._count_behind(end)
            self._steps.append(f"cut the log at {end}: {_messages(lost)} after it are lost")
            for finding in self._of(frozenset({"log-end-damaged"})):
                self._steps.append(f"give up what is gone already: {finding.what}")
        cause, refusal = self._refusal(
            end, lost, is_accepted=cut_at is not None and accept_loss
        ) or (None, "")
        self._plan_tail()
        set_aside = self._queues_to_rebuild()
        for finding in self._of(frozenset({"checkpoint-length"})):
            self._steps.append(f"make a new checkpoint: the one there {finding.what}")
            set_aside.append("checkpoint")
        with_index = self._plan_index(set_aside)
        if self._store.has_abort:
            self._steps.append("recover the store from a hard stop, and mark it as closed cleanly")
        return RepairPlan(
            report=self._report,
            steps=tuple(self._steps),
            refusal=refusal,
            cause=cause,
            cut_at=-1 if end is None else end,
            lost_count=lost,
            request=self._request(end, set_aside, with_index=with_index),
        )

    def _of(self, kinds: frozenset[str]) -> list[Finding]:
        return [finding for finding in self._report.findings if finding.kind in kinds]

    # -- the log ---------------------------------------------------------------------------------

    def _needed_cut(self) -> int | None:
        """Where the log has to end if what is corrupt is to go; None if nothing is."""
        return min((finding.offset for finding in self._of(LOG_DAMAGE)), default=None)

    def _check_cut(self, cut_at: int, needed: int | None) -> None:
        path = self._store.path
        if needed is not None and cut_at > needed:
            raise BadRequestError(
                f"{path}: the log is corrupt at offset {needed}; cut it there or before",
                RequestFault.CUT_AFTER_DAMAGE,
                path,
                needed,
            )
        if cut_at in (needed, self._report.log_end):
            return
        file = next((f for f in self._store.commit_log if f.offset <= cut_at < f.end_offset), None)
        if file is not None:
            with open_file(file.path) as descriptor:
                if cut_at == file.offset or adds_up(descriptor, file, cut_at - file.offset):
                    return
        text = f"{path}: no record of the log starts at offset {cut_at}"
        raise BadRequestError(text, RequestFault.CUT_IN_RECORD, path, cut_at)

    def _count_behind(self, offset: int) -> int:
        windows = (w for w in scan_log(self._store.commit_log, offset) if isinstance(w, LogWindow))
        return sum(int((w.columns.physical_offset >= offset).sum()) for w in windows)

    def _refusal(
        self, end: int | None, lost: int, *, is_accepted: bool
    ) -> tuple[NoRepair, str] | None:
        if self._store.is_live:
            text = f"{self._store.path} is open in a running node; stop the node first"
            return NoRepair.IN_USE, text
        lengths = self._of(frozenset({"log-file-length", "log-file-too-long"}))
        if lengths:
            return NoRepair.FILE_LENGTH, (
                f"{lengths[0].file}: {lengths[0].what}; restore it from another node, or move it"
                " out of the store if nothing in it is wanted"
            )
        if end is None or is_accepted:
            return None
        what = "is corrupt at" if self._needed_cut() is not None else "is to be cut at"
        return NoRepair.LOSS, (
            f"{self._store.path}: the log {what} offset {end}. Restore the file from another node"
            f" of the group; or lose {_messages(lost)} from there on: --cut-at {end} --accept-loss"
        )

    def _plan_tail(self) -> None:
        for finding in self._of(frozenset({"record-property-crc"})):
            self._steps.append(
                f"leave {_messages(finding.count)} as they are: {finding.what}; to be rid of them,"
                f" --cut-at {finding.offset} --accept-loss"
            )
        for finding in self._of(frozenset({"block-changed"})):
            self._steps.append(
                f"leave {finding.file} as it is: {finding.what}; --from OTHER_DIRECTORY heals it"
            )
        for finding in self._of(frozenset({"torn-tail", "leftover"})):
            self._steps.append(
                f"cut off what follows the log, and keep it in torn/: {finding.what}"
            )
        for finding in self._of(frozenset({"queues-ahead", "index-ahead"})):
            self._steps.append(f"remove what leads nowhere: {finding.what}")

    # -- queues and index ------------------------------------------------------------------------

    def _queues_to_rebuild(self) -> list[str]:
        found = self._of(QUEUE_FINDINGS)
        names = []
        for queue in self._store.queues:
            count = sum(
                f.count
                for f in found
                if f.file.startswith(f"{queue.path}/") or f.file == queue.path
            )
            if not count:
                continue
            name = f"{queue.kind}/{queue.topic}/{queue.queue_id}"
            self._steps.append(f"build the queue {name} anew: {count} findings")
            names.append(name)
            if queue.ext_files:
                names.append(f"consumequeue_ext/{queue.topic}/{queue.queue_id}")
        if self._of(frozenset({"queues-absent"})):
            self._steps.append("build all queues anew: there are none")
        for finding in self._of(frozenset({"queue-missing", "queue-unknown", "dispatch-behind"})):
            self._steps.append(f"enter messages in their queue: {finding.file}: {finding.what}")
        return names

    def _plan_index(self, set_aside: list[str]) -> bool:
        """Decide about the index; return whether the store is to have one."""
        found = [f for f in self._report.findings if f.kind.startswith("index-")]
        folder = f"{self._store.path}/index"
        unsynced = [f for f in self._of(frozenset({"unsynced"})) if f.file.startswith(folder)]
        damaged = [
            f for f in found if f.kind not in ("index-absent", "index-behind", "index-ahead")
        ]
        if self._settings is None and self.given_settings is None:
            if damaged:
                self._steps.append(
                    "leave the index alone: name --max-hash-slot-num and --max-index-num to have it"
                    " built anew"
                )
            return False
        if (damaged or unsynced) and self._store.index_files:
            count = sum(finding.count for finding in (*damaged, *unsynced))
            self._steps.append(f"build the index anew: {count} findings")
            set_aside.append("index")
        elif not self._store.index_files:
            self._steps.append("build an index")
        elif any(finding.kind == "index-behind" for finding in found):
            self._steps.append("enter the newest messages in the index")
        return True

    def _request(
        self, end: int | None, set_aside: Sequence[str], *, with_index: bool
    ) -> dict[str, Any]:
        store = self._store
        settings = self.given_settings or self._settings or DEFAULT_SETTINGS
        sizes = {kind: store.queue_file_bytes(kind) or _QUEUE_BYTES[kind] for kind in QUEUE_KINDS}
        ext = usual_size(file for queue in store.queues for file in queue.ext_files)
        return {
            "directory": str(Path(store.path).resolve()),
            "set_aside": list(set_aside),
            "cut_at": -1 if end is None else end,
            "batch_topics": sorted({queue.topic for queue in store.queues if queue.is_batch}),
            "store_path_commit_log": [str(Path(path).resolve()) for path in self.directories],
            "mapped_file_size_commit_log_bytes": store.log_file_bytes,
            "mapped_file_size_consume_queue_bytes": sizes["consumequeue"],
            "mapper_file_size_batch_consume_queue_bytes": sizes["batchconsumequeue"],
            "enable_consume_queue_ext": ext > 0,
            "mapped_file_size_consume_queue_ext_bytes": ext or _EXT_BYTES,
            "message_index_enable": with_index,
            "max_hash_slot_num": settings.hash_slot_num,
            "max_index_num": settings.index_num,
            "message_delay_level": self.message_delay_level,
        }


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"
