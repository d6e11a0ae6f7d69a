"""Triggers: what a fault waits for is noticed and told, or the fault is skipped with a reason."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec
import pytest

from shalott.checkers.history.faults import read_surroundings
from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import FaultAction, Trigger
from shalott.harness.shrinking.candidates import fewer_nodes, measure
from shalott.nemesis.record import FAULTS
from shalott.nemesis.requirements import check_actions, check_system, required_capabilities
from shalott.nemesis.runner import NemesisRunner
from shalott.nemesis.trigger_words import parse_trigger, trigger_text, with_triggers
from shalott.nemesis.triggers import CHANGES, Matcher
from shalott.nemesis.weaker import weaker_actions
from tests.world.clock import virtual
from tests.world.clock.turns import passes
from tests.world.harness.nemesis import NODES, FakeCluster, FakeSystem, MemoryRecorder, make_plan

pytestmark = pytest.mark.unit

MASTER = [{"group": "q1", "role": "master", "synchronised": ["n2", "n3"], "state": "running"}]
NOBODY = [{"group": "q1", "role": "mirror"}]


class WritingSystem(FakeSystem):
    """Its nodes write events, as the cluster below is told."""

    events_file = "events.jsonl"


class FollowedCluster(FakeCluster):
    """Nodes' files can be read, and the syncs of their disks awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.written = dict.fromkeys(NODES, b"")
        self.disks.await_syncs = self.await_syncs
        self.parts.disks = self.disks
        self.syncs = asyncio.Event()
        self.asked_syncs: list[tuple[str, int]] = []

    async def read(self, node: str, path: str, offset: int) -> bytes:
        assert path == "events.jsonl"
        if self.states[node] == "exited":
            raise HarnessError(f"{node} does not run")
        return self.written[node][offset:]

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        self.asked_syncs.append((node, count))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.syncs.wait()
        except TimeoutError:
            return False
        return node == "n2"


