"""Nodes in a deterministic simulation: one event loop, virtual time, one seed."""
