"""The server process: one broker and one name server at the same port.

Run with `python -P -m tandem_server node --config cluster.yaml --name broker-a-0`.
"""
