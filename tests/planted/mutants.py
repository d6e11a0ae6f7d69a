"""Broken brokers."""
from __future__ import annotations
