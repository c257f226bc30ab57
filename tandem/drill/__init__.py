"""The drill: break a cluster under load, then prove from its disks what became of every send."""
