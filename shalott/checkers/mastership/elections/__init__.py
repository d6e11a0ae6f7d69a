"""Judges elections of a replicated log by what nodes told: each file says of what."""
