"""shalott-etcd's watches: each promise has a history that breaks it; the client hides nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from shalott.checkers.checker import Result
from shalott.cluster.nodes import Endpoint
from shalott.core.errors import Definite, UsageError
from shalott.core.generator import Completed, Context, Scheduled
from shalott.core.history import EMPTY_EVENTS, HISTORY_SCHEMA, History
from shalott.core.op import Completion, Invocation, OpType
from shalott.core.plan import ClusterPlan, GatePlan, Plan, SystemPlan, WorkloadPlan
from shalott_etcd import client, watch_checker, watches
from tests.plugins.test_etcd import TIMED_OUT, b64, done, events, pair

pytestmark = pytest.mark.unit


def row(f: str, **changes: object) -> dict[str, object]:
    of_all = {"process": 0, "node": "n1", "f": f, "key": "", "type": "ok"}
    return {**of_all, "invoke_ns": 0, "complete_ns": 10**9, **changes}


def put(key: str, value: int | None, revision: int, **changes: object) -> dict[str, object]:
    f = "put" if value is not None else "delete"
    return row(f, key=key, value=value, offset=revision, **changes)


def watch(start: int, *told: Sequence[object], stream: int = 1, **changes: object) -> Any:
    extra = {"stream": stream, "start": start, "told": told, "ended": ""}
    return row("watch", extra=json.dumps(extra), **{"process": 5, **changes})


def judged(*rows: Mapping[str, object]) -> Result:
    full: list[dict[str, object]] = [
        {**dict.fromkeys(HISTORY_SCHEMA.names), **each} for each in rows
    ]
    for index, each in enumerate(full):
        each["index"] = index
    table = pa.Table.from_pylist(full, schema=HISTORY_SCHEMA)
    return watch_checker.Watches().check(History(table, EMPTY_EVENTS))


A, B, C = put("a", 1, 5), put("b", 2, 6), put("a", None, 7)
ALL = ([5, "a", 1], [6, "b", 2], [7, "a", None])


def test_watches_that_keep_their_promises_are_valid() -> None:
    result = judged(
        A, B, C, watch(5, *ALL), watch(6, *ALL[1:], [7], process=6), watch(90, stream=2)
    )
    assert (result.valid, result.anomalies) == (True, ())
    assert result.counts["event-count"] == 5


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("before-start", [A, B, C, watch(6, *ALL)]),
        ("went-back", [A, B, C, watch(5, *ALL, [6, "b", 2])]),
        ("went-back", [A, B, C, watch(5, ALL[0]), watch(5, *ALL)]),  # of one stream
        ("missed", [A, B, C, watch(5, ALL[0], ALL[2])]),
        ("missed", [A, B, watch(5, *ALL), watch(5, *ALL[1:], stream=2)]),  # another watch knows
        ("progress-ahead", [A, B, C, watch(5, ALL[0], [6], *ALL[1:])]),
        ("disagree", [A, B, watch(5, ALL[0], [6, "b", 3])]),
        ("disagree", [A, B, watch(5, *ALL[:2], [8, "b", 2]), put("b", 2, 8)]),
        ("revision-back", [put("a", 1, 9, complete_ns=5), put("b", 2, 9, invoke_ns=6),
                           watch(10, [10, "c", 4])]),
    ],
)  # fmt: skip
def test_each_broken_promise_is_found(kind: str, rows: Sequence[Mapping[str, object]]) -> None:
    result = judged(*rows)
    assert result.valid is False
    assert kind in {each.kind for each in result.anomalies}


def test_writes_at_one_time_may_have_any_revisions() -> None:
    assert judged(put("a", 1, 9), put("b", 2, 8), watch(8, [8, "b", 2], [9, "a", 1])).valid is True


def test_nothing_watched_proves_nothing() -> None:
    assert judged(A, B, C).valid == "unknown"


# -- the client ------------------------------------------------------------------------------------


def made(host: str, port: int, *, timeout_ms: int) -> watches.WatchClient:
    return watches.WatchClient(client.Store(host, port, timeout_ms=timeout_ms), watches.Known(40))


def asked(f: str, **extra: object) -> Invocation:
    return Invocation(f=f, key="a", value=3, extra={"for_ms": 1000, **extra})


def test_writes_tell_their_revisions() -> None:
    answers = [(200, {"header": {"revision": "7"}}), (200, {"header": {"revision": "8"}}),
               (200, {"header": {"revision": "9"}, "deleted": "1"}), (503, TIMED_OUT)]  # fmt: skip

    async def act(one: watches.WatchClient) -> list[tuple[str, int | None]]:
        got = [await one.invoke(asked(f)) for f in ("put", "delete", "delete")]
        return [(each.type, each.offset) for each in got]

    got, requests = done(made, act, answers)
    assert got == [("ok", 7), ("fail", None), ("ok", 9)]
    assert requests[0] == ("/v3/kv/put", {"key": b64("watch/a"), "value": b64("3")})


def test_what_is_known_is_compacted() -> None:
    got, requests = done(made, lambda one: one.invoke(asked("compact")), [(200, {})])
    assert (got.type, got.offset) == ("ok", None)
    assert requests == [("/v3/kv/compaction", {"revision": "40"})]


def told(completion: Completion) -> Mapping[str, Any]:
    assert completion.extra is not None
    return completion.extra


def test_a_watch_tells_all_that_came_in_its_order() -> None:
    """Also what came again, and what was from before its start. Nonsense ends it."""
    lines = [{"created": True}, events(pair("watch/a", 10, 52), pair("watch/b", 20, 51)),
             {"header": {"revision": "60"}},
             {"events": [{"type": "DELETE", "kv": {"key": b64("watch/a"), "mod_revision": "61"}}]},
             "nonsense",
             ]  # fmt: skip
    got, _ = done(
        made, lambda one: one.invoke(asked("watch", offset=12, for_ms=60_000)), [], watch=lines
    )
    assert told(got)["ended"]
    assert (told(got)["stream"], told(got)["start"]) == (1, 53)
    assert told(got)["told"] == [[52, "a", 10], [51, "b", 20], [60], [61, "a", None]]


def test_progress_is_that_of_watches_that_were_created() -> None:
    """etcd 3.7.3 may tell it of the stream first, then of the watch, then its event."""
    lines = [{"header": {"revision": "53"}}, {"created": True}, events(pair("watch/a", 10, 53)),
             {"header": {"revision": "53"}}, "nonsense"]  # fmt: skip
    got, _ = done(
        made, lambda one: one.invoke(asked("watch", offset=12, for_ms=60_000)), [], watch=lines
    )
    assert told(got)["told"] == [[53, "a", 10], [53]]


def test_a_watch_goes_on_and_one_that_broke_resumes() -> None:
    async def act(one: watches.WatchClient) -> list[tuple[int, int]]:
        first = told(await one.invoke(asked("watch")))
        again = told(await one.invoke(asked("watch")))
        assert one.stream is not None
        one.stream.watch.close()
        broken = told(await one.invoke(asked("watch")))
        resumed = told(await one.invoke(asked("watch")))
        assert broken["ended"]
        return [(each["stream"], each["start"]) for each in (first, again, broken, resumed)]

    got, _ = done(made, act, [], watch=[events(pair("watch/a", 10, 52))])
    assert got == [(1, 41), (1, 41), (1, 41), (2, 53)]


def test_a_watch_that_wants_what_is_compacted_begins_anew() -> None:
    async def act(one: watches.WatchClient) -> int:
        ended = told(await one.invoke(asked("watch", offset=-9)))
        assert "canceled" in ended["ended"]
        return one.resume

    lines = [{"canceled": True, "cancel_reason": "compacted"}]
    assert done(made, act, [], watch=lines)[0] == 0


def test_no_watch_is_no_operation() -> None:
    async def act(one: watches.WatchClient) -> object:
        one.store.at = Endpoint("127.0.0.1", 1)
        return await one.invoke(asked("watch"))

    assert isinstance(done(made, act, [])[0], Definite)


# -- the plan --------------------------------------------------------------------------------------


def plan(**parameters: object) -> Plan:
    return Plan(
        name="etcd",
        seed=5,
        time_limit_ms=1000,
        cluster=ClusterPlan(backend="docker", nodes=("n1",)),
        system=SystemPlan(name="etcd", profile="default"),
        workload=WorkloadPlan(
            name="etcd-watches", rate_hz=10, concurrency=6, parameters=parameters
        ),
        gates=GatePlan(),
        faults=(),
    )


def test_some_watch_and_the_others_write_each_value_once() -> None:
    wanted_by = plan(watchers=2, reopen_share=1.0, compact_share=0.2)
    generator = watches.generator(wanted_by, "load", 10**6)
    values, offsets, fs = [], [], set()
    for turn in range(200):
        context = Context(now_ns=turn * 10**9, process=turn % 6, node="n1")
        answer, generator = generator.next(context)
        assert isinstance(answer, Scheduled)
        wanted = answer.invocation
        assert (wanted.f == "watch") == (context.process < 2)
        fs.add(wanted.f)
        values += [wanted.value] if wanted.f == "put" else []
        offsets += [wanted.extra["offset"]] if wanted.extra else []
    assert len(set(values)) == len(values) > 50
    assert fs == {"watch", "put", "delete", "compact"}
    assert -50 <= min(offsets) < max(offsets) <= 0


@pytest.mark.parametrize(
    ("kind", "every_ms", "at_ns"),
    [("fail", 0, 1_500_000_000), ("ok", 0, 10**9), ("ok", 2000, 3 * 10**9)],
    ids=("found no member", "goes on", "reads now and then"),
)
def test_when_a_watcher_reads_again(kind: OpType, every_ms: int, at_ns: int) -> None:
    generator = watches.generator(plan(watch_every_ms=every_ms), "load", 10**6)
    ended = Completed(
        now_ns=10**9, process=0, node="n1", invocation=Invocation(f="watch"), kind=kind
    )
    answer, _ = generator.update(ended).next(Context(now_ns=10**9, process=0, node="n1"))
    assert isinstance(answer, Scheduled)
    assert answer.at_ns == at_ns


def test_somebody_must_write() -> None:
    watches.check(plan(watchers=5))
    with pytest.raises(UsageError, match="nobody writes"):
        watches.check(plan(watchers=6))


def test_a_watch_ends_before_its_operation_does() -> None:
    with pytest.raises(UsageError, match="no operation has 5000 ms"):
        watches.check(plan(watch_for_ms=5001))
