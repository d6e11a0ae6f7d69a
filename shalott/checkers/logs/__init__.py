"""Judges what clients sent to a replicated log and polled from it."""
