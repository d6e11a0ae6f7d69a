"""Shalott: breaks replicated message brokers on purpose and tells you, with evidence, what they
lost.

docs/architecture.md is the map of its rooms.
"""
