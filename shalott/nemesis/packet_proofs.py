"""Proving link faults by packets: numbered ones are sent over a link, and what became of them must
be what the faults in force want.

What a fault does with a probability is proved when it was seen once, and proved healed when it was
not seen any more. Enough packets are sent that it should be seen a few times. A link that a
partition has cut, that is narrow, or that other faults keep changing carries no packets that prove
anything.
"""

from __future__ import annotations

from typing import Any

from shalott.cluster.nodes import LinkShape
from shalott.cluster.parts import MeasuresPackets
from shalott.core.errors import HarnessError
from shalott.nemesis.checks import as_data, moot, shape_data
from shalott.nemesis.context import FaultContext
from shalott.nemesis.cuts import Link
from shalott.nemesis.proofs import Check, Seen

FAILED_LOOKS = 3
UNSTEADY_LOOKS = 2  # after so many the link is left to the proof of its shape
LEAST_COUNT, MOST_COUNT = 20, 1000
EXPECTED_HITS = 8
LATE_MS = 25.0  # a packet may be so late on a busy machine, and so may the clock that it is read by
LATE_SHARE = 0.5  # and by so much of what it is late by
SPREAD_SHARE = 0.3  # of a jitter, that a few dozen packets show at least


def packets_check(ctx: FaultContext, links: MeasuresPackets, link: Link) -> Check:
    """What becomes of packets, beside the shape that the faults add up to."""
    is_down = moot(ctx, link)
    unsteady = 0  # looks during which other faults changed the link
    failed = 0  # looks that failed: a node that is just being killed is not down yet

    async def proves_nothing() -> bool:
        is_narrow = bool(ctx.settings.shape(link).rate_bytes_s)
        return ctx.cuts.is_cut(link) or is_narrow or await is_down()

    async def is_moot() -> bool:
        return unsteady >= UNSTEADY_LOOKS or await proves_nothing()

    async def look() -> Seen:
        nonlocal unsteady, failed
        shape = ctx.settings.shape(link)
        if await proves_nothing():
            return {}
        try:
            seen = await links.measure(*link, packets_for(shape))
        except HarnessError:
            failed += 1
            if failed < FAILED_LOOKS or await is_down():
                return {}
            raise
        if shape != ctx.settings.shape(link) or await proves_nothing():
            unsteady += 1
            return {}
        return as_data(seen)

    def shape() -> Seen:
        return shape_data(ctx.settings.shape(link))

    text = f"packets {link[0]}->{link[1]}"
    return Check(link[0], text, look, shape, agrees=packets_agree, moot=is_moot)


def packets_for(shape: LinkShape) -> int:
    """How many packets show what the shape does."""
    rare = [p for p in (shape.loss, shape.duplicate, shape.reorder, shape.corrupt) if p]
    wanted = int(EXPECTED_HITS / min(rare)) if rare else LEAST_COUNT
    return max(LEAST_COUNT, min(wanted, MOST_COUNT))


def packets_agree(seen: Seen, expected: Seen) -> bool:
    """Whether what became of the packets (``PacketsSeen``) is what the shape does."""
    assert isinstance(seen, dict) and isinstance(expected, dict)
    if not seen:
        return False
    lost = seen["sent"] - seen["arrived"] - seen["corrupted"]
    happened = {
        "loss": lost > 0,
        "duplicate": seen["duplicated"] > 0,
        "corrupt": seen["corrupted"] > 0,
    }
    # A damaged packet that is doubled counts twice, so little can be said of the lost.
    both = expected.get("corrupt", 0) and expected.get("duplicate", 0)
    told = ("duplicate", "corrupt") if both else ("loss", "duplicate", "corrupt")
    if any(happened[name] != bool(expected.get(name, 0)) for name in told):
        return False
    moves = bool(expected.get("reorder", 0) or expected.get("jitter_ms", 0))
    if expected.get("reorder", 0) and not seen["overtaken"]:
        return False
    if seen["overtaken"] and not moves:
        return False
    return seen["arrived"] == 0 or _times_agree(seen, expected)


def _times_agree(seen: dict[str, Any], expected: dict[str, Any]) -> bool:
    delay_ms, jitter_ms = expected.get("delay_ms", 0), expected.get("jitter_ms", 0)
    least_ms, most_ms = seen["least_ms"], seen["most_ms"]
    if least_ms < 0.95 * delay_ms:
        return False
    if least_ms > delay_ms + jitter_ms + LATE_MS + LATE_SHARE * delay_ms:
        return False
    return not jitter_ms or most_ms - least_ms >= SPREAD_SHARE * jitter_ms
