"""Shaping what one node sends to others, with tc in the sender's network namespace.

A htb class for each shaped destination, unlimited for the rest; inside it netem if there is more to
do than to throttle. Not every kernel has the parts, so a backend tries them (``TRIALS``) in a
namespace of its own before a run relies on them. ``read_shape`` reads back what the kernel says is
in force.

The harness and a packet engine tell each other of links in JSON objects, one a line (``Source``,
``LinkState``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from shalott.cluster.capabilities import Capability
from shalott.cluster.nodes import LinkShape
from shalott.cluster.packets.fates import REORDER_HOLD_MS
from shalott.cluster.packets.numbered import UNSHAPED_TOS

UNLIMITED = "10gbit"
BURST_BYTES = 32768
UNSHAPED = LinkShape()
BITS = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}
MILLISECONDS = {"us": 0.001, "ms": 1, "s": 1000}


# What a kernel is tried with, by capability.
TRIALS: Mapping[Capability, LinkShape] = {
    "delay": LinkShape(delay_ms=1),
    "throttle": LinkShape(rate_bytes_s=1_000_000),
    "loss": LinkShape(loss=0.01),
    "jitter": LinkShape(jitter_ms=1),
    "duplicate": LinkShape(duplicate=0.01),
    "reorder": LinkShape(reorder=0.01),
    "corrupt": LinkShape(corrupt=0.01),
}


def qdisc_script(shapes: Mapping[str, LinkShape], device: str = "eth0") -> str:
    """A shell script that makes ``device`` send to each address as its shape says, and to others
    freely."""
    clear = f"tc qdisc del dev {device} root 2>/dev/null || true"
    if not shapes:
        return clear
    lines = [
        "set -e",
        clear,
        f"tc qdisc add dev {device} root handle 1: htb default 1",
        f"tc class add dev {device} parent 1: classid 1:1 htb rate {UNLIMITED}",
    ]
    for number, (address, shape) in enumerate(sorted(shapes.items()), start=10):
        rate = (
            f"{shape.rate_bytes_s * 8}bit burst {BURST_BYTES}" if shape.rate_bytes_s else UNLIMITED
        )
        lines.append(f"tc class add dev {device} parent 1: classid 1:{number} htb rate {rate}")
        if netem := netem_words(shape):
            lines.append(f"tc qdisc add dev {device} parent 1:{number} handle {number}: {netem}")
        match = f"u32 match ip dst {address}/32 flowid 1:{number}"
        lines.append(f"tc filter add dev {device} parent 1: protocol ip prio 2 {match}")
    # Probes of cuts go freely, or a slow link would look cut.
    probes = f"u32 match ip tos {UNSHAPED_TOS:#x} 0xff flowid 1:1"
    lines.append(f"tc filter add dev {device} parent 1: protocol ip prio 1 {probes}")
    return "\n".join(lines)


def netem_words(shape: LinkShape) -> str:
    """What netem is told; "" if there is nothing for it to do.

    Its jitter is to both sides of a delay, ours to one. It sends what it reorders at once, ahead of
    what is delayed; without a delay the others are held back by as much as ours would be.
    """
    related = f" {shape.correlation * 100:g}%" if shape.correlation else ""
    delay_ms, reorder = shape.delay_ms + shape.jitter_ms / 2, shape.reorder
    if reorder and not delay_ms:
        delay_ms, reorder = REORDER_HOLD_MS, 1 - reorder
    words = ""
    if delay_ms:
        words += f" delay {delay_ms:g}ms"
        words += f" {shape.jitter_ms / 2:g}ms{related}" if shape.jitter_ms else ""
    for name, probability in (
        ("loss", shape.loss),
        ("duplicate", shape.duplicate),
        ("reorder", reorder),
        ("corrupt", shape.corrupt),
    ):
        words += f" {name} {probability * 100:g}%{related}" if probability else ""
    return f"netem limit 100000{words}" if words else ""


def listing_script(device: str = "eth0") -> str:
    """A shell script that prints what ``read_shape`` reads."""
    return "\n".join(f"tc {part} show dev {device}" for part in ("filter", "class", "qdisc"))


def read_shape(listing: str, address: str) -> LinkShape:
    """How the listed device sends to an address."""
    word = f"{int(ipaddress.IPv4Address(address)):08x}"
    found = re.search(rf"flowid 1:(\d+)[^\n]*\n\s*match {word}/ffffffff at 16", listing)
    if found is None:
        return UNSHAPED
    number = found[1]
    rate = re.search(rf"class htb 1:{number} [^\n]*\brate (\d+)([KMG]?)bit", listing)
    bits = int(rate[1]) * BITS[rate[2]] if rate else 0
    netem = re.search(rf"qdisc netem {number}: ([^\n]*)", listing)
    shape = read_netem(netem[1]) if netem else UNSHAPED
    rate_bytes_s = 0 if bits >= 10 * BITS["G"] else bits // 8
    return msgspec.structs.replace(shape, rate_bytes_s=rate_bytes_s)


def read_netem(line: str) -> LinkShape:
    """What ``netem_words`` had told it, of netem's own listing."""
    times = re.search(r"\bdelay ([\d.]+)(us|ms|s)\b(?: +([\d.]+)(us|ms|s)\b)?", line)
    delay_ms = jitter_ms = 0.0
    if times:
        delay_ms = float(times[1]) * MILLISECONDS[times[2]]
        jitter_ms = 2 * float(times[3]) * MILLISECONDS[times[4]] if times[3] else 0.0
    share = {
        name: float(found[1]) / 100 if found else 0.0
        for name in ("loss", "duplicate", "reorder", "corrupt")
        for found in (re.search(rf"\b{name} ([\d.]+)%", line),)
    }
    if share["reorder"] and not jitter_ms and delay_ms == REORDER_HOLD_MS:
        delay_ms, share["reorder"] = 0.0, round(1 - share["reorder"], 12)
    related = re.search(r"(?:loss|duplicate|reorder|corrupt) [\d.]+% ([\d.]+)%", line)
    related = related or re.search(r"delay \S+ +[\d.]+(?:us|ms|s) ([\d.]+)%", line)
    return LinkShape(
        delay_ms=delay_ms - jitter_ms / 2,
        jitter_ms=jitter_ms,
        correlation=float(related[1]) / 100 if related else 0,
        loss=share["loss"],
        duplicate=share["duplicate"],
        reorder=share["reorder"],
        corrupt=share["corrupt"],
    )


