"""Nodes on Linux hosts that are reached over SSH: cluster/ssh/backend.py."""
