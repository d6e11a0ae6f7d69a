"""Command: one frame of RocketMQ's remoting protocol, as a value.

A request names what is wanted in ``code`` and answers carry the outcome there; ``opaque`` matches
the two. After remoting/protocol/RemotingCommand.java.
"""

from __future__ import annotations

import msgspec

from shalott.broker.rocket.remoting.codes import Language

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

JSON = 0
BINARY = 1

# Upstream numbers its releases; peers guess from it what we understand. This is one of 5.x.
VERSION = 459


class Command(msgspec.Struct, kw_only=True):
    """A request or an answer. ``ext`` is the header of its code, everything as text."""

    code: int
    ext: dict[str, str] = {}
    body: bytes = b""
    remark: str = ""
    opaque: int = 0
    flag: int = 0
    language: int = Language.OTHER
    version: int = VERSION
    serialize: int = JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether nobody waits for an answer."""
        return bool(self.flag & ONEWAY_FLAG)


def response(
    code: int, remark: str = "", ext: dict[str, str] | None = None, body: bytes = b""
) -> Command:
    """An answer. The server adds what makes it the answer to its request."""
    fields = {} if ext is None else ext
    return Command(code=code, remark=remark, ext=fields, body=body, flag=RESPONSE_FLAG)


def answering(request: Command, answer: Command) -> Command:
    """``answer`` as the answer to ``request``: same number, same encoding."""
    return msgspec.structs.replace(
        answer,
        opaque=request.opaque,
        flag=answer.flag | RESPONSE_FLAG,
        serialize=request.serialize,
    )
