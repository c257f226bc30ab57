import os
import signal

import pytest

from tandem.log.errors import UnreadableFileError, WorkerError
from tandem.log.workers import Workers, usable_cores


def double(number: int) -> int:
    return 2 * number


def refuse(number: int) -> int:
    raise UnreadableFileError(f"file {number}", OSError(5, "I/O error"))


def die(number: int) -> int:
    os._exit(number)


def test_with_one_job_the_work_is_done_here() -> None:
    done: list[int] = []
    with Workers(1) as workers:
        assert workers.map(double, [1, 2, 3], done.append) == [2, 4, 6]
    assert done == [1, 2, 3]


@pytest.mark.slow
def test_with_several_jobs_results_keep_their_order() -> None:
    done: list[int] = []
    with Workers(2) as workers:
        assert workers.map(double, [3, 1, 2], done.append) == [6, 2, 4]
        assert workers.map(double, [5], done.append, alone=True) == [10]
        with pytest.raises(UnreadableFileError) as caught:
            workers.map(refuse, [1, 1], done.append)
        assert caught.value.path == "file 1"
    assert sorted(done) == [1, 2, 3, 5]


@pytest.mark.slow
def test_a_process_that_dies_is_an_error_with_a_remedy() -> None:
    with Workers(2) as workers, pytest.raises(WorkerError, match="--jobs 1"):
        workers.map(die, [1, 1], lambda _: None)


def interrupts_are_blocked(_task: int) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.slow
def test_ctrl_c_is_for_the_calling_process_alone() -> None:
    with Workers(2) as workers:
        assert not interrupts_are_blocked(0)
        assert workers.map(interrupts_are_blocked, [1, 2], lambda _: None) == [True, True]


def test_there_is_a_core_to_run_on() -> None:
    assert usable_cores() >= 1
