"""POP: which messages are with which consumers. Engines alone: no I/O, no clock, no chance."""
