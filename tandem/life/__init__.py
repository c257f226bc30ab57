"""The life of one message, by evidence: what nodes answered, and what files hold.

    evidence     what a gatherer has seen: records, logs, offsets of groups; where it could not look
    lives        `why_of(evidence)`: what follows from it, each finding with what shows it
    result       `Why`, `Life`, `Finding`: frozen, and JSON as they are

Nothing here asks or reads anybody. There are two gatherers: `tandem.client.life_admin` asks the
nodes of a cluster, `tandem.log.life` reads store directories.
"""