class ToldCluster(FakeCluster):
    """Events are heard at once."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: Callable[[str, Mapping[str, Any]], None] | None = None

    def watch_events(self, tell: Callable[[str, Mapping[str, Any]], None]) -> Callable[[], None]:
        self.tell = tell

        def stop() -> None:
            self.tell = None

        return stop


class Scene:
    """One kill of n2 that waits. Built inside the event loop."""

    def __init__(
        self, when: Trigger, cluster: FakeCluster | None = None, system: FakeSystem | None = None
    ) -> None:
        self.cluster = cluster or FakeCluster()
        self.system = system or FakeSystem(dict.fromkeys(NODES, NOBODY))
        self.recorder = MemoryRecorder()
        self.runner = NemesisRunner(
            self.cluster,  # type: ignore[arg-type]
            self.system,  # type: ignore[arg-type]
            make_plan(kill(when)),
            self.recorder,
            proof_timeout_s=0.3,
        )

    def row(self) -> dict[str, Any]:
        (row,) = self.recorder.of("trigger")
        return row

    def fault(self) -> dict[str, Any]:
        (fault,) = self.recorder.faults()
        return fault


def kill(when: Trigger | msgspec.UnsetType, **more: Any) -> FaultAction:
    base: dict[str, Any] = {"id": 1, "at_ms": 0, "duration_ms": 20, "kind": "kill"}
    return FaultAction(**(base | {"target": "n2", "nodes": ("n2",), "when": when} | more))


def within(seconds: float, scene: Coroutine[Any, Any, None]) -> None:
    """In virtual time."""
    # A simulation loads nothing: neither what is installed nor what pyarrow needs for an array.
    FAULTS.names()
    importlib.import_module("numpy.ma")

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await scene

    virtual.run(bounded())


def event(kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "group": "q1", "role": "", "detail": {}, **more}


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def test_a_kill_waits_until_a_node_that_is_asked_becomes_master() -> None:
    async def scene() -> None:
        s = Scene(Trigger(kind="observed", what="master", node="n2"))
        s.system.claims["n3"] = MASTER  # somebody else is, and n2 is not yet
        run = asyncio.create_task(s.runner.run())
        await passes(0.25)
        assert s.cluster.calls == [] and "complete_ns" not in s.row()
        s.system.claims["n2"] = MASTER
        await run
        await s.runner.heal()
        told, fault = s.row(), s.fault()
        assert told["type"] == "ok" and told["extra"]["fired"] is True
        assert told["extra"]["waits_for"] == "master,node=n2" and told["extra"]["by"] == "n2"
        assert told["extra"]["seen"] == "n2 became master of q1"
        assert told["extra"]["noticed_by"] == "asking every 100 ms"
        assert 0 < told["extra"]["late_ms_at_most"] < 2_000
        assert fault["proved_effective"] and fault["trigger"] == "master,node=n2"
        assert told["complete_ns"] <= fault["row"]["invoke_ns"]
        (done,) = s.runner.resolved_actions
        assert done.when is not msgspec.UNSET and isinstance(done.when.fired_ms, int)
        assert [f.kind for f in read_surroundings(s.recorder.history()).faults] == ["kill"]

    within(5, scene())


def test_who_is_master_already_does_not_become_it_and_the_fault_is_skipped() -> None:
    async def scene() -> None:
        s = Scene(Trigger(kind="observed", what="master", node="n2", within_ms=250))
        s.system.claims["n2"] = MASTER
        await s.runner.run()
        await s.runner.heal()
        assert s.cluster.calls == ["heal"]
        assert s.row()["type"] == "info" and s.row()["extra"]["fired"] is False
        assert s.fault()["skipped"] == "its trigger (master,node=n2) did not fire within 250 ms"

    within(5, scene())


def test_a_load_that_ends_first_skips_the_fault_with_its_reason() -> None:
    async def scene() -> None:
        s = Scene(Trigger(kind="observed", what="shrinks", within_ms=60_000))
        run = asyncio.create_task(s.runner.run())
        await passes(0.05)
        run.cancel()
        await s.runner.heal()
        assert "complete_ns" in s.row()
        assert s.fault()["skipped"].endswith("had not fired when the load was over")

    within(5, scene())


def test_a_set_that_shrinks_is_noticed_and_one_that_grows_is_not() -> None:
    async def scene() -> None:
        s = Scene(Trigger(kind="observed", what="shrinks", delay_ms=5))
        s.system.claims["n1"] = [{**MASTER[0], "synchronised": ["n3"]}]
        run = asyncio.create_task(s.runner.run())
        await passes(0.15)
        s.system.claims["n1"] = MASTER
        await passes(0.25)
        assert s.cluster.calls == []
        s.system.claims["n1"] = [{**MASTER[0], "synchronised": ["n2"]}]
        await run
        await s.runner.heal()
        assert s.row()["extra"]["seen"] == "the set lost n3 of q1" and s.fault()["proved_effective"]

    within(5, scene())


def test_a_synchronisation_that_runs_already_fires_at_once() -> None:
    async def scene() -> None:
        s = Scene(Trigger(kind="observed", what="synchronising"))
        s.system.claims["n1"] = [{**MASTER[0], "state": "syncing"}]
        await s.runner.run()
        await s.runner.heal()
        assert s.row()["extra"]["noticed_by"] == "the first look"
        assert s.row()["extra"]["late_ms_at_most"] is None

    within(5, scene())


def test_events_are_heard_at_once_where_the_world_tells_them() -> None:
    async def scene() -> None:
        cluster = ToldCluster()
        s = Scene(
            Trigger(kind="event", what="promoted", count=2, role="master"), cluster, WritingSystem()
        )
        run = asyncio.create_task(s.runner.run())
        await passes(0.02)
        assert cluster.tell is not None
        for role in ("master", "mirror", "master"):
            assert "complete_ns" not in s.row()
            cluster.tell("n3", event("promoted", role=role))
        await run
        await s.runner.heal()
        assert cluster.tell is None
        told = s.row()["extra"]
        assert (told["by"], told["late_ms_at_most"]) == ("n3", 0.0)
        assert told["noticed_by"] == "an event, at once"

    within(5, scene())


def test_a_file_of_events_is_followed_from_where_it_is_line_by_line() -> None:
    async def scene() -> None:
        cluster = FollowedCluster()
        cluster.written["n3"] = line(kind="sync_started", group="q1") + b'{"torn'
        s = Scene(Trigger(kind="event", what="sync_started", node="n3"), cluster, WritingSystem())
        run = asyncio.create_task(s.runner.run())
        await passes(0.15)
        assert cluster.calls == [], "what was written before the waiting is old"
        cluster.written["n3"] += b' by a kill\n{"kind": "sync_started", '
        cluster.written["n2"] += line(kind="sync_started", group="q1")
        await passes(0.15)
        assert cluster.calls == [], "half a line, and another node"
        cluster.written["n3"] += b'"group": "q1"}\n'
        await run
        await s.runner.heal()
        told = s.row()["extra"]
        assert told["noticed_by"] == "the file of events, read every 50 ms"
        assert told["seen"] == "event sync_started of q1" and 0 < told["late_ms_at_most"] < 2_000

    within(5, scene())


def test_a_node_that_is_down_is_followed_from_its_return() -> None:
    async def scene() -> None:
        cluster = FollowedCluster()
        cluster.written["n3"] = line(kind="promoted", group="q1")
        s = Scene(Trigger(kind="event", what="promoted"), cluster, WritingSystem())
        s.cluster.states["n3"] = "exited"
        run = asyncio.create_task(s.runner.run())
        await passes(0.12)
        s.cluster.states["n3"] = "running"
        await passes(0.12)
        assert cluster.calls == [], "what was written in its last life is old"
        cluster.written["n3"] += line(kind="promoted", group="q1")
        await run
        await s.runner.heal()
        assert s.row()["extra"]["by"] == "n3"

    within(5, scene())


@pytest.mark.parametrize(("node", "fires"), [("", True), ("n2", True), ("n1", False)])
def test_syncs_of_a_disk_are_awaited_of_any_node_or_of_one(node: str, fires: bool) -> None:
    async def scene() -> None:
        cluster = FollowedCluster()
        s = Scene(Trigger(kind="syncs", count=3, node=node, within_ms=500), cluster)
        run = asyncio.create_task(s.runner.run())
        await passes(0.02)
        assert cluster.asked_syncs == [(each, 3) for each in ([node] if node else NODES)]
        cluster.syncs.set()
        await run
        await s.runner.heal()
        assert s.row()["extra"]["fired"] is fires
        assert ("skipped" in s.fault()) is not fires

    within(5, scene())


def test_a_world_that_can_not_wait_says_so_in_the_fault() -> None:
    async def scene() -> None:
        s = Scene(Trigger(kind="syncs"))
        await s.runner.run()
        assert "the fake cluster can't wait for syncs" in s.fault()["skipped"]

    within(5, scene())


def test_events_tell_what_observations_tell() -> None:
    became = Matcher(Trigger(kind="observed", what="master", node="n1"))
    assert not became.of_event("n2", event("role", role="master"))
    assert became.of_event("n1", event("role", role="master")) == "n1 became master of q1"
    assert not became.of_event("n1", event("role", role="master")), "it was already"
    assert not became.of_answer("n1", {"claims": MASTER}), "the same one, seen again"
    assert not became.of_event("n1", event("role", role="mirror"))
    assert became.of_event("n1", event("role", role="master"))
    runs = Matcher(Trigger(kind="observed", what="synchronising"))
    seen = [bool(runs.of_event("n1", event(f"sync_{word}"))) for word in
            ("started", "started", "done", "done", "started")]  # fmt: skip
    assert seen == [True, False, False, False, True]
    shrinks = Matcher(Trigger(kind="observed", what="shrinks"))
    assert shrinks.of_event("n1", event("set_changed", detail={"removed": ["n2"]}))
    assert not shrinks.of_event("n1", event("set_changed", detail={"added": "n2"}))
    changes = {what: Matcher(Trigger(kind="observed", what=what)) for what in CHANGES}
    told = [
        event("role", role=role, epoch=epoch)
        for role, epoch in (("mirror", 3), ("mirror", 3), ("master", 4), ("master", 2))
    ]
    of_role, of_epoch, of_set = (changes[what] for what in CHANGES)
    assert [bool(of_role.of_event("n1", each)) for each in told] == [True, False, True, False]
    assert [bool(of_epoch.of_event("n1", each)) for each in told] == [False, False, True, False]
    assert of_set.of_event("n1", event("set_changed", detail={"added": "n2"}))
    assert not of_set.of_event("n1", event("role", role="master"))
    claims = [{**MASTER[0], "synchronised": own} for own in (["n2"], ["n2"], ["n2", "n3"])]
    seen = [bool(of_set.of_answer("n1", {"claims": [each]})) for each in claims]
    assert seen == [False, False, True]
    sets = [event("set_changed", detail={"set": own}) for own in ([1], [1, 2], [1], [1])]
    assert [bool(shrinks.of_event("n1", each)) for each in sets] == [False, False, True, False]


@pytest.mark.parametrize(
    ("text", "nemesis", "trigger"),
    [
        ("master=n2", "", Trigger(kind="observed", what="master", node="n2")),
        ("kill:synchronising", "kill", Trigger(kind="observed", what="synchronising")),
        ("syncs=3,node=n1,delay=5ms", "", Trigger(kind="syncs", count=3, node="n1", delay_ms=5)),
        ("kill:epoch,moment=after", "kill", Trigger(kind="observed", what="epoch", moment="after")),
        (
            "disk=write,node=n1,files=a/*,count=4,moment=before",
            "",
            Trigger(kind="disk", what="write", node="n1", files="a/*", count=4, moment="before"),
        ),
        (
            "message=any,from=n2,moment=sent",
            "",
            Trigger(kind="message", sender="n2", moment="sent"),
        ),
        (
            "partition:event=promoted,role=master,count=2,within=20s",
            "partition",
            Trigger(kind="event", what="promoted", role="master", count=2, within_ms=20_000),
        ),
    ],
)  # fmt: skip
def test_words_of_a_trigger(text: str, nemesis: str, trigger: Trigger) -> None:
    assert parse_trigger(text) == (nemesis, trigger)
    again = parse_trigger(trigger_text(trigger))[1]
    assert msgspec.structs.replace(again, within_ms=trigger.within_ms) == trigger


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sometimes", "there is no condition 'sometimes'; give"),
        ("syncs=many", "'many' is no number above 0"),
        ("synchronising=n1", "there is no condition"),
        ("event", "there is no condition"),
        ("flood:master", "unknown nemesis flood"),
        ("master=n1,node=n2", "'node=n2' means nothing here"),
        ("disk=write,moment=sent", "'moment=sent' means nothing here"),
        ("syncs=2,moment=after", "'moment=after' means nothing here"),
        ("master,within=never", "within never: give a time above 0"),
    ],
)
def test_words_that_make_no_trigger(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_trigger(text)


def test_a_schedule_waits_as_far_as_it_is_told_to() -> None:
    bare = [kill(msgspec.UNSET, settle=True, id=1)]
    bare += [msgspec.structs.replace(bare[0], id=2, kind="partition-one")]
    hit = with_triggers(bare, ["partition:master"])
    assert [bool(action.when) for action in hit] == [False, True]
    assert [action.settle for action in hit] == [True, False]
    assert all(action.when for action in with_triggers(bare, ["syncs=2"]))
    with pytest.raises(UsageError, match="the schedule has no fault that it could be for"):
        with_triggers(bare, ["pause:master"])


def test_what_can_not_happen_is_refused_before_boot() -> None:
    for when, says in (
        (Trigger(kind="syncs", node="n9"), "waits for n9, which is no node"),
        (Trigger(kind="observed", what="rain"), "which can't be observed: choose one of master"),
        (Trigger(kind="event"), "name its kind"),
        (Trigger(kind="observed", what="master", role="x"), "only a trigger of kind event"),
        (Trigger(kind="disk", what="read", moment="after"), "to do one of write, sync, rename"),
        (Trigger(kind="disk", what="sync"), "kind disk has the moment before or after"),
        (Trigger(kind="syncs", moment="after"), "kind syncs has the moment none"),
        (Trigger(kind="message", moment="sent", delay_ms=5), "without a delay"),
        (Trigger(kind="message", moment="sent", sender="n9"), "waits for n9, which is no node"),
    ):
        with pytest.raises(UsageError, match=says):
            check_actions([kill(when)], NODES)
    sync = Trigger(kind="disk", what="sync", moment="after")
    with pytest.raises(UsageError, match="they can't be asked who is master. Name nodes"):
        check_actions([kill(sync, target="master", nodes=None)], NODES)
    with pytest.raises(UsageError, match="the node where its trigger fires, and waits for none"):
        check_actions([kill(msgspec.UNSET, target="there", nodes=None)], NODES)
    check_actions([kill(sync, target="there", nodes=None)], NODES)
    assert required_capabilities([kill(sync)]) == {"kill", "trigger-disk", "hold"}
    by_message = kill(Trigger(kind="message", what="Rain", moment="after"))
    with pytest.raises(UsageError, match="nodes of fake say no such thing"):
        check_system([by_message], FakeSystem())  # type: ignore[arg-type]
    by_event = kill(Trigger(kind="event", what="promoted"))
    with pytest.raises(UsageError, match="nodes of fake write none while they run"):
        check_system([by_event], FakeSystem())  # type: ignore[arg-type]
    check_system([by_event], WritingSystem())  # type: ignore[arg-type]
    by_sync = kill(Trigger(kind="observed", what="synchronising"))
    with pytest.raises(UsageError, match="fake tells of none"):
        check_system([by_sync], FakeSystem())  # type: ignore[arg-type]
    assert required_capabilities([by_event]) == {"kill", "trigger-event"}
    assert required_capabilities([kill(Trigger(kind="syncs"))]) == {"kill", "trigger-sync"}


def test_an_action_without_a_trigger_is_stored_as_before() -> None:
    stored = msgspec.json.encode(kill(msgspec.UNSET))
    assert b"when" not in stored
    waiting = kill(Trigger(kind="syncs", count=3, fired_ms=7))
    assert msgspec.json.decode(msgspec.json.encode(waiting), type=FaultAction) == waiting
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"kind": "syncs", "count": 0}, Trigger)


def test_a_shrinker_tries_the_time_at_which_it_fired_and_no_trigger() -> None:
    action = kill(Trigger(kind="syncs", delay_ms=5, fired_ms=700, node="n3"), at_ms=100)
    weaker = [each for each in weaker_actions(action) if not each.when]
    assert [each.at_ms for each in weaker] == [705, 105]
    assert all(measure(make_plan(each)) < measure(make_plan(action)) for each in weaker)
    without_n3 = next(p for p in fewer_nodes(make_plan(action)) if "n3" not in p.cluster.nodes)
    assert without_n3.faults == ()
    others = [each for each in weaker_actions(kill(action.when, nodes=NODES)) if each.when]
    assert all(each.when == action.when for each in others)


def test_a_shrinker_counts_less_and_takes_any_file() -> None:
    when = Trigger(kind="disk", what="sync", files="a", count=8, moment="after", node="n3")
    tried = [each for each in weaker_actions(kill(when)) if each.kind == "kill"]
    weaker = [each.when for each in tried if each.when]
    assert [(each.count, each.files) for each in weaker] == [(1, "a"), (4, "a"), (7, "a"), (8, "")]
    smaller = [measure(make_plan(kill(each))) for each in weaker]
    assert all(each < measure(make_plan(kill(when))) for each in smaller)
    sent = Trigger(kind="message", sender="n3", moment="sent")
    without_n3 = next(p for p in fewer_nodes(make_plan(kill(sent))) if "n3" not in p.cluster.nodes)
    assert without_n3.faults == ()
