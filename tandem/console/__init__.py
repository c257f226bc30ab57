"""The console: a process that asks the nodes, and one page."""
