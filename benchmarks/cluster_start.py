"""How long the cluster of a test takes: from nothing to the first message that is acknowledged.

    .venv/bin/python -P -m benchmarks.cluster_start [--rounds 10] [--against CHECKOUT]

Each round is a process of its own that starts one cluster after the other, so the first of each
pays for what is imported, once. The time is from before the cluster to the answer of a send. CPU
seconds are those of all processes of such a round, clusters stopped. With `--against`, rounds of
this checkout and of another take turns, so that both meet the same machine.

`--serve` measures `tandem testing serve` instead: from the start of that process to its line that
the cluster is ready, the CPU seconds of all its processes until then, as `/proc` has them, and the
time from the end of its standard input to its own. Have byte code at hand: where it cannot be
written, `PYTHONPYCACHEPREFIX` says where it can, and the first round of each checkout writes it.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

KINDS: Final = ("node", "cluster", "fenced")

ROUND: Final = """
import json, sys, tempfile, time
from pathlib import Path
begun = time.perf_counter()
import tandem
from tandem.testing import running_cluster, running_fenced_cluster
start = {
    "node": lambda at: running_cluster(at, slaves_count=0),
    "cluster": running_cluster,
    "fenced": running_fenced_cluster,
}[sys.argv[1]]
seconds = []
with tempfile.TemporaryDirectory() as directory:
    for number in range(int(sys.argv[2])):
        place = Path(directory, str(number))
        place.mkdir()
        with start(place) as cluster:
            with tandem.BlockingProducer(cluster.name_servers, group="bench") as producer:
                producer.send(tandem.Message("bench", b"one"))
            seconds.append(time.perf_counter() - begun)
        begun = time.perf_counter()
print(json.dumps(seconds))
"""


def play_round(checkout: Path, kind: str, clusters: int) -> tuple[list[float], float]:
    """Seconds of each cluster, and CPU seconds of the whole round."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-P", "-c", ROUND, kind, str(clusters)],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), cpu


SERVE: Final = {
    "node": ("--classic", "--nodes", "1"),
    "cluster": ("--classic",),
    "fenced": (),
    "fenced, with a topic": ("--topic", "Orders"),
}


def cpu_of_tree(root: int) -> float:
    """CPU seconds of a process, of its descendants that live, and of those that were waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        # utime, stime, cutime, cstime: proc(5)
        ticks[pid] = sum(map(int, fields[11:15]))

    def is_below(pid: int) -> bool:
        while pid not in (root, 0):
            pid = parents.get(pid, 0)
        return pid == root

    return sum(count for pid, count in ticks.items() if is_below(pid)) / os.sysconf("SC_CLK_TCK")


def play_serve(checkout: Path, options: tuple[str, ...]) -> tuple[float, float, float]:
    """Seconds until a cluster is ready, CPU seconds until then, and seconds until it has ended."""
    program = "from tandem.cli import main; main()"
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program, "testing", "serve", *options],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert b'"ready"' in process.stdout.readline()
        ready = time.perf_counter()
        cpu = cpu_of_tree(process.pid)
        asked = time.perf_counter()
        process.stdin.close()
        process.wait()
    return ready - begun, cpu, time.perf_counter() - asked


def measure_serve(checkouts: list[Path], rounds: int) -> None:
    """Measure, and print a table of medians. Checkouts take turns."""
    seen: dict[tuple[str, Path], list[tuple[float, float, float]]] = {}
    for _ in range(rounds):
        for kind, options in SERVE.items():
            for checkout in checkouts:
                seen.setdefault((kind, checkout), []).append(play_serve(checkout, options))
    print("kind  checkout  ready s  CPU s  ended s  (medians; least and most CPU s)")
    for (kind, checkout), rows in seen.items():
        ready, cpu, ended = (statistics.median(column) for column in zip(*rows, strict=True))
        of_cpu = [row[1] for row in rows]
        spread = f"({min(of_cpu):.2f}-{max(of_cpu):.2f})"
        print(f"{kind}  {checkout}  {ready:.2f}  {cpu:.2f}  {ended:.2f}  {spread}")


def main() -> None:
    """Measure, and print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--against", type=Path, help="another checkout, measured in turns")
    parser.add_argument("--serve", action="store_true", help="measure `tandem testing serve`")
    options = parser.parse_args()
    checkouts = [ROOT, *([options.against.resolve()] if options.against else [])]
    if options.serve:
        measure_serve(checkouts, options.rounds)
        return
    seen: dict[tuple[Path, str], list[tuple[float, float, float, float]]] = {}
    for number in range(options.rounds):
        for kind in KINDS:
            for checkout in checkouts if number % 2 else reversed(checkouts):
                first, cpu = play_round(checkout, kind, 1)
                more, cpu_of_more = play_round(checkout, kind, 3)
                row = (first[0], cpu, statistics.median(more[1:]), (cpu_of_more - cpu) / 2)
                seen.setdefault((checkout, kind), []).append(row)
    print("checkout  kind  first s  first CPU s  next s  next CPU s  (medians; least and most s)")
    for (checkout, kind), rows in sorted(seen.items(), key=lambda entry: KINDS.index(entry[0][1])):
        middle = [statistics.median(column) for column in zip(*rows, strict=True)]
        figures = "  ".join(f"{value:.2f}" for value in middle)
        firsts, nexts = [row[0] for row in rows], [row[2] for row in rows]
        print(
            f"{checkout.name}  {kind}  {figures}  ({min(firsts):.2f}-{max(firsts):.2f},"
            f" {min(nexts):.2f}-{max(nexts):.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
