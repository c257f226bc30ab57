"""A shadow: follows the log of a RocketMQ master without being one of its slaves.

master_place.py    which broker is followed, and where it listens: rules
master_search.py   asks name servers and the broker itself
follower.py        copies the log; acknowledges nothing
shadow.py          one store, its tables, the following, what is said about it
command.py         `python -P -m node shadow`, which `tandem shadow` starts
"""
