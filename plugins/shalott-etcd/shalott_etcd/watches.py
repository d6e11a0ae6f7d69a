"""etcd-watches: puts, deletes and watches of the same keys, judged by what etcd says of watches.

Some clients write, each key and value once; the others watch all keys, each on its node, on one
stream after another. A new stream begins some revisions before or behind the newest that any client
knows of: behind it is what a client asks for that comes from another member. One that breaks goes
on where it was. A stream stays open from operation to operation, and tells its progress.

What must hold (checker ``watches``): https://etcd.io/docs/latest/learning/api_guarantees
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import h11
import msgspec

import shalott.api as api
from shalott_etcd.client import Done, Header, Store, Watch, Watched, encode
from shalott_etcd.watch_checker import Watches

PREFIX = "watch/"
WATCH, PUT, DELETE, COMPACT = "watch", "put", "delete", "compact"
AFTERWARDS_MS = 3000


class WatchParameters(msgspec.Struct, frozen=True, kw_only=True):
    watchers: Annotated[
        int, msgspec.Meta(ge=0, description="Clients that watch; 0: half of them.")
    ] = 0
    watched_keys: Annotated[int, msgspec.Meta(ge=1, le=1000, description="Keys.")] = 20
    delete_share: Annotated[float, msgspec.Meta(ge=0, le=1, description="Of the writes.")] = 0.1
    compact_share: Annotated[
        float,
        msgspec.Meta(ge=0, le=1, description="Of the writes: a compaction of all there is."),
    ] = 0.0
    reopen_share: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="A watch begins anew so often.")
    ] = 0.2
    watch_back: Annotated[int, msgspec.Meta(ge=0, description="Revisions into the past.")] = 50
    watch_ahead: Annotated[int, msgspec.Meta(ge=0, description="Revisions ahead.")] = 0
    watch_for_ms: Annotated[int, msgspec.Meta(ge=1, description="Of one operation.")] = 500
    watch_every_ms: Annotated[
        int, msgspec.Meta(ge=0, description="What a watch tells is not read for so long meanwhile.")
    ] = 0
    body_of: Annotated[int, msgspec.Meta(ge=0, description="Bytes of a value.")] = 0


def parameters_of(plan: api.Plan) -> WatchParameters:
    asked = api.make_parameters(WatchParameters, plan.workload.parameters)
    watchers = asked.watchers or plan.workload.concurrency // 2
    return msgspec.structs.replace(asked, watchers=watchers)


@dataclass(slots=True)
class Known:
    """What the clients of a run know together: the newest revision that any of them was told of,
    and how many streams they have opened."""

    newest: int = 0
    streams: int = 0

    def tell(self, revision: int) -> None:
        self.newest = max(self.newest, revision)


@dataclass(slots=True)
class Stream:
    watch: Watch
    number: int
    start: int
    is_created: bool = False  # progress that is told before covers no watch yet


class Deleted(msgspec.Struct, frozen=True):
    header: Header = Header()
    deleted: str = "0"


@dataclass(slots=True)
class WatchClient:
    """Puts and deletes tell their revision as ``offset``; a watch tells, in ``extra``, its stream,
    where that began, and in order [revision, key, value] of each event, a value of None for a
    delete, and [revision] of each progress."""

    store: Store
    known: Known
    body_bytes: int = 0
    stream: Stream | None = None
    resume: int = 0  # where a stream that broke goes on; 0: nowhere

    async def open(self) -> None: ...

    async def close(self) -> None:
        if self.stream is not None:
            self.stream.watch.close()
            self.stream = None

    async def invoke(self, invocation: api.Invocation) -> api.Completion:
        if invocation.f == WATCH:
            asked = invocation.extra or {}
            return await self._watch(asked.get("offset"), asked["for_ms"])
        if invocation.f == COMPACT:
            until = {"revision": str(self.known.newest)}
            await self.store.ask("compaction", until, dict[str, object])
            return api.Completion(type="ok")
        key = encode(PREFIX + invocation.key)
        if invocation.f == PUT:
            value = encode(str(invocation.value).ljust(self.body_bytes))
            done = await self.store.ask("put", {"key": key, "value": value}, Done)
        elif invocation.f == DELETE:
            gone = await self.store.ask("deleterange", {"key": key}, Deleted)
            if gone.deleted == "0":
                return api.Completion(type="fail", error="nothing was there")
            done = Done(header=gone.header)
        else:
            raise api.Definite(f"a client of watches knows no {invocation.f}")
        revision = int(done.header.revision)
        self.known.tell(revision)
        return api.Completion(type="ok", offset=revision)

    async def _watch(self, offset: int | None, for_ms: int) -> api.Completion:
        told: list[list[object]] = []
        why = ""
        stream = self.stream
        try:
            async with asyncio.timeout(for_ms / 1000):
                if stream is None or offset is not None:
                    stream = await self._open(offset or 0)
                while True:
                    self._take(stream, await stream.watch.next(), told)
        except TimeoutError:
            pass  # it was watched as long as it should be
        except (OSError, h11.RemoteProtocolError, msgspec.DecodeError, api.Definite) as error:
            why = str(error)
            if "canceled" in why:
                self.resume = 0  # what it wants is compacted
            await self.close()
        if stream is None:
            raise api.Definite(f"no watch: {why or 'no answer in time'}")
        extra = {"stream": stream.number, "start": stream.start, "told": told, "ended": why}
        return api.Completion(type="ok", extra=extra)

    async def _open(self, offset: int) -> Stream:
        broken = self.stream is None
        await self.close()
        start = self.resume if broken and self.resume else max(1, self.known.newest + 1 + offset)
        watch = await Watch.open(self.store.at, PREFIX, start, progress=True)
        self.known.streams += 1
        self.resume = start
        self.stream = Stream(watch, self.known.streams, start)
        return self.stream

    def _take(self, stream: Stream, heard: Watched, told: list[list[object]]) -> None:
        for event in heard.events:
            revision = int(event.kv.mod_revision)
            key = base64.b64decode(event.kv.key).decode().removeprefix(PREFIX)
            value = None if event.type == "DELETE" else int(event.kv.text())
            told.append([revision, key, value])
            self.known.tell(revision)
            self.resume = max(self.resume, revision + 1)
        if heard.created:
            stream.is_created = True
        elif not heard.events and stream.is_created:
            told.append([int(heard.header.revision)])


class Writes(msgspec.Struct, frozen=True):
    """Each value once."""

    keys: int
    delete_share: float
    compact_share: float
    key: int
    count: int = 0

    def next(self, context: api.Context) -> tuple[api.Answer, api.Generator]:
        which = str(api.draw_below(self.key, 2 * self.count, self.keys))
        drawn = api.draw_float(self.key, 2 * self.count + 1)
        if drawn < self.compact_share:
            asked = api.Invocation(f=COMPACT)
        elif drawn < self.compact_share + self.delete_share:
            asked = api.Invocation(f=DELETE, key=which)
        else:
            asked = api.Invocation(f=PUT, key=which, value=self.count + 1)
        after = msgspec.structs.replace(self, count=self.count + 1)
        return api.Scheduled(context.now_ns, asked), after

    def update(self, event: api.Completed) -> api.Generator:
        return self


class WatchMix(msgspec.Struct, frozen=True):
    """The first few clients watch without a pause, the others write as ``writes`` says. One that
    finds no member tries again when an operation's time has passed."""

    writes: api.Generator
    asked: WatchParameters
    concurrency: int
    key: int
    count: int = 0
    later_ns: Mapping[int, int] = {}  # by process

    def next(self, context: api.Context) -> tuple[api.Answer, api.Generator]:
        if context.process % self.concurrency >= self.asked.watchers:
            answer, writes = self.writes.next(context)
            return answer, msgspec.structs.replace(self, writes=writes)
        extra: dict[str, object] = {"for_ms": self.asked.watch_for_ms}
        if api.draw_float(self.key, 2 * self.count) < self.asked.reopen_share:
            back, ahead = self.asked.watch_back, self.asked.watch_ahead
            extra["offset"] = api.draw_below(self.key, 2 * self.count + 1, back + ahead + 1) - back
        after = msgspec.structs.replace(self, count=self.count + 1)
        at_ns = max(context.now_ns, self.later_ns.get(context.process, 0))
        return api.Scheduled(at_ns, api.Invocation(f=WATCH, extra=extra)), after

    def update(self, event: api.Completed) -> api.Generator:
        if event.invocation.f != WATCH:
            return self
        found = event.kind == "ok"
        wait_ms = self.asked.watch_every_ms if found else self.asked.watch_for_ms
        at_ns = event.now_ns + wait_ms * 1_000_000
        later_ns = {**self.later_ns, event.process: at_ns}
        return msgspec.structs.replace(self, later_ns=later_ns)


