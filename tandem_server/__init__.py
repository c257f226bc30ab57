"""The programs of a cluster, for `python -P -m tandem_server node` and `... store repair`.

In an installed package `node`, `ha` and `store` are in this directory and not beside it, so that
they take nobody's names: `import node` in a program of a user finds what it has always found.
In a checkout they are at its top. `__main__` lets them be imported, in its own process only.
"""
