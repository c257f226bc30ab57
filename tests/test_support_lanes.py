"""What waits for processes has workers of its own, and what belongs together one worker."""

from itertools import chain
from types import SimpleNamespace
from typing import Any

from tests.support.lanes import TwoLanes, group_of, put_in_order, waits

SPARK = [
    f"tests/tandem/spark/{name}.py::test_it"
    for name in ("audit/test_job", "commitlog/test_source", "test_session")
]
DRILLS = [f"tests/faults/test_drill.py::test_{number}" for number in range(4)]
QUICK = [f"tests/tandem/wire/test_crc.py::test_{number}" for number in range(3)]
PLAIN = [f"tests/sim/test_seeds.py::test_{number}" for number in range(12)]


class Worker:
    """A worker of xdist; it keeps what it is sent."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.sent: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def play(tests: list[str], level: str = "not long") -> list[list[str]]:
    """Let four workers take their turns; return what each has run."""
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["4*popen"],
        option=SimpleNamespace(loadscopereorder=False, markexpr=level),
    )
    lanes = TwoLanes(config)
    workers = [Worker(number) for number in range(4)]
    for worker in workers:
        lanes.add_node(worker)
        lanes.add_node_collection(worker, tests)
    lanes.schedule()
    done = [0] * 4
    while any(count < len(worker.sent) for count, worker in zip(done, workers, strict=True)):
        for number, worker in enumerate(workers):
            if done[number] < len(worker.sent):
                lanes.mark_test_complete(worker, worker.sent[done[number]])
                done[number] += 1
    return [[tests[index] for index in worker.sent] for worker in workers]


def test_a_group_is_what_its_modules_name_and_waiting_what_they_are_marked_with() -> None:
    assert {group_of(test.partition("::")[0]) for test in SPARK} == {"spark"}
    assert group_of("tests/faults/test_drill.py") == ""
    assert waits("tests/faults/test_drill.py")
    assert waits("tests/tandem/spark/audit/test_job.py")
    assert not waits("tests/tandem/wire/test_crc.py")


def test_half_of_the_workers_begin_with_what_waits_and_everybody_helps_in_the_end() -> None:
    tests = [*SPARK, *DRILLS, *QUICK, *PLAIN]
    ran = play(tests)
    assert sorted(chain.from_iterable(ran)) == sorted(tests)
    assert [worker[0] for worker in ran] == [PLAIN[-1], PLAIN[-2], SPARK[0], DRILLS[0]]
    assert ran[2][: len(SPARK)] == SPARK
    assert all({*QUICK, *PLAIN} & set(worker) for worker in ran)
    assert [worker for worker in ran if set(QUICK) <= set(worker)]


def test_a_module_of_quick_tests_is_handed_out_as_a_whole() -> None:
    ran = play([*PLAIN, *QUICK])
    assert ran[0][: len(QUICK)] == QUICK
    assert ran[1][0] == PLAIN[-1]


def test_at_the_quick_level_each_module_is_handed_out_as_a_whole() -> None:
    ran = play([*PLAIN, *QUICK], "not long and not thorough")
    assert sorted(map(len, ran)) == [0, 0, len(QUICK), len(PLAIN)]


def test_what_waits_comes_first_and_groups_before_all() -> None:
    items: Any = [SimpleNamespace(nodeid=test) for test in (*PLAIN, *DRILLS, *SPARK)]
    put_in_order(items)
    assert [item.nodeid for item in items] == [*SPARK, *DRILLS, *PLAIN]