KINDS: Mapping[str, Capability] = {
    "delay_ms": "delay",
    "rate_bytes_s": "throttle",
    "loss": "loss",
    "jitter_ms": "jitter",
    "duplicate": "duplicate",
    "reorder": "reorder",
    "corrupt": "corrupt",
}


def kinds_of_shape(shape: LinkShape) -> list[Capability]:
    """The capabilities that it takes."""
    return [kind for name, kind in KINDS.items() if getattr(shape, name)]


def split_shape(shape: LinkShape, tc: frozenset[str]) -> tuple[LinkShape, LinkShape]:
    """What tc makes of it, and what the packet engine does: all that netem is for is made in one
    place, for a packet's order is."""
    has_netem = tc >= {*KINDS.values()} - {"throttle"}
    rate = shape.rate_bytes_s if "throttle" in tc else 0
    if has_netem:
        by_tc = msgspec.structs.replace(shape, rate_bytes_s=rate)
        return by_tc, LinkShape(rate_bytes_s=shape.rate_bytes_s - rate)
    by_engine = msgspec.structs.replace(shape, rate_bytes_s=shape.rate_bytes_s - rate)
    if not kinds_of_shape(by_engine):
        by_engine = UNSHAPED
    return LinkShape(rate_bytes_s=rate), by_engine


def join_shapes(one: LinkShape, other: LinkShape) -> LinkShape:
    """What two places do of which each does what the other does not."""
    values = {
        name: getattr(one, name) or getattr(other, name) for name in LinkShape.__struct_fields__
    }
    return LinkShape(**values)


def describe_shaping(tc: frozenset[str], capabilities: frozenset[str]) -> str:
    """One phrase, for the report."""
    if "delay" in tc:
        return "netem in the sender's network namespace"
    if "delay" in capabilities:
        return "a packet queue in the receiver's network namespace, since the kernel has no netem"
    return "throttled at most" if "throttle" in tc else "never slowed"


class Source(msgspec.Struct, frozen=True):
    """Who sends to a node, by name, and how that link is shaped."""

    name: str
    shape: LinkShape


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``shape``: these are the links to ``node``, by the sender's address, and no others; its
    queue is in the network namespace of ``pid``. ``read``: what is in force on the links to it."""

    number: int
    do: Literal["shape", "read"]
    node: str
    pid: int = 0
    sources: dict[str, Source] = {}


class LinkState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``counts``: by what it was, how many packets met it since the shape was set
    (fates.py)."""

    shape: LinkShape
    counts: dict[str, int] = {}


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``error``: why it was not done. ``links``: by the sender's name. ``stall``: the engine did
    not run between these two times of the monotonic clock, in seconds."""

    number: int | None = None
    error: str = ""
    links: dict[str, LinkState] = {}
    stall: tuple[float, float] | None = None


def encode_line(message: object) -> bytes:
    return msgspec.json.encode(message) + b"\n"


decode_answer = msgspec.json.Decoder(Answer).decode
