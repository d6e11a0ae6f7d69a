"""Histories from files of any dialect: ``read_history``."""

from __future__ import annotations

from shalott.checkers.reading.history_files import DIALECTS, read_history

__all__ = ["DIALECTS", "read_history"]
