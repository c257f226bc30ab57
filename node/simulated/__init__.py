"""A cluster in one process on virtual time: stand-ins for machine, disk, network, chance.

    play                   one run of a group that a test uses, from its start to its end
    group                  a fenced group, its coordinator and its supervisor
    user_process           tasks of a test that are killed and frozen as a process is
    machines               nodes that are started, killed, frozen and cut off
    network, cables        streams that are late, stalled, cut and half open
    disk, file             files that can lose what was never synced
    coordinator            the engine of the embedded one, at the other end of links
    deterministic_trio     one seed decides everything; virtual_clock: what happens when

The same machines are under the seeds of this project's own tests. No node that serves imports this.
"""
