"""What counts as standing still, for who watches here and for what runs on other hosts."""

from __future__ import annotations

STALL_S = 0.3  # less is no stall: loaded machines are often as late
TICK_S = 0.05  # how often a watchdog looks
