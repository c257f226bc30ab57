"""Leases, compare-and-swap transactions and watches: what a fenced group needs of a coordinator.

`etcd` in production, an embedded one for local clusters; one client speaks to both, over the
HTTP/JSON gateway of etcd's v3 API.
"""
