"""Replication with epochs, leases and an in-sync set: the nodes elect their master."""
