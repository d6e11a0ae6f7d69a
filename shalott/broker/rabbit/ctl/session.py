"""Session: one node that is asked, and what its answers mean to an operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from shalott.broker.base.http_client import Asked, Unreachable
from shalott.broker.rabbit.ctl.arguments import CtlError, Typed

EXIT_DATA = 65  # EX_DATAERR: of a vhost that is not there
EXIT_NO_USER = 67  # EX_NOUSER
EXIT_UNAVAILABLE = 69  # EX_UNAVAILABLE: no node answers, or the one that does refuses


class NoAnswer(CtlError):
    """Nobody is there."""


@dataclass(slots=True)
class Session:
    """``node``: the name of who is asked, for the texts. ``said``: lines for stdout."""

    asked: Asked
    node: str
    typed: Typed
    said: list[str] = field(default_factory=list)

    def inform(self, text: str) -> None:
        """A line that --quiet leaves out."""
        if not self.typed.is_quiet:
            self.said.append(text)

    def say(self, lines: Sequence[str]) -> None:
        self.said += lines

    async def get(self, *segments: str) -> Any:
        return await self.ask("GET", segments)

    @property
    def words(self) -> str:
        """The verb and what stands behind it."""
        return " ".join((self.typed.verb, *self.typed.arguments))

    async def ask(
        self,
        method: str,
        segments: Sequence[str],
        body: Any = None,
        *,
        query: str = "",
        missing: str = "",
    ) -> Any:
        """The decoded answer. Raises CtlError, with ``missing`` for what is not there."""
        path = "/api/" + "/".join(quote(segment, safe="") for segment in segments)
        path += f"?{query}" if query else ""
        content = b"" if body is None else msgspec.json.encode(body)
        try:
            answer = await self.asked.request(method, path, content)
        except Unreachable as error:
            raise NoAnswer(
                EXIT_UNAVAILABLE,
                f"Error: unable to perform an operation on node '{self.node}'. Please see"
                f" diagnostics information and suggestions below.\n\n{error}",
            ) from error
        told = msgspec.json.decode(answer.body) if answer.body else None
        if answer.status < 300:
            return told
        if answer.status == 404 and missing:
            raise CtlError(EXIT_UNAVAILABLE, f"Error:\n{missing}")
        reason = told.get("reason") if isinstance(told, dict) else None
        text = reason or f"the node answered {answer.status}"
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\n{text}")
