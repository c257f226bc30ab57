"""The node's command line.

    python -P -m node --config cluster.yaml --name broker-a-0 [--supervised] [--log-file FILE]
    python -P -m node check --config cluster.yaml [--name broker-a-0] [--format words|findings|json]
    python -P -m node shadow

In an installed package it is `python -P -m tandem_server node ...`, which works here, too.

The first runs one node until SIGTERM or SIGINT. With `--supervised`, standard input is a lifeline:
the node stops when it ends, so that no node survives the process that started it; and standard
output gets one line, `READY {"name":"broker-a-0"}`, once the node is recovered and listening. It
logs to standard error, or to `--log-file`, which it rotates: see `tandem.process_log`.

The second says what a start of the nodes of this machine, or of those that are named, would refuse,
and ends with the status of the first that would be; see `node.start_check`. `findings` are lines of
JSON. `json` is the checked configuration and no check, for programs that are not written in Python;
others call `tandem.cluster.read_spec`.

The third is what `tandem shadow` starts; see `node.shadow.command`.

Exit status: 0 stopped as asked, 2 bad configuration or command line, 3 a port is busy, 4 the store
cannot be opened, 1 anything else. For 2 to 4 there is one message on standard error, and no
traceback; where the log is JSON, it is the log's last line.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from node.errors import NodeError
from node.metrics.exporters import exporter_of
from node.run import run_node
from node.security.audit import AUDIT_LOGGER
from node.shadow.command import NotAConfigError, follow, read_config
from node.start_check import Finding, check_start, files_wanted
from store import StoreError
from store.machine.errors import AddressInUseError, NetworkError
from store.machine.machine import Machine, this_machine
from tandem.cluster.owners import of_other_machines
from tandem.cluster.spec import ClusterSpec, spec_of
from tandem.cluster_file.choices import LogFormat
from tandem.cluster_file.cluster_config import ClusterConfig, NodeConfig
from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.load import load_config
from tandem.cluster_file.secret_file import SecretNotMadeError
from tandem.cluster_file.settings import LoggingSettings
from tandem.coordinator.client import EtcdClient, connect
from tandem.coordinator.interface import CoordinatorRefusedError
from tandem.plain_text import plain_lines
from tandem.process_log import REPEATS_SECONDS, ProcessLog, start_audit_log, start_log

_log = logging.getLogger(__name__)

EXIT_CONFIG: Final = 2
EXIT_BUSY: Final = 3
EXIT_STORE: Final = 4

COLLECTOR_THRESHOLDS: Final = (1_000, 10, 100)
"""New objects, young collections and middle ones after which Python looks for garbage. Its own:
700, 10, 10. The young ones take under a millisecond, the middle ones a few."""

LIFELINE_FD: Final = 0


def main(
    arguments: Sequence[str] | None = None, machine: Callable[[], Machine] = this_machine
) -> int:
    """Run the command line; return the exit status."""
    if not __debug__:
        return _fail(1, "a node checks itself with assertions; run Python without -O")
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] in (["check"], ["shadow"]):
        return _check(arguments[1:], machine) if arguments[0] == "check" else _shadow(machine())
    options = _parse_run(arguments)
    try:
        config = load_config(options.config).with_secret().node(options.name)
    except SecretNotMadeError as error:
        return _fail(EXIT_STORE, str(error))
    except ClusterConfigError as error:
        return _fail(EXIT_CONFIG, str(error))
    try:
        log = start_log(config.node.name, config.cluster.logging, options.log_file)
    except OSError as error:
        return _fail(EXIT_CONFIG, _unwritable_log(options.log_file, error))
    return _run_to_the_end(config, machine(), log, is_supervised=options.supervised)


def _shadow(machine: Machine) -> int:
    """Run a shadow until it is asked to stop; return the exit status."""
    try:
        with open(LIFELINE_FD, "rb", buffering=0, closefd=False) as source:
            config = read_config(source)
    except NotAConfigError as error:
        return _fail(EXIT_CONFIG, str(error))
    start_log("shadow", LoggingSettings())
    _allow_open_files()
    try:
        trio.run(follow, config, machine)
    except ExceptionGroup as group:
        expected = _expected_error(group)
        if expected is None:
            raise
        status, words = _explained(expected)
        sys.stdout.write(msgspec.json.encode({"error": words}).decode() + "\n")
        return status
    return 0


def _run_to_the_end(
    config: NodeConfig, machine: Machine, log: ProcessLog, *, is_supervised: bool
) -> int:
    if complaint := _open_audit(config):
        return _fail(EXIT_STORE, complaint)
    _say_if_files_are_few(_allow_open_files(), config.cluster.broker.connections_max)
    _leave_no_core()
    # What is there by now, mostly modules, stays to the end: to look for garbage in it takes the
    # collector tens of milliseconds each time, in which nobody is served.
    gc.freeze()
    # What comes later, thousands of connections maybe, is looked through as a whole once there are
    # a million objects more, and not each time it has grown by a quarter: that takes hundreds of
    # milliseconds. What connections and requests leave is no garbage for the collector.
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    try:
        trio.run(_run, config, is_supervised, machine, log)
    except ExceptionGroup as group:
        expected = _expected_error(group)
        if expected is None:
            raise
        status, words = _explained(expected)
        if config.cluster.logging.format is LogFormat.JSON:
            _log.critical("%s", words)
            return status
        return _fail(status, words)
    return 0


def _parse_check(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="node check", description="Say what a start of nodes would refuse."
    )
    parser.add_argument("--config", type=Path, required=True, help="path of cluster.yaml")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        help="a node; all of this machine, if left out; may be repeated",
    )
    parser.add_argument(
        "--format",
        choices=("words", "findings", "json"),
        default="words",
        help="words; findings as lines of JSON; or the checked configuration as JSON, and no check",
    )
    return parser.parse_args(arguments)


def _parse_run(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="node", description="Run one node of a cluster.")
    parser.add_argument("--config", type=Path, required=True, help="path of cluster.yaml")
    parser.add_argument("--name", required=True, help="which of its nodes to run")
    parser.add_argument(
        "--supervised",
        action="store_true",
        help="stop when standard input ends; print READY on standard output",
    )
    parser.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="log to this file and rotate it, as `logging` of the file says; else standard error",
    )
    return parser.parse_args(arguments)


def _check(arguments: Sequence[str], machine: Callable[[], Machine]) -> int:
    options = _parse_check(arguments)
    try:
        config = load_config(options.config)
        spec = spec_of(config)
        if options.format == "json":
            sys.stdout.write(msgspec.json.encode(spec, enc_hook=str).decode() + "\n")
            return 0
        names = options.name or here(spec)
        if not names:
            return _fail(EXIT_CONFIG, _none_is_here(spec))
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        found = {name: trio.run(_check_one, config, name, machine(), open_files) for name in names}
    except ClusterConfigError as error:
        return _fail(EXIT_CONFIG, str(error))
    for name, findings in found.items():
        _say_findings(name, findings, as_json=options.format == "findings")
    statuses = [each.exit_status for findings in found.values() for each in findings]
    return next(filter(None, statuses), 0)


async def _check_one(
    config: ClusterConfig, name: str, machine: Machine, open_files: int
) -> list[Finding]:
    return await check_start(config, name, machine, open_files=open_files)


def here(spec: ClusterSpec) -> list[str]:
    """Return the nodes whose address this machine has."""
    away = {node.name for node in of_other_machines(spec.nodes)}
    return [node.name for node in spec.nodes if node.name not in away]


def _none_is_here(spec: ClusterSpec) -> str:
    places = ", ".join(f"{node.name} ({node.address})" for node in spec.nodes)
    return f"{spec.file}: no node is of this machine: {places}; name one with --name"


def _say_findings(name: str, findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        for each in findings:
            sys.stdout.write(msgspec.json.encode(each).decode() + "\n")
        return
    would = "would not start" if any(each.exit_status for each in findings) else "would start"
    sys.stdout.write(f"{name} {would}\n")
    for each in findings:
        what = f"refused (status {each.exit_status})" if each.exit_status else "note"
        sys.stdout.write(plain_lines(f"  {what}: {each.subject}: {each.text}") + "\n")


async def _run(
    config: NodeConfig,
    supervised: bool,  # noqa: FBT001 - trio.run
    machine: Machine,
    log: ProcessLog,
) -> None:
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_say_left_out, log)
        await nursery.start(_stop_on_signal, stop)
        if supervised:
            nursery.start_soon(_stop_on_lifeline, stop)
        await nursery.start(_run_until_stopped, nursery, config, machine, stop)
        if supervised:
            ready = msgspec.json.encode({"name": config.node.name}).decode()
            sys.stdout.write(f"READY {ready}\n")
            sys.stdout.flush()


async def _run_until_stopped(
    nursery: trio.Nursery,
    config: NodeConfig,
    machine: Machine,
    stop: trio.Event,
    task_status: trio.TaskStatus[None],
) -> None:
    exporter = exporter_of(config)
    async with _coordinator(config) as coordinator:
        await run_node(
            config,
            machine,
            stop=stop,
            coordinator=coordinator,
            exporter=exporter,
            task_status=task_status,
        )
    nursery.cancel_scope.cancel()


@asynccontextmanager
async def _coordinator(config: NodeConfig) -> AsyncIterator[EtcdClient | None]:
    """The client of the coordinator; None for a classic group, which has none."""
    if not config.is_fenced:
        yield None
        return
    reach = config.node.reach.get(COORDINATOR, "")
    secret = config.cluster.secret
    client = connect(config.cluster.coordinator, secret=secret, reach=reach)
    try:
        yield client
    finally:
        await client.aclose()


async def _stop_on_signal(
    stop: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            stop.set()


async def _stop_on_lifeline(stop: trio.Event) -> None:
    """The process that started us holds the other end; the kernel closes it even after a kill."""
    async with trio.lowlevel.FdStream(os.dup(LIFELINE_FD)) as lifeline:
        while await lifeline.receive_some():
            pass
    stop.set()


async def _say_left_out(log: ProcessLog) -> None:
    while True:
        await trio.sleep(REPEATS_SECONDS)
        log.say_left_out()


def _open_audit(config: NodeConfig) -> str | None:
    """Begin to write who changes what; return why that is not possible."""
    try:
        start_audit_log(AUDIT_LOGGER, config.audit_file, config.cluster.logging)
    except OSError as error:
        return (
            f"{config.audit_file}: who changes what cannot be written there: {error.strerror}; let"
            " the user of the node write there"
        )
    return None


def _unwritable_log(file: Path, error: OSError) -> str:
    return (
        f"--log-file {file}: cannot be written: {error.strerror}; make its directory, and let the"
        " user of the node write there"
    )


def _allow_open_files() -> int:
    """Take what the system gives: every connection and every file of the store is a descriptor."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def _say_if_files_are_few(open_files: int, connections_max: int) -> None:
    wanted = files_wanted(connections_max)
    if open_files < wanted:
        _log.warning(
            "this process may have %d open files, and connections_max %d wants up to %d: clients"
            " may wait for a connection before that many are there; set LimitNOFILE= of its unit,"
            " or `ulimit -n`, to %d or more",
            open_files,
            connections_max,
            wanted,
            wanted,
        )


def _leave_no_core() -> None:
    """A core file would have the secrets of the cluster and its users in it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


_EXPECTED: Final = (NodeError, StoreError, NetworkError, CoordinatorRefusedError)


def _expected_error(group: ExceptionGroup[Exception]) -> Exception | None:
    """The error to report, if all in the group are of the kinds that are not bugs."""
    expected, unexpected = group.split(_EXPECTED)
    if unexpected is not None:
        return None
    error: Exception | None = expected
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _explained(error: Exception) -> tuple[int, str]:
    """Return exit status and words of an expected error."""
    if isinstance(error, NodeError):
        return error.exit_status, str(error)
    if isinstance(error, AddressInUseError):
        return EXIT_BUSY, str(error)
    if isinstance(error, CoordinatorRefusedError):
        return EXIT_CONFIG, f"the coordinator: {error}"
    if isinstance(error, StoreError):
        return EXIT_STORE, str(error)
    return 1, str(error)


def _fail(status: int, text: str) -> int:
    sys.stderr.write(f"{plain_lines(text)}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
