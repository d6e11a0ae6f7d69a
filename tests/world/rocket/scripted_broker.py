"""A name server and a broker that answer sends and pulls as a test wants, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.codec import Encoder
from shalott.broker.rocket.config import RocketConfig, parse_address
from shalott.broker.rocket.nameserver.server import NameServer
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller, Handler, RemotingServer
from tests.world.clock.virtual import HOST, env, run
from tests.world.rocket.registering import body, header, register_command

NAME_SERVER_PORT, BROKER_PORT = 9876, 10911
NAME_SERVER, BROKER = f"{HOST}:{NAME_SERVER_PORT}", f"{HOST}:{BROKER_PORT}"
MAX_MESSAGE_BYTES = 4 << 20


class FakeBroker:
    """Keeps messages of one queue. ``answers`` are given to sends instead, in order; None: none."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.first = 0
        self.offsets: dict[str, int] = {}
        self.answers: list[Command | None] = []
        self.pull_answers: list[Command] = []
        self.requests: list[Command] = []
        self._changed = asyncio.Event()
        self._encoder = Encoder(MAX_MESSAGE_BYTES)
        handlers: dict[int, Handler] = {
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.make_topic,
        }
        self.server = RemotingServer(handlers, host=HOST, port=BROKER_PORT)

    def store(self, request: Command) -> dict[str, str]:
        fields = request.ext
        queue_offset = self.first + len(self.messages)
        message = Message(
            topic=fields["b"],
            queue_id=int(fields["e"]),
            body=request.body,
            properties=fields["i"],
        )
        self.messages.append(
            self._encoder.encode(message, 100 * queue_offset, queue_offset, 1000 + queue_offset)
        )
        self._changed.set()
        self._changed.clear()
        return {
            "msgId": f"id{queue_offset}",
            "queueId": fields["e"],
            "queueOffset": str(queue_offset),
        }

    async def send(self, request: Command, caller: Caller) -> Command | None:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else response(ResponseCode.SUCCESS)
        if answer is None:
            caller.abort()
        elif answer.code in (0, 10, 11, 12):
            answer.ext = self.store(request)
        return answer

    async def make_topic(self, request: Command, caller: Caller) -> Command:
        self.requests.append(request)
        return response(ResponseCode.SUCCESS)

    async def pull(self, request: Command, caller: Caller) -> Command:
        self.requests.append(request)
        if self.pull_answers:
            return self.pull_answers.pop(0)
        offset = int(request.ext["queueOffset"])
        end = self.first + len(self.messages)
        if offset == end and int(request.ext["sysFlag"]) & 2:
            try:
                async with asyncio.timeout(int(request.ext["suspendTimeoutMillis"]) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass
            end = self.first + len(self.messages)
        if not self.first <= offset <= end:
            return pull_answer(ResponseCode.PULL_OFFSET_MOVED, end)
        if offset == end:
            return pull_answer(ResponseCode.PULL_NOT_FOUND, offset)
        count = int(request.ext["maxMsgNums"])
        found = self.messages[offset - self.first :][:count]
        return pull_answer(ResponseCode.SUCCESS, offset + len(found), b"".join(found))

    async def min_offset(self, request: Command, caller: Caller) -> Command:
        return response(0, ext={"offset": str(self.first)})

    async def max_offset(self, request: Command, caller: Caller) -> Command:
        return response(0, ext={"offset": str(self.first + len(self.messages))})

    async def search(self, request: Command, caller: Caller) -> Command:
        return response(0, ext={"offset": str(int(request.ext["timestamp"]) - 1000)})

    async def query(self, request: Command, caller: Caller) -> Command:
        offset = self.offsets.get(request.ext["consumerGroup"])
        if offset is None:
            return response(ResponseCode.QUERY_NOT_FOUND, "never")
        return response(0, ext={"offset": str(offset)})

    async def update(self, request: Command, caller: Caller) -> Command:
        self.offsets[request.ext["consumerGroup"]] = int(request.ext["commitOffset"])
        return response(0)


def pull_answer(code: int, next_offset: int, body: bytes = b"") -> Command:
    ext = {"nextBeginOffset": str(next_offset), "minOffset": "0", "maxOffset": str(next_offset)}
    return response(code, ext=ext, body=body)


class World:
    """``register`` tells the name server of a master, by default of the fake broker."""

    def __init__(self) -> None:
        config = RocketConfig(
            system="master-slave",
            name="n1",
            data_dir="data",
            services=("nameserver",),
            ports={"nameserver": NAME_SERVER_PORT},
            advertised={"nameserver": NAME_SERVER},
            bind_host=HOST,
        )
        self.name_server = NameServer(env(), config)
        self.broker = FakeBroker()
        self._registrar = RemotingClient(parse_address)

    async def register(self, address: str = BROKER, *, topic: str = "T", epoch: int = 0) -> None:
        command = register_command(header(address), body(topic, epoch=epoch))
        answer = await self._registrar.invoke(NAME_SERVER, command, 1000)
        assert answer.code == ResponseCode.SUCCESS

    async def start(self) -> None:
        await self.name_server.start()
        await self.broker.server.start()
        await self.register()

    async def stop(self) -> None:
        await self._registrar.close()
        await self.broker.server.stop()
        await self.name_server.stop()


def in_world(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        await world.start()
        try:
            await test(world)
        finally:
            await world.stop()

    run(main())
