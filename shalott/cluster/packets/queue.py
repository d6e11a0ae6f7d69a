"""The kernel's packet queue (nfnetlink_queue), without a library.

A socket belongs for ever to the network namespace that its thread was in when it was made, so one
process of a machine serves the queues of all its containers. Attributes and
numbers are those of linux/netfilter/nfnetlink_queue.h. The queue fails open: what does not fit
passes, and so does everything when the process has ended, by ``--queue-bypass`` in the rule.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

NETLINK_NETFILTER = 12
SOL_NETLINK = 270
NETLINK_NO_ENOBUFS = 5
SUBSYSTEM = 3 << 8  # NFNL_SUBSYS_QUEUE
PACKET, VERDICT, CONFIG = 0, 1, 2  # NFQNL_MSG_*
CFG_CMD, CFG_PARAMS, CFG_MAXLEN, CFG_MASK, CFG_FLAGS = 1, 2, 3, 4, 5  # NFQA_CFG_*
BIND = 1  # NFQNL_CFG_CMD_BIND
FAIL_OPEN, GSO = 1, 4  # NFQA_CFG_F_*
COPY_PACKET = 2
PACKET_HDR, VERDICT_HDR, PAYLOAD = 1, 2, 10  # NFQA_*
DROP, ACCEPT = 0, 1
NLM_F_REQUEST, NLM_F_ACK = 1, 4
NLMSG_ERROR = 2
TYPE_BITS = 0x3FFF  # of an attribute's type; the others are flags
HEADER_BYTES = 20  # an IP header: who sent it, and how long it is
WHOLE_BYTES = 0xFFFF
RECEIVE_BYTES = 1 << 17
BUFFER_BYTES = 8 << 20
MAX_PACKETS = 100_000
SO_MARK = 36
INJECTED_MARK = 0x51A1  # of packets that were put in a second time: they don't queue again

_nlmsghdr = struct.Struct("=IHHII")
_nfgenmsg = struct.Struct("!BBH")
_attribute = struct.Struct("=HH")


@dataclass(frozen=True)
class Packet:
    """``data``: its first bytes, all of them if the queue was told so."""

    id: int
    data: bytes

    @property
    def source(self) -> str:
        return socket.inet_ntoa(self.data[12:16])

    @property
    def size(self) -> int:
        """Bytes of the whole packet, by its header."""
        return int.from_bytes(self.data[2:4], "big")


class PacketQueue:
    """One queue. Made inside the namespace; raises OSError if the kernel has none, or it is
    taken."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._copies_all: bool | None = None
        self._injector: socket.socket | None = None
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        try:
            self.socket.bind((0, 0))
            self._buffer()
            self._configure(_attr(CFG_CMD, struct.pack("!BBH", BIND, 0, 0)), ack=True)
            self._configure(_attr(CFG_MAXLEN, struct.pack("!I", MAX_PACKETS)))
            self.copy(everything=False)
            self._injector = _raw_socket()
        except OSError:
            self.close()
            raise
        self.socket.setblocking(False)

    def _buffer(self) -> None:
        force = 33  # SO_RCVBUFFORCE
        with contextlib.suppress(PermissionError):
            self.socket.setsockopt(socket.SOL_SOCKET, force, BUFFER_BYTES)
        self.socket.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)

    def copy(self, *, everything: bool) -> None:
        """Have whole packets from now on, which the kernel cuts to the link's size and sums up
        before; or their headers, as big as they come."""
        if everything == self._copies_all:
            return
        self._copies_all = everything
        size = WHOLE_BYTES if everything else HEADER_BYTES
        flags = FAIL_OPEN if everything else FAIL_OPEN | GSO
        self._configure(
            _attr(CFG_PARAMS, struct.pack("!IB", size, COPY_PACKET))
            + _attr(CFG_FLAGS, struct.pack("!I", flags))
            + _attr(CFG_MASK, struct.pack("!I", FAIL_OPEN | GSO))
        )

    def _configure(self, attributes: bytes, *, ack: bool = False) -> None:
        flags = NLM_F_REQUEST | (NLM_F_ACK if ack else 0)
        self._send(CONFIG, attributes, flags)
        if ack:
            reply = self.socket.recv(RECEIVE_BYTES)
            kind = _nlmsghdr.unpack_from(reply)[1]
            code = struct.unpack_from("=i", reply, _nlmsghdr.size)[0] if kind == NLMSG_ERROR else 0
            if code:
                raise OSError(-code, f"the kernel's packet queue: {os.strerror(-code)}")

    def _send(self, message: int, attributes: bytes, flags: int = NLM_F_REQUEST) -> None:
        body = _nfgenmsg.pack(socket.AF_UNSPEC, 0, self._number) + attributes
        header = _nlmsghdr.pack(_nlmsghdr.size + len(body), SUBSYSTEM | message, flags, 0, 0)
        self.socket.send(header + body)

    def packets(self) -> Iterator[Packet]:
        """Those that wait now."""
        while True:
            try:
                data = self.socket.recv(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            yield from _parse(data)

    def accept(self, packet: int, data: bytes | None = None) -> None:
        """Let a packet go on; with ``data``, changed to that."""
        changed = _attr(PAYLOAD, data) if data is not None else b""
        self._verdict(ACCEPT, packet, changed)

    def drop(self, packet: int) -> None:
        self._verdict(DROP, packet)

    def _verdict(self, verdict: int, packet: int, more: bytes = b"") -> None:
        try:
            self._send(VERDICT, _attr(VERDICT_HDR, struct.pack("!II", verdict, packet)) + more)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EAGAIN, errno.ENOBUFS):
                raise  # otherwise the namespace is about to end with its packets

    def inject(self, data: bytes) -> None:
        """Put a copy of a packet in once more, as if it had arrived twice."""
        assert self._injector is not None
        address = socket.inet_ntoa(data[16:20])
        with contextlib.suppress(OSError):  # a full buffer, or a namespace that ends: not doubled
            self._injector.sendto(data, (address, 0))

    def close(self) -> None:
        """The kernel drops what waits, and lets the rest pass."""
        self.socket.close()
        if self._injector is not None:
            self._injector.close()


def _raw_socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    made.setsockopt(socket.SOL_SOCKET, SO_MARK, INJECTED_MARK)
    made.setblocking(False)
    return made


def _attr(kind: int, data: bytes) -> bytes:
    padding = b"\0" * (-len(data) % 4)
    return _attribute.pack(_attribute.size + len(data), kind) + data + padding


def _parse(data: bytes) -> Iterator[Packet]:
    """The packets of one datagram of the kernel."""
    at = 0
    while at + _nlmsghdr.size <= len(data):
        length, kind, _, _, _ = _nlmsghdr.unpack_from(data, at)
        if kind == SUBSYSTEM | PACKET:
            packet = _packet(data[at + _nlmsghdr.size + _nfgenmsg.size : at + length])
            if packet is not None:
                yield packet
        at += max(length + -length % 4, _nlmsghdr.size)


def _packet(attributes: bytes) -> Packet | None:
    identity, content, at = None, b"", 0
    while at + _attribute.size <= len(attributes):
        length, kind = _attribute.unpack_from(attributes, at)
        value = attributes[at + _attribute.size : at + length]
        if kind & TYPE_BITS == PACKET_HDR:
            identity = struct.unpack_from("!I", value)[0]
        elif kind & TYPE_BITS == PAYLOAD:
            content = value
        at += max(length + -length % 4, _attribute.size)
    return None if identity is None else Packet(identity, content)