def generator(plan: api.Plan, part: str, limit_ms: int) -> api.Generator:
    """``afterwards`` writes on, so that what a watch has left out is seen."""
    asked = parameters_of(plan)
    writes = Writes(
        keys=asked.watched_keys,
        delete_share=asked.delete_share,
        compact_share=asked.compact_share,
        key=api.stream_key(plan.seed, "watches", part, "writes"),
        count=0 if part == "load" else 1_000_000_000,
    )
    gaps = api.stream_key(plan.seed, "watches", part, "gaps")
    mix = WatchMix(
        writes=api.Stagger(writes, 1e9 / plan.workload.rate_hz, gaps),
        asked=asked,
        concurrency=plan.workload.concurrency,
        key=api.stream_key(plan.seed, "watches", part, "watches"),
    )
    return api.TimeLimit(mix, limit_ms * 1_000_000)


def build(plan: api.Plan) -> api.Workload:
    known, asked = Known(), parameters_of(plan)

    def make_client(host: str, port: int) -> api.Client:
        store = Store(host, port, timeout_ms=plan.workload.op_timeout_ms)
        return WatchClient(store, known, body_bytes=asked.body_of)

    return api.Workload(
        name="etcd-watches",
        queues=(),
        port="client",
        make_client=make_client,
        generator=generator(plan, "load", plan.time_limit_ms),
        final_generator=generator(plan, "afterwards", AFTERWARDS_MS),
    )


def checkers(plan: api.Plan) -> Sequence[api.Checker]:
    return (Watches(),)


def check(plan: api.Plan) -> None:
    """Raises UsageError."""
    asked, limit_ms = parameters_of(plan), plan.workload.op_timeout_ms
    if asked.watch_for_ms > limit_ms:
        raise api.UsageError(f"--watch-for {asked.watch_for_ms}ms: no operation has {limit_ms} ms")
    watchers = asked.watchers
    if watchers >= plan.workload.concurrency:
        raise api.UsageError(
            f"--watchers {watchers}: with {plan.workload.concurrency} clients nobody writes"
        )


WORKLOAD = api.WorkloadRecord(
    name="etcd-watches",
    summary="puts and deletes, and watches of them, judged by what etcd says of watches",
    needs=("watches",),
    parameters=WatchParameters,
    build=build,
    checkers=checkers,
    check=check,
    describe=lambda plan: f"{parameters_of(plan).watchers} clients watch",
    reads=(WATCH,),
    lower=("watchers", "watched_keys"),
)
