"""The server process: one broker and one name server behind the same port.

Run with `python -P -m node --config cluster.yaml --name broker-a-0`.
"""
