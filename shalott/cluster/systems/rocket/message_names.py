"""The names of what nodes of our RocketMQ say to each other: of a request its code, of an answer
"answer", and of replication what its packets are (broker/rocket/ha, broker/rocket/autoswitch).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from shalott.broker.rocket.autoswitch import packets as autoswitch
from shalott.broker.rocket.ha import packets as ha
from shalott.broker.rocket.remoting.codec import FRAME_BYTES_MAX, FrameReader
from shalott.broker.rocket.remoting.command import RequestCode
from shalott.cluster.systems.message_names import Cut, cut_counted

REMOTING = ("remoting", "raft", "nameserver", "controller")  # ports of one protocol


def _command(frame: bytes) -> str:
    (command,) = FrameReader().feed(len(frame).to_bytes(4, "big") + frame)
    return "answer" if command.is_response else RequestCode(command.code).name


def _piece(data: bytes) -> tuple[int, str] | None:
    """What a master pushes."""
    if len(data) < ha.HEADER.size:
        return None
    offset, size = ha.HEADER.unpack_from(data)
    if offset < 0 or not 0 <= size <= ha.BODY_BYTES_MAX:
        raise ValueError("that is no piece of a log")
    end = ha.HEADER.size + size
    return (end, "piece" if size else "heartbeat") if len(data) >= end else None


def _report(data: bytes) -> tuple[int, str] | None:
    size = ha.REPORT.size
    return (size, "report") if len(data) >= size else None


def _of_slave(data: bytes) -> tuple[int, str] | None:
    state = int.from_bytes(data[:4], "big")
    size = autoswitch.ACK_BYTES
    if state == autoswitch.HaState.HANDSHAKE:
        size, name = autoswitch.SLAVE_HANDSHAKE_BYTES, "handshake"
    elif state == autoswitch.HaState.TRANSFER:
        name = "report"
    else:
        raise ValueError("that says no slave")
    return (size, name) if len(data) >= size else None


def _of_master(data: bytes) -> tuple[int, str] | None:
    if len(data) < autoswitch.MASTER_HANDSHAKE_BYTES:
        return None
    state, body = (int.from_bytes(data[at : at + 4], "big") for at in (0, 4))
    if state == autoswitch.HaState.HANDSHAKE:
        size, name = autoswitch.MASTER_HANDSHAKE_BYTES + body, "handshake"
    elif state == autoswitch.HaState.TRANSFER:
        size, name = autoswitch.TRANSFER_BYTES + body, "piece" if body else "heartbeat"
    else:
        raise ValueError("that says no master")
    if body > autoswitch.BODY_BYTES_MAX:
        raise ValueError("that is no length")
    return (size, name) if len(data) >= size else None


_cut_remoting = partial(cut_counted, most=FRAME_BYTES_MAX, name_of=_command)
# By the system: what a slave, who dials, says at the port "ha", and what a master.
_AT_HA: Mapping[str, tuple[Cut, Cut]] = {
    "master-slave": (_report, _piece),
    "controller": (_of_slave, _of_master),
}


def cut_of(system: str, port: str, from_dialler: bool) -> Cut | None:
    """How what is said at a port, by its name, is cut into messages."""
    if port in REMOTING:
        return _cut_remoting
    if port == "ha" and system in _AT_HA:
        return _AT_HA[system][0 if from_dialler else 1]
    return None
