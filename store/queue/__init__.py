"""Consume queues: which record of the log is which message of a queue."""
