"""Bytes to records and back: frames, headers, messages. Pure: no input, no output, no clock.

Import from the modules; this package names nothing, so that one codec loads only itself.
"""
