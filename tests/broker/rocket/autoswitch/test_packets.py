"""The packets of 2.2.2 from literal bytes, both ways."""

from __future__ import annotations

import pytest

from shalott.broker.rocket.autoswitch import packets
from shalott.broker.rocket.autoswitch.packets import EpochStart, HaProtocolError, HaState

pytestmark = pytest.mark.unit

SLAVE_HANDSHAKE = bytes.fromhex("00000001 0001 0000 0000000000000007")
LEARNER_HANDSHAKE = bytes.fromhex("00000001 0000 0001 0000000000000102")
OLD_SLAVE_HANDSHAKE = bytes.fromhex("00000001 0000 0001 0000000e") + b"127.0.0.1:1091" + bytes(36)
MASTER_HANDSHAKE = bytes.fromhex(
    "00000001 00000018 0000000000001234 00000003"  # state, body size, max offset, epoch
    "00000001 0000000000000000"
    "00000003 0000000000000100"
)
TRANSFER = bytes.fromhex(
    "00000002 00000003 0000000000000105 00000003 0000000000000100 0000000000000101 616263"
)
HEARTBEAT = bytes.fromhex(
    "00000002 00000000 0000000000000108 00000003 0000000000000100 0000000000000108"
)
ACK = bytes.fromhex("00000002 0000000000000108")


def test_a_slave_names_itself_by_its_broker_id() -> None:
    handshake = packets.SlaveHandshake(broker_id=7, sync_from_last_file=True)
    assert packets.encode_slave_handshake(handshake) == SLAVE_HANDSHAKE
    assert packets.decode_slave_handshake(SLAVE_HANDSHAKE) == handshake
    assert len(SLAVE_HANDSHAKE) == packets.SLAVE_HANDSHAKE_BYTES == 16


def test_a_learner_says_so() -> None:
    handshake = packets.SlaveHandshake(broker_id=0x102, async_learner=True)
    assert packets.encode_slave_handshake(handshake) == LEARNER_HANDSHAKE
    assert packets.decode_slave_handshake(LEARNER_HANDSHAKE) == handshake


def test_a_slave_of_5_0_0_names_itself_by_its_address() -> None:
    handshake = packets.SlaveHandshake(address="127.0.0.1:1091", async_learner=True)
    assert packets.encode_slave_handshake(handshake) == OLD_SLAVE_HANDSHAKE
    assert packets.decode_slave_handshake(OLD_SLAVE_HANDSHAKE, by_address=True) == handshake
    assert len(OLD_SLAVE_HANDSHAKE) == packets.OLD_SLAVE_HANDSHAKE_BYTES == 62


def test_a_master_answers_with_its_epochs() -> None:
    entries = (EpochStart(1, 0), EpochStart(3, 0x100))
    encoded = packets.encode_master_handshake(entries, max_offset=0x1234, epoch=3)
    assert encoded == MASTER_HANDSHAKE
    header = packets.decode_master_handshake(MASTER_HANDSHAKE[: packets.MASTER_HANDSHAKE_BYTES])
    assert header == packets.MasterHandshake(entries_bytes=24, max_offset=0x1234, epoch=3)
    assert packets.decode_entries(MASTER_HANDSHAKE[20:]) == entries


def test_a_piece_of_the_log_says_where_it_lies_and_who_wrote_it() -> None:
    encoded = packets.encode_transfer(
        b"abc", offset=0x105, epoch=3, epoch_start_offset=0x100, confirm_offset=0x101
    )
    assert encoded == TRANSFER
    assert packets.decode_transfer(TRANSFER[: packets.TRANSFER_BYTES]) == packets.Transfer(
        body_bytes=3, offset=0x105, epoch=3, epoch_start_offset=0x100, confirm_offset=0x101
    )


def test_a_heartbeat_is_a_piece_of_nothing() -> None:
    encoded = packets.encode_transfer(
        b"", offset=0x108, epoch=3, epoch_start_offset=0x100, confirm_offset=0x108
    )
    assert encoded == HEARTBEAT
    assert len(HEARTBEAT) == packets.TRANSFER_BYTES == 36


def test_an_acknowledgement_is_the_end_of_the_slaves_log() -> None:
    assert packets.encode_ack(0x108) == ACK
    assert packets.decode_ack(ACK) == 0x108
    assert len(ACK) == packets.ACK_BYTES == 12


def test_a_peer_in_another_state_is_refused() -> None:
    with pytest.raises(HaProtocolError):
        packets.decode_ack(packets.encode_ack(8, HaState.HANDSHAKE))
    with pytest.raises(HaProtocolError):
        packets.decode_slave_handshake(bytes.fromhex("00000002") + SLAVE_HANDSHAKE[4:])
    with pytest.raises(HaProtocolError):
        packets.decode_master_handshake(TRANSFER[:20])
    with pytest.raises(HaProtocolError):
        packets.decode_transfer(MASTER_HANDSHAKE[:36])


@pytest.mark.parametrize("size", ["ffffffff", "7fffffff", "00000007"])
def test_nonsense_sizes_of_epochs_are_refused(size: str) -> None:
    header = MASTER_HANDSHAKE[:4] + bytes.fromhex(size) + MASTER_HANDSHAKE[8:20]
    with pytest.raises(HaProtocolError):
        packets.decode_master_handshake(header)


@pytest.mark.parametrize("size", ["ffffffff", "7fffffff"])
def test_nonsense_sizes_of_frames_are_refused(size: str) -> None:
    header = TRANSFER[:4] + bytes.fromhex(size) + TRANSFER[8:36]
    with pytest.raises(HaProtocolError):
        packets.decode_transfer(header)


def test_an_acknowledgement_below_nothing_is_refused() -> None:
    with pytest.raises(HaProtocolError):
        packets.decode_ack(packets.encode_ack(-1))


def test_an_address_that_does_not_fit_is_refused() -> None:
    with pytest.raises(HaProtocolError):
        packets.encode_slave_handshake(packets.SlaveHandshake(address="x" * 51))
    too_long = OLD_SLAVE_HANDSHAKE[:8] + bytes.fromhex("00000033") + OLD_SLAVE_HANDSHAKE[12:]
    with pytest.raises(HaProtocolError):
        packets.decode_slave_handshake(too_long, by_address=True)


def test_an_original_without_any_file_beats_at_no_offset() -> None:
    nowhere = HEARTBEAT.replace(bytes.fromhex("0000000000000108"), b"\xff" * 8)
    heartbeat = packets.decode_transfer(nowhere)
    assert (heartbeat.offset, heartbeat.body_bytes, heartbeat.confirm_offset) == (-1, 0, -1)
    with pytest.raises(HaProtocolError):  # bytes lie somewhere
        packets.decode_transfer(nowhere[:7] + b"\1" + nowhere[8:])
