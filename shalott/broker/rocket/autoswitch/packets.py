"""The packets of RocketMQ 5's epoch-aware replication: literal bytes in and out, and nothing else.

After store/ha/autoswitch/{AutoSwitchHAClient,AutoSwitchHAConnection}.java; docs/protocols.md 2.2.
All numbers are big-endian. A slave says a handshake once and then acknowledgements; a master
answers the handshake with its epochs and then pushes pieces of its log, or heartbeats, which have
no body.

Two forms of a slave's handshake exist: 5.1.1 and later name the slave by its broker id, 5.0.0 named
it by its address, in a field of 50 bytes. A group must speak one of them.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from shalott.broker.base.errors import BrokerError

ADDRESS_FIELD_BYTES = 50
ENTRY = struct.Struct(">iq")
ENTRIES_MAX = 100_000  # upstream's buffer holds 1000; a bound against nonsense is all that's needed
BODY_BYTES_MAX = 64 << 20
NOWHERE = -1  # where an original's log is before its first file: its heartbeats say so

_SLAVE_HANDSHAKE = struct.Struct(">ihhq")
_OLD_SLAVE_HANDSHAKE = struct.Struct(f">ihhi{ADDRESS_FIELD_BYTES}s")
_MASTER_HANDSHAKE = struct.Struct(">iiqi")
_TRANSFER = struct.Struct(">iiqiqq")
_ACK = struct.Struct(">iq")

SLAVE_HANDSHAKE_BYTES = _SLAVE_HANDSHAKE.size  # 16
OLD_SLAVE_HANDSHAKE_BYTES = _OLD_SLAVE_HANDSHAKE.size
MASTER_HANDSHAKE_BYTES = _MASTER_HANDSHAKE.size  # 20, and the entries
TRANSFER_BYTES = _TRANSFER.size  # 36, and the body
ACK_BYTES = _ACK.size  # 12


class HaState(enum.IntEnum):
    """Where a connection is; the first field of every packet."""

    READY = 0
    HANDSHAKE = 1
    TRANSFER = 2
    SUSPEND = 3
    SHUTDOWN = 4


class HaProtocolError(BrokerError):
    """The peer says what it should not: the connection must end."""


@dataclass(frozen=True, slots=True)
class EpochStart:
    """One entry of a master's history: an epoch and where its log begins."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveHandshake:
    """``address`` is set in the form of 5.0.0, ``broker_id`` in the later one."""

    broker_id: int = -1
    address: str = ""
    sync_from_last_file: bool = False
    async_learner: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterHandshake:
    """``entries_bytes`` of them follow the header."""

    entries_bytes: int
    max_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The header of a piece of the log that lies at ``offset`` and was written in ``epoch``."""

    body_bytes: int
    offset: int
    epoch: int
    epoch_start_offset: int
    confirm_offset: int


def encode_slave_handshake(handshake: SlaveHandshake) -> bytes:
    """In the form of 5.0.0 if it has an address. Raises HaProtocolError for too long a one."""
    last_file, learner = int(handshake.sync_from_last_file), int(handshake.async_learner)
    if not handshake.address:
        return _SLAVE_HANDSHAKE.pack(HaState.HANDSHAKE, last_file, learner, handshake.broker_id)
    address = handshake.address.encode()
    if len(address) > ADDRESS_FIELD_BYTES:
        raise HaProtocolError(f"{handshake.address!r} is longer than {ADDRESS_FIELD_BYTES} bytes")
    return _OLD_SLAVE_HANDSHAKE.pack(HaState.HANDSHAKE, last_file, learner, len(address), address)


def decode_slave_handshake(data: bytes, *, by_address: bool = False) -> SlaveHandshake:
    """Raises HaProtocolError."""
    if not by_address:
        state, last_file, learner, broker_id = _SLAVE_HANDSHAKE.unpack(data)
        expect(state, HaState.HANDSHAKE)
        return SlaveHandshake(
            broker_id=broker_id, sync_from_last_file=bool(last_file), async_learner=bool(learner)
        )
    state, last_file, learner, size, field = _OLD_SLAVE_HANDSHAKE.unpack(data)
    expect(state, HaState.HANDSHAKE)
    if not 0 < size <= ADDRESS_FIELD_BYTES:
        raise HaProtocolError(f"an address of {size} bytes")
    try:
        address = field[:size].decode()
    except UnicodeDecodeError:
        raise HaProtocolError("an address that is no text") from None
    return SlaveHandshake(
        address=address, sync_from_last_file=bool(last_file), async_learner=bool(learner)
    )


def encode_master_handshake(
    entries: tuple[EpochStart, ...], *, max_offset: int, epoch: int
) -> bytes:
    body = b"".join(ENTRY.pack(entry.epoch, entry.start_offset) for entry in entries)
    return _MASTER_HANDSHAKE.pack(HaState.HANDSHAKE, len(body), max_offset, epoch) + body


def decode_master_handshake(header: bytes) -> MasterHandshake:
    """Raises HaProtocolError."""
    state, size, max_offset, epoch = _MASTER_HANDSHAKE.unpack(header)
    expect(state, HaState.HANDSHAKE)
    if size < 0 or size % ENTRY.size or size > ENTRY.size * ENTRIES_MAX or max_offset < 0:
        raise HaProtocolError(f"a handshake with {size} bytes of epochs, offset {max_offset}")
    return MasterHandshake(entries_bytes=size, max_offset=max_offset, epoch=epoch)


def decode_entries(body: bytes) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(epoch, start) for epoch, start in ENTRY.iter_unpack(body))


def encode_transfer(
    body: bytes, *, offset: int, epoch: int, epoch_start_offset: int, confirm_offset: int
) -> bytes:
    header = _TRANSFER.pack(
        HaState.TRANSFER, len(body), offset, epoch, epoch_start_offset, confirm_offset
    )
    return header + body


def decode_transfer(header: bytes) -> Transfer:
    """Raises HaProtocolError."""
    state, size, offset, epoch, epoch_start, confirm = _TRANSFER.unpack(header)
    expect(state, HaState.TRANSFER)
    if not 0 <= size <= BODY_BYTES_MAX or offset < (NOWHERE if size == 0 else 0):
        raise HaProtocolError(f"a frame of {size} bytes at {offset}")
    return Transfer(
        body_bytes=size,
        offset=offset,
        epoch=epoch,
        epoch_start_offset=epoch_start,
        confirm_offset=confirm,
    )


def encode_ack(max_offset: int, state: HaState = HaState.TRANSFER) -> bytes:
    return _ACK.pack(state, max_offset)


def decode_ack(data: bytes) -> int:
    """The end of the slave's log. Raises HaProtocolError."""
    state, max_offset = _ACK.unpack(data)
    expect(state, HaState.TRANSFER)
    if max_offset < 0:
        raise HaProtocolError(f"a slave that has {max_offset} bytes")
    return int(max_offset)


def expect(state: int, wanted: HaState) -> None:
    """Raises HaProtocolError unless the peer is where this end is."""
    if state != wanted:
        raise HaProtocolError(f"the peer is in state {state}, not in {wanted.name}")
