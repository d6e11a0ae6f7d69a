"""What is shown of a channel and of its consumers."""

from __future__ import annotations

import msgspec

from shalott.broker.rabbit.processes.messages import Pid


class ConsumerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer of a channel. ``prefetch`` 0: no limit of its own."""

    tag: str
    queue: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    priority: int


class ChannelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A living channel. ``prefetch``: of consumers to come; ``channel_prefetch``: of all."""

    number: int
    pid: Pid
    confirms: bool
    prefetch: int
    channel_prefetch: int
    unacknowledged: int
    unconfirmed: int
    consumers: tuple[ConsumerInfo, ...]
