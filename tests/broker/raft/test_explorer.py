"""The consensus core under random schedules: its properties hold, and planted mistakes are seen.

The budgets of seeds are about three times what is needed: seeds are fixed, so a mistake that is
seen once is seen always, until the core draws other numbers.
"""

from __future__ import annotations

from types import ModuleType

import msgspec
import pytest

from shalott.broker.raft import election, follower, heartbeats, leader, state
from tests.broker.raft.explorer import SPITEFUL, Chaos, Explorer
from tests.broker.raft.planting import planted
from tests.world.raft.model import FAST, Group, Violation

pytestmark = pytest.mark.explore


# As the tables of a mirrored cluster use the core: see broker/rabbit/metadata/raft_server.py.
CONNECTED = Chaos(rumour=0.5)
EAGER = msgspec.structs.replace(FAST, push_commits_at_once=True)


def explore(seed: int, chaos: Chaos | None = None, bugs: tuple[str, ...] = ()) -> Group:
    names = "abc" if seed % 2 else "abcde"
    settings = EAGER if chaos is CONNECTED else FAST
    explorer = Explorer(seed, names=names, chaos=chaos, settings=settings, bugs=bugs)
    explorer.run()
    return explorer.group


def first_violation(
    seeds: int, chaos: Chaos | None = None, bugs: tuple[str, ...] = ()
) -> tuple[int, str]:
    """The seed, and the property that it violates."""
    for seed in range(seeds):
        try:
            explore(seed, chaos, bugs)
        except Violation as violation:
            return seed, violation.name
    raise AssertionError(f"{seeds} seeds saw nothing")


@pytest.mark.parametrize(
    "chaos", [Chaos(), SPITEFUL, CONNECTED], ids=["chaos", "spiteful", "connected"]
)
@pytest.mark.parametrize("tens", range(8))
def test_the_properties_of_raft_hold(tens: int, chaos: Chaos) -> None:
    groups = [explore(seed, chaos) for seed in range(10 * tens, 10 * tens + 10)]
    # Nothing would be proved if nothing had happened.
    assert sum(len(group.acked) for group in groups) > 200
    assert sum(len(group.leaders) for group in groups) > 15
    assert sum(group.reads_done for group in groups) > 100


def test_a_seed_is_a_schedule() -> None:
    one, two = explore(5), explore(5)
    assert one.events == two.events
    assert one.committed == two.committed
    assert {name: m.disk.log for name, m in one.members.items()} == {
        name: m.disk.log for name, m in two.members.items()
    }


SAFETY = Chaos(), 30
CRASHES = SPITEFUL, 150
STALE = Chaos(cut=0.5, pause=0.3, crash=0.03, slow=0.2), 150

