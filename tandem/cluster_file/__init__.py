"""The cluster file, `cluster.yaml`: its settings, how it is read, and what is checked about it.

One schema for all who read the file: nodes, the supervisor of a local cluster, the drill, the
command line. Import from the modules; this package names nothing, so that reading a file loads no
client and no server.
"""
