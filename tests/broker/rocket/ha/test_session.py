"""A slave's connection at its master, event by event (docs/protocols.md 1.3)."""

from __future__ import annotations

import dataclasses

import pytest

from shalott.broker.rocket.ha.packets import HaProtocolError, encode_report
from shalott.broker.rocket.ha.session import Extent, MasterSession, Send, SessionRules, Wait

pytestmark = pytest.mark.unit

SEGMENT = 1000
RULES = SessionRules(
    batch_bytes=100,
    heartbeat_interval_ms=5000,
    housekeeping_interval_ms=20_000,
    segment_bytes=SEGMENT,
)
LOG = Extent(min=0, end=2500, max=2500)


def session_at(report: int, extent: Extent = LOG, **changes: bool) -> MasterSession:
    session = MasterSession(rules(**changes), 0)
    session.received(encode_report(report), extent, 0)
    return session


def rules(**changes: bool) -> SessionRules:
    return dataclasses.replace(RULES, **changes)


def test_nothing_is_sent_before_the_slave_has_reported() -> None:
    session = MasterSession(RULES, 0)
    assert session.next_step(LOG, 6000) == Wait(20_000)
    assert not session.received(encode_report(2400)[:7], LOG, 7000)
    assert session.next_step(LOG, 7000) == Wait(27_000)
    assert session.received(encode_report(2400)[7:], LOG, 7000)
    assert session.next_step(LOG, 7000) == Send(2400, 100)


def test_transfer_starts_where_the_first_report_says_and_acks_follow_the_last() -> None:
    session = MasterSession(RULES, 0)
    session.received(encode_report(100) + encode_report(300), LOG, 0)
    assert session.slave_request_offset == session.slave_ack_offset == 300
    session.received(encode_report(500), LOG, 0)
    assert (session.slave_request_offset, session.slave_ack_offset) == (300, 500)
    assert session.next_step(LOG, 0) == Send(300, 100)


def test_frames_follow_each_other_by_what_was_really_sent() -> None:
    session = session_at(2350)
    first = session.next_step(LOG, 0)
    assert first == Send(2350, 100)
    session.sent(first, 60, 0)  # the log gave less, at a file's end
    second = session.next_step(LOG, 0)
    assert second == Send(2410, 90)
    session.sent(second, 90, 0)
    assert session.next_step(LOG, 0) == Wait(5000)


def test_an_idle_connection_gets_a_heartbeat_an_interval() -> None:
    session = session_at(2500)
    assert session.next_step(LOG, 4999) == Wait(5000)
    heartbeat = session.next_step(LOG, 5000)
    assert heartbeat == Send(2500, 0)
    session.sent(heartbeat, 0, 5000)
    assert session.next_step(LOG, 5000) == Wait(10_000)


def test_a_silent_slave_is_given_up() -> None:
    session = session_at(2500)
    session.received(encode_report(2500)[:1], LOG, 3000)
    heartbeat = session.next_step(LOG, 22_999)
    assert isinstance(heartbeat, Send)
    with pytest.raises(HaProtocolError, match="silent"):
        session.next_step(LOG, 23_000)


def test_a_new_slave_gets_the_whole_log() -> None:
    assert session_at(0).next_step(LOG, 0) == Send(0, 100)
    later = Extent(min=1000, end=2500, max=2500)
    assert session_at(0, later).next_step(later, 0) == Send(1000, 100)


def test_kb_rkt_04_a_new_slave_gets_the_newest_file_only() -> None:
    session = session_at(0, last_file_only=True)
    assert session.next_step(LOG, 0) == Send(2000, 100)
    empty = Extent(0, 0, 0)
    assert session_at(0, empty, last_file_only=True).next_step(empty, 0) == Wait(5000)


def test_nothing_beyond_the_end_of_transfer_is_sent() -> None:
    unflushed = Extent(min=0, end=2420, max=2500)
    session = session_at(2400, unflushed)
    step = session.next_step(unflushed, 0)
    assert step == Send(2400, 20)
    session.sent(step, 20, 0)
    assert session.next_step(unflushed, 0) == Wait(5000)


def test_a_later_report_beyond_the_log_ends_the_connection_and_acknowledges_nothing() -> None:
    session = session_at(2400)
    with pytest.raises(HaProtocolError, match="reports 9999"):
        session.received(encode_report(9999), LOG, 0)
    assert session.slave_ack_offset == 2400


def test_kb_rkt_01_stray_bytes_are_an_acknowledgement() -> None:
    stray = b"GET / HTTP/1.0\r\n"
    with pytest.raises(HaProtocolError):
        MasterSession(RULES, 0).received(stray, LOG, 0)
    trusting = MasterSession(rules(trusts_reports=True), 0)
    assert trusting.received(stray, LOG, 0)
    assert trusting.slave_ack_offset == int.from_bytes(b"TP/1.0\r\n", "big") > LOG.max


def test_kb_rkt_06_a_slave_that_is_ahead_acknowledges_what_it_has_otherwise() -> None:
    with pytest.raises(HaProtocolError, match="from 0 to 2500"):
        session_at(2600)
    believing = session_at(2600, acks_beyond_end=True)
    assert believing.slave_ack_offset == 2600
    grown = Extent(0, 2700, 2700)
    assert believing.next_step(grown, 0) == Send(2600, 100)  # behind bytes that differ
    with pytest.raises(HaProtocolError):  # 4.9.8 checks all but the first
        believing.received(encode_report(2800), grown, 0)


def test_kb_rkt_03_a_slave_that_is_ahead_gets_heartbeats_for_ever() -> None:
    session = session_at(2600, stalls_on_missing=True)
    assert session.slave_ack_offset == -1
    for at_ms in (5000, 10_000, 15_000):
        heartbeat = session.next_step(LOG, at_ms)
        assert heartbeat == Send(2600, 0)
        session.sent(heartbeat, 0, at_ms)


def test_a_slave_whose_next_bytes_were_removed_is_told() -> None:
    with pytest.raises(HaProtocolError, match="reports 500"):
        session_at(500, Extent(min=1000, end=2500, max=2500))


def test_a_slave_whose_next_bytes_are_removed_meanwhile_is_told() -> None:
    session = session_at(500)
    assert session.next_step(LOG, 0) == Send(500, 100)
    with pytest.raises(HaProtocolError, match="500 are gone"):
        session.next_step(Extent(min=1000, end=2500, max=2500), 0)


def test_a_negative_report_ends_the_connection() -> None:
    with pytest.raises(HaProtocolError, match="reports -1"):
        session_at(-1)
