"""Which target a drill plays on, by its options."""

from tandem.drill.errors import BadOptionsError
from tandem.drill.java_witness import WitnessJava
from tandem.drill.options import DrillOptions
from tandem.drill.targets.process_file import read_process_file
from tandem.drill.targets.processes import ProcessesTarget
from tandem.drill.targets.rocketmq import RocketMQTarget
from tandem.drill.targets.rocketmq_jars import find_client, find_jars, find_java
from tandem.drill.targets.rocketmq_layout import Mode, settings_of
from tandem.drill.targets.tandem_cluster import TandemTarget
from tandem.drill.targets.target import Target


def target_of(options: DrillOptions) -> Target:
    """Return the target that is asked for, after the checks that need no other choice.

    Raises:
        DrillError, ClusterError: it cannot be had.
    """
    if options.file is not None and options.target != "processes":
        raise BadOptionsError("--file is for --target processes; give that too, or leave it out")
    if options.target != "tandem" and (options.groups != 1 or options.group):
        raise BadOptionsError("--groups and --group are for --target tandem; leave them out")
    if options.target != "tandem" and options.previous is not None:
        raise BadOptionsError("--previous is for --target tandem; leave it out")
    if options.target == "processes":
        if options.file is None:
            raise BadOptionsError(
                "--target processes needs --file: the file that describes the cluster"
            )
        _no_rocketmq(options)
        return ProcessesTarget(read_process_file(options.file))
    if options.target == "tandem":
        _no_rocketmq(options)
        return TandemTarget(
            options.config,
            groups_count=options.groups,
            group=options.group,
            seed=options.seed,
            previous=options.previous,
        )
    if not options.rocketmq:
        raise BadOptionsError(
            "--target rocketmq needs --rocketmq: a directory of RocketMQ, one with its jars, or"
            " maven:5.3.3"
        )
    mode = Mode(options.mode or Mode.CONTROLLER)
    settings = settings_of(mode, options.broker_settings)
    return RocketMQTarget(find_jars(options.rocketmq), mode, settings, options.name_servers)


def witness_of(options: DrillOptions) -> WitnessJava | None:
    """Return the client that consumes as well; None if none is asked for.

    Raises:
        DrillError: there is no Java, or no client of RocketMQ.
    """
    if options.witness is None:
        return None
    if not options.rocketmq:
        raise BadOptionsError(
            "--witness java needs --rocketmq: a directory of RocketMQ, one with the jars of its"
            " client, or maven:5.3.3"
        )
    java = find_java()
    version, class_path = find_client(options.rocketmq)
    return WitnessJava(java=java, class_path=class_path, version=version)


def _no_rocketmq(options: DrillOptions) -> None:
    given = (options.rocketmq and options.witness is None) or options.name_servers != 1
    if given or options.mode or options.broker_settings:
        raise BadOptionsError(
            "--rocketmq, --mode, --set and --name-servers are for --target rocketmq; give that too,"
            " or none of them"
        )