MISTAKES: list[tuple[str, ModuleType, str, str, tuple[Chaos, int]]] = [
    ("quorum off by one", state, "len(self.members) // 2 + 1", "len(self.members) // 2", SAFETY),
    (
        "votes for older terms in the log",
        election,
        "if request.last_term < end_term(s):",
        "if False:",
        CRASHES,
    ),
    (
        "votes for shorter logs",
        election,
        "request.last_index < s.log.last_index:",
        "False:",
        CRASHES,
    ),
    (
        "votes before the vote is durable",
        election,
        "    else:\n        s.hold(s.hard_mark, Send(sender, response))",
        "    else:\n        s.send(sender, response)",
        SAFETY,
    ),
    (
        "stands before the term is durable",
        election,
        "s.hold(s.hard_mark, Send(member, request))",
        "s.send(member, request)",
        SAFETY,
    ),
    (
        "acknowledges before entries are durable",
        follower,
        "max(s.hard_mark, s.log_mark) if",
        "s.hard_mark if",
        SAFETY,
    ),
    (
        "a leader counts what it has not made durable",
        leader,
        "durable = [s.log.durable_index,",
        "durable = [s.log.last_index,",
        CRASHES,
    ),
    (
        "an append removes what follows it",
        follower,
        "s.log.term_at(entry.index) != entry.term:",
        "True:",
        SAFETY,
    ),
    (
        "a late TRUNCATE removes what came since",
        follower,
        "not in (request.next_term, request.term):",
        "!= -1:",
        SAFETY,
    ),
    (
        "appends without looking at what is before",
        follower,
        "elif not _agrees(s, request):",
        "elif not 0 <= request.prev_index <= s.log.last_index:",
        CRASHES,
    ),
    (
        "takes a longer log for an agreeing one",
        leader,
        "max(p.match_index, response.match_index)",
        "max(p.match_index, min(response.end_index, s.log.last_index))",
        STALE,
    ),
    (
        "follows leaders of the past",
        heartbeats,
        "    if term < s.term:\n        return RaftCode.EXPIRED_TERM\n",
        "",
        SAFETY,
    ),
    (
        "reads ask no quorum",
        heartbeats,
        "confirmed = rounds[s.quorum - 1]",
        "confirmed = rounds[0]",
        STALE,
    ),
    (
        "a new leader reads before it knows what is committed",
        heartbeats,
        "return s.commit_index > s.tenure_index",
        "return True",
        SAFETY,
    ),
    (
        "a lost push is not looked for",
        leader,
        "        if p.inflight and s.now_ms - p.inflight[0][1] >= timeout_ms:",
        "        if False and timeout_ms:",
        SAFETY,
    ),
    (
        "a connection that comes back is the follower's word that it has all",
        leader,
        "    _compare_from(p, p.match_index)\n    if is_up:",
        "    p.match_index = s.log.last_index\n    if is_up:",
        (CONNECTED, 30),
    ),
    (
        "a snapshot is never sent",
        leader,
        "    if p.next_index < s.log.first_index:\n        if",
        "    if False:\n        if",
        SAFETY,
    ),
]


@pytest.mark.parametrize(
    ("module", "old", "new", "budget"),
    [pytest.param(*mistake[1:], id=mistake[0]) for mistake in MISTAKES],
)
def test_a_planted_mistake_is_seen(
    module: ModuleType, old: str, new: str, budget: tuple[Chaos, int]
) -> None:
    chaos, seeds = budget
    with planted(module, old, new):
        for seed in range(seeds):
            try:
                explore(seed, chaos)
            except AssertionError:  # a Violation, or an assertion of the core itself
                return
    raise AssertionError(f"{seeds} seeds saw nothing")


@pytest.mark.parametrize(
    ("bug", "chaos", "seeds", "properties"),
    [
        ("KB-DL-02", Chaos(), 20, ("leader completeness",)),
        ("KB-DL-11", Chaos(), 5, ("commit within log",)),
        ("KB-DL-14", Chaos(), 60, ("liveness",)),
        ("KB-DL-15", Chaos(), 5, ("liveness",)),
        ("KB-DL-21", SPITEFUL, 60, ("one vote a term", "election safety")),
    ],
)
def test_a_historical_bug_is_found(
    bug: str, chaos: Chaos, seeds: int, properties: tuple[str, ...]
) -> None:
    _, name = first_violation(seeds, chaos, (bug,))
    assert name in properties


def test_commit_prior_term_is_found_among_leaders_that_are_cut_off() -> None:
    """KB-DL-01: leaders with entries that no other member has come and go (Raft, Figure 8)."""
    calm = Chaos(loss=0.02, crash=0, cut=0, slow=0.05, pause=0, slow_disk=0, snapshot=0, exile=0.4)
    settings = msgspec.structs.replace(FAST, max_push_bytes=1, no_op_on_election=False)
    with pytest.raises(Violation, match="leader completeness"):
        for seed in range(90):
            Explorer(seed, chaos=calm, settings=settings, bugs=("KB-DL-01",)).run()
    Explorer(seed, chaos=calm, settings=settings).run()  # and the same schedule without it
