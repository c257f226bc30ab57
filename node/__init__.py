"""The server process: one broker and one name server behind the same port.

Run with `python -P -m tandem_server node --config cluster.yaml --name broker-a-0`.
"""
