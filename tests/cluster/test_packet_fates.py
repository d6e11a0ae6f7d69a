"""What becomes of packets: decided alike for a seed and a link, in the shares that were asked for;
and what the kernel and the queue say to each other."""

from __future__ import annotations

import struct

import pytest

from shalott.cluster.docker.packets import chain_script
from shalott.cluster.nodes import LinkShape
from shalott.cluster.packets.fates import REORDER_HOLD_MS, Fate, LinkFates, damage
from shalott.cluster.packets.queue import Packet, _attr, _parse

pytestmark = pytest.mark.unit

COUNT = 4000


def fates(shape: LinkShape, *, seed: int = 7, link: str = "n1->n2") -> list[Fate]:
    one = LinkFates(seed, link)
    one.set_shape(shape)
    return [one.decide(0, 100) for _ in range(COUNT)]


def test_the_same_packets_meet_the_same_for_a_seed_and_a_link() -> None:
    shape = LinkShape(delay_ms=5, jitter_ms=20, loss=0.1, duplicate=0.1, reorder=0.1, corrupt=0.1)
    assert fates(shape) == fates(shape)
    assert fates(shape) != fates(shape, seed=8) != fates(shape, link="n2->n1")


def test_what_is_drawn_for_one_thing_does_not_shift_another() -> None:
    lost = [fate.is_lost for fate in fates(LinkShape(loss=0.1))]
    assert lost == [fate.is_lost for fate in fates(LinkShape(loss=0.1, jitter_ms=9, corrupt=0.5))]


@pytest.mark.parametrize("correlation", [0, 0.5, 0.9])
@pytest.mark.parametrize("name", ["loss", "duplicate", "reorder", "corrupt"])
def test_the_share_that_is_hit_is_what_was_asked_for(name: str, correlation: float) -> None:
    one = LinkFates(7, "n1->n2")
    one.set_shape(LinkShape(**{name: 0.2, "correlation": correlation}))  # type: ignore[arg-type]
    for _ in range(COUNT):
        one.decide(0, 100)
    counts = one.counts
    hit = {"loss": counts.lost, "duplicate": counts.duplicated, "reorder": counts.reordered}
    assert hit.get(name, counts.corrupted) == pytest.approx(0.2 * COUNT, rel=0.3)
    assert counts.seen == COUNT


def test_a_correlation_makes_bursts() -> None:
    def bursts(correlation: float) -> int:
        lost = [f.is_lost for f in fates(LinkShape(loss=0.2, correlation=correlation))]
        return sum(now and not before for before, now in zip(lost, lost[1:], strict=False))

    assert bursts(0.8) < bursts(0) / 2


def test_delay_jitter_and_reordering_say_when_a_packet_goes_on() -> None:
    times = [fate.at_ns / 1e6 for fate in fates(LinkShape(delay_ms=5, jitter_ms=20))]
    assert 5 <= min(times) < 5.5 and 24.5 < max(times) <= 25
    held = {fate.at_ns / 1e6 for fate in fates(LinkShape(reorder=0.3))}
    assert held == {0, REORDER_HOLD_MS}


def test_a_narrow_link_carries_one_packet_after_the_other() -> None:
    one = LinkFates(7, "n1->n2")
    one.set_shape(LinkShape(rate_bytes_s=1000))
    assert [one.decide(0, 100).at_ns for _ in range(3)] == [100_000_000, 200_000_000, 300_000_000]
    assert one.decide(10**9, 100).at_ns == 10**9 + 100_000_000


def test_a_new_shape_begins_its_counts_anew_and_goes_on_with_its_draws() -> None:
    one = LinkFates(7, "n1->n2")
    shape = LinkShape(loss=0.5)
    one.set_shape(shape)
    first = [one.decide(0, 9).is_lost for _ in range(50)]
    one.set_shape(shape)
    assert one.counts.seen == 0
    assert [one.decide(0, 9).is_lost for _ in range(50)] != first


def test_damage_flips_one_bit_behind_the_headers() -> None:
    packet = bytes([0x45, *range(1, 60)])
    for place in (0.0, 0.37, 0.999):
        changed = damage(packet, place)
        flipped = [n for n in range(60) if changed[n] != packet[n]]
        assert len(flipped) == 1 and flipped[0] >= 28
        assert (changed[flipped[0]] ^ packet[flipped[0]]).bit_count() == 1
    assert damage(packet[:24], 0.5)[:23] == packet[:23], "a packet without content"


def message(*attributes: bytes, kind: int = 3 << 8) -> bytes:
    body = struct.pack("!BBH", 2, 0, 5177) + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def test_packets_are_read_from_the_kernels_messages_and_others_are_passed_over() -> None:
    header = bytes([0x45, 0, 1, 44, *range(8), 10, 0, 0, 3, 10, 0, 0, 4])
    found = list(
        _parse(
            message(_attr(1, struct.pack("!IHB", 9, 0x0800, 1)), _attr(10, header))
            + message(_attr(10, header))
            + message(kind=2)
            + message(_attr(14, b"abcd"), _attr(1, struct.pack("!IHB", 10, 0x0800, 1)))
        )
    )
    assert found == [Packet(9, header), Packet(10, b"")]
    assert (found[0].source, found[0].size) == ("10.0.0.3", 300)


def test_the_rules_pass_everything_while_nobody_serves_the_queue() -> None:
    script = chain_script(["10.0.0.3", "10.0.0.2"])
    queueing = [line for line in script.splitlines() if "NFQUEUE" in line]
    assert len(queueing) == 2 and all(line.endswith("--queue-bypass") for line in queueing)
    rules = [line for line in script.splitlines() if line.startswith("-A")]
    assert all("RETURN" in rule for rule in rules[:2]), "probes of cuts and copies pass first"
    assert "-X SHALOTT_PACKETS" in chain_script([])
