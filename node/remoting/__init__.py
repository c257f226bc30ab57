"""Connections, frames and dispatch of requests."""
