"""A cluster in one process on virtual time: stand-ins for machine, disk, network, chance.

    group                  a fenced group, its coordinator, processes of a user
    machines               nodes that are started, killed, frozen and cut off
    network, cables        streams that are late, stalled, cut and half open
    disk, file             files that can lose what was never synced
    coordinator            the engine of the embedded one, at the other end of links
    deterministic_trio     one seed decides everything; virtual_clock: what happens when
    real_world             what of the world outside is replaced in a run, and what is refused

The same machines are under the seeds of this project's own tests. No node that serves imports this.
"""
