"""Existing: a cluster that stands already and was made by others; nothing of theirs is removed."""
