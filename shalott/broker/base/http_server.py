"""ManagementServer: HTTP/1.1 over asyncio streams, with h11 as the protocol's state machine.

Requests of one connection are answered one after the other, pipelined ones too. A request that is
not HTTP gets 400 and the connection is closed; one that is too large gets 413.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from shalott.broker.base.errors import cannot_listen
from shalott.broker.base.http_api import ApiError, Request, Response, bad_request
from shalott.broker.base.listener import listen
from shalott.broker.base.tasks import Tasks
from shalott.broker.base.tls import TlsConfig

log = logging.getLogger("shalott.broker.management")

BODY_BYTES_MAX = 1 << 20
HEAD_BYTES_MAX = 64 << 10
READ_BYTES = 64 << 10
IDLE_TIMEOUT_S = 60  # for a whole request to arrive
WRITE_TIMEOUT_S = 30
LINGER_S = 2  # for a client that was refused to see the answer

Respond = Callable[[Request], Awaitable[Response]]


class ManagementServer:
    """``respond`` answers each request (see broker.rabbit.management.api). ``tls``: over it."""

    def __init__(
        self, respond: Respond, *, host: str, port: int, tls: TlsConfig | None = None
    ) -> None:
        self._respond = respond
        self._tls = tls
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._serving = Tasks()

    @property
    def port(self) -> int:
        """The port in use: another than asked for if that was 0."""
        return self._port

    async def start(self) -> None:
        """Listen. Raises ConfigError if the port can't be had."""
        try:
            self._server = await listen(self._accepted, self._host, self._port, self._tls)
        except OSError as error:
            raise cannot_listen("HTTP", self._host, self._port, "management_port", error) from error
        self._port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and cut off those who are being served."""
        if self._server is not None:
            self._server.close()
        await self._serving.end()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.start(self._serve(reader, writer), "management connection")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await Exchange(self._respond, reader, writer).run()
            writer.close()
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await writer.wait_closed()
        except (OSError, TimeoutError) as error:
            log.debug("a client went away: %r", error)
        finally:
            writer.transport.abort()


def _head(status: int, headers: list[tuple[str, str]]) -> h11.Response:
    """Clients show their users the reason."""
    return h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)


class Exchange:
    """One connection, from its first request to its last."""

    def __init__(
        self, respond: Respond, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._respond = respond
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def run(self) -> None:
        """Raises OSError or TimeoutError when the client is gone."""
        while True:
            try:
                request = await self._read_request()
            except h11.RemoteProtocolError as error:
                refusal = ApiError(error.error_status_hint, "bad_request", str(error))
                await self._refuse(refusal)
                return
            except ApiError as error:
                await self._refuse(error)
                return
            if request is None:
                return
            await self._send(await self._answer(request), request.method)
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._respond(request)
        except Exception:
            # A fault of ours, not of the caller's. The node must still answer other requests.
            log.exception("no answer to %s /%s", request.method, "/".join(request.segments))
            reason = "the node's log says more"
            return ApiError(500, "Internal Server Error", reason).response()

    async def _read_request(self) -> Request | None:
        """The next request, or None if the client has no more. Raises ApiError and h11's errors."""
        head: h11.Request | None = None
        body: list[bytes] = []
        size = 0
        async with asyncio.timeout(IDLE_TIMEOUT_S):
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    await self._continue_if_waited_for()
                    self._http.receive_data(await self._reader.read(READ_BYTES))
                elif isinstance(event, h11.Request):
                    head = event
                elif isinstance(event, h11.Data):
                    size += len(event.data)
                    if size > BODY_BYTES_MAX:
                        reason = f"the body is over {BODY_BYTES_MAX} bytes"
                        raise ApiError(413, "content_too_large", reason)
                    body.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    assert head is not None
                    peer = self._writer.get_extra_info("peername") or ("",)
                    return _request(head, b"".join(body), str(peer[0]))
                else:
                    return None

    async def _continue_if_waited_for(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            await self._write(h11.InformationalResponse(status_code=100, headers=[]))

    async def _refuse(self, error: ApiError) -> None:
        """Answer what could not be read, if the protocol still allows it.

        The connection ends then.
        """
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = {**error.headers, "Connection": "close"}
            await self._send(Response(error.status, error.response().body, headers), "")
            await self._linger()

    async def _linger(self) -> None:
        """Read on for a moment: to close with bytes unread would reset the connection, and with it
        take the answer from a client that is still sending.
        """
        self._writer.write_eof()
        try:
            async with asyncio.timeout(LINGER_S):
                while await self._reader.read(READ_BYTES):
                    pass
        except TimeoutError:
            pass

    async def _send(self, response: Response, method: str) -> None:
        headers = [("Content-Length", str(len(response.body))), ("Cache-Control", "no-cache")]
        if response.body and "Content-Type" not in response.headers:
            headers.append(("Content-Type", "application/json"))
        if response.status == 204:
            del headers[0]
        headers += response.headers.items()
        data = self._encode(_head(response.status, headers))
        if response.body and method != "HEAD":
            data += self._encode(h11.Data(data=response.body))
        data += self._encode(h11.EndOfMessage())
        await self._write_bytes(data)

    def _encode(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""

    async def _write(self, event: h11.Event) -> None:
        await self._write_bytes(self._encode(event))

    async def _write_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._writer.drain()


def _request(head: h11.Request, body: bytes, peer: str) -> Request:
    """Raises ApiError(400) if the target can't be understood."""
    try:
        target = urlsplit(head.target.decode("ascii"))
        raw = target.path.strip("/")
        segments = tuple(unquote(part, errors="strict") for part in raw.split("/"))
    except ValueError as error:
        raise bad_request(f"the path can't be understood: {error}") from error
    return Request(
        method=head.method.decode("ascii"),
        segments=segments,
        query=dict(parse_qsl(target.query, keep_blank_values=True)),
        headers={name.decode("ascii"): value.decode("latin-1") for name, value in head.headers},
        body=body,
        peer=peer,
    )
