"""When a message that waits for a level of delay is due: its unit in the consume queue has that
time where others have the hash of their tags (CommitLog.checkMessageAndReturnSize), and an original
that takes a store over delivers by it.
"""

from __future__ import annotations

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
# messageDelayLevel: 1s 5s 10s 30s 1m to 10m 20m 30m 1h 2h; level 1 is the first.
LEVELS_S: tuple[int, ...] = (
    *(1, 5, 10, 30),
    *(60 * minutes for minutes in range(1, 11)),
    *(1200, 1800, 3600, 7200),
)


def due_ms(level: bytes, store_ms: int) -> int | None:
    """None for what is no level."""
    if not level.isdigit() or int(level) == 0:
        return None
    return store_ms + 1000 * LEVELS_S[min(int(level), len(LEVELS_S)) - 1]
