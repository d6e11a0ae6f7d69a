"""A world of GM members for tests: FIFO links, one group row that nodes may see late, crashes,
joins.

Every choice of what happens next is drawn from one seeded random source, so a failing seed repeats.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.gm.bugs import NO_BUGS, GmBugs
from shalott.broker.rabbit.gm.group import LostMembership, apply_change
from shalott.broker.rabbit.metadata.records import GroupRow, MemberId
from shalott.broker.rabbit.processes.messages import Pid

Item = (
    gm.RingMessage | gm.JoinAnswered | tuple[str, str, MemberId, str]
)  # or ("down", side, member, reason)


@dataclass
class Node:
    """A member and what its shell would keep."""

    name: str
    member: gm.Member
    row_index: int  # how much of the row's history this node has seen
    is_alive: bool = True
    delivered: list[tuple[str, str]] = field(default_factory=list)
    changes: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    published: list[str] = field(default_factory=list)
    question: gm.Transact | gm.AskToJoin | None = None
    asked: Node | None = None
    timers: list[tuple[str, str, MemberId]] = field(default_factory=list)
    flush_timer: bool = False
    monitors: dict[tuple[str, MemberId], None] = field(default_factory=dict)
    confirmed: list[int] = field(default_factory=list)
    stopped: str | None = None
    # publisher -> how much of what it published came before this node took part
    joined_after: dict[str, int] = field(default_factory=dict)
    is_joined: bool = False


class World:
    def __init__(self, seed: int = 0, bugs: GmBugs = NO_BUGS) -> None:
        self.rng = random.Random(seed)
        self.bugs = bugs
        self.rows: list[GroupRow | None] = [None]
        self.nodes: dict[str, Node] = {}
        self.links: dict[tuple[str, str], deque[Item]] = {}
        self.tokens: dict[int, Node] = {}
        self.token = 0

    # -- what tests do -----------------------------------------------------------------------------

    def add(self, name: str) -> Node:
        member = gm.Member("q", Pid(name, 1, 1), self.rows[-1], self.bugs)
        node = Node(name, member, len(self.rows) - 1)
        self.nodes[name] = node
        self.feed(node, gm.Join())
        return node

    def broadcast(self, name: str, payload: str) -> None:
        node = self.nodes[name]
        if (
            node.member.publishers.states is not None
        ):  # the machine drops what it is given before that
            node.published.append(payload)
            self.feed(node, gm.Broadcast(payload.encode()))

    def crash(self, name: str, keep: dict[str, int] | None = None) -> None:
        """Of what is under way on each link from ``name``, some first part still arrives."""
        node = self.nodes[name]
        node.is_alive = False
        for (source, target), queue in self.links.items():
            if source == name:
                kept = self.rng.randint(0, len(queue)) if keep is None else keep.get(target, 0)
                while len(queue) > kept:
                    queue.pop()
            elif target == name:
                queue.clear()
        self._report_down(node, "noconnection")
        for other in self.alive():
            kept_items = self.links.get((name, other.name), ())
            if other.asked is node and not any(isinstance(i, gm.JoinAnswered) for i in kept_items):
                self._answer_join(other, gm.JoinAnswered(node.member.id, "dead"))

    def alive(self) -> list[Node]:
        return [n for n in self.nodes.values() if n.is_alive and n.stopped is None]

    def settle(self) -> None:
        """Let everything happen until nothing is left to happen."""
        for _ in range(200_000):
            if not self.do_something():
                return
        raise AssertionError("the ring never comes to rest")

    def do_something(self) -> bool:
        """One enabled step, drawn at random."""
        actions: list[tuple[str, object]] = [("link", key) for key, q in self.links.items() if q]
        for node in self.alive():
            if isinstance(node.question, gm.Transact):
                actions.append(("transact", node))
            elif isinstance(node.question, gm.AskToJoin) and node.asked is None:
                actions.append(("ask", node))
            actions += [("timer", (node, timer)) for timer in node.timers]
            if node.member.has_unsent:
                actions.append(("idle", node))
            if node.row_index < len(self.rows) - 1:
                actions.append(("row", node))
        if not actions:
            return False
        kind, what = actions[self.rng.randrange(len(actions))]
        getattr(self, f"_do_{kind}")(what)
        return True

    # -- steps -------------------------------------------------------------------------------------

    def _do_link(self, key: tuple[str, str]) -> None:
        node, item = self.nodes[key[1]], self.links[key].popleft()
        if not node.is_alive or node.stopped is not None:
            return
        if isinstance(item, gm.JoinAnswered):
            self._answer_join(node, item)
        elif isinstance(item, tuple):
            _, side, member, reason = item
            if node.monitors.pop((side, member), 0) is None:
                self.feed(node, gm.NeighbourDown(side, member, reason))
        elif item.to == node.member.id:
            self.feed(node, gm.Received(item))

    def _do_transact(self, node: Node) -> None:
        assert isinstance(node.question, gm.Transact)
        change, node.question = node.question.change, None
        try:
            row = apply_change(change, self.rows[-1])
        except LostMembership:
            self.feed(node, gm.MembershipLost())
            return
        if row is not self.rows[-1]:
            self.rows.append(row)
        node.row_index = len(self.rows) - 1
        self.feed(node, gm.Transacted(row))

    def _do_ask(self, node: Node) -> None:
        assert isinstance(node.question, gm.AskToJoin)
        choice = self.rng.choice(node.question.candidates)
        left = self.nodes[choice.pid.node]
        if not left.is_alive or left.stopped is not None:
            self._answer_join(node, gm.JoinAnswered(choice, "dead"))
            return
        self.token += 1
        self.tokens[self.token] = node
        node.asked = left
        self.feed(left, gm.AddOnRight(node.member.id, self.token))

    def _do_timer(self, what: tuple[Node, tuple[str, str, MemberId]]) -> None:
        node, timer = what
        node.timers.remove(timer)
        _, side, member = timer
        self.feed(node, gm.NeighbourDownDelayPassed(side, member))

    def _do_idle(self, node: Node) -> None:
        self.feed(node, gm.Idle() if self.rng.random() < 0.7 else gm.FlushTimerFired())

    def _do_row(self, node: Node) -> None:
        node.row_index += 1

    # -- shell -------------------------------------------------------------------------------------

    def feed(self, node: Node, given: gm.Input) -> None:
        for output in node.member.step(given, self.rows[node.row_index]):
            self._perform(node, output)

    def _perform(self, node: Node, output: gm.Output) -> None:
        match output:
            case gm.Send(to, message):
                target = self.nodes[to.pid.node]
                if target.is_alive:
                    self.links.setdefault((node.name, target.name), deque()).append(message)
            case gm.Monitor(side, member):
                self._monitor(node, side, member)
            case gm.Demonitor(side, member):
                node.monitors.pop((side, member), None)
            case gm.Deliver(origin, payload):
                node.delivered.append((origin.node, payload.decode()))
            case gm.MembersChanged(births, deaths):
                node.changes.append((tuple(p.node for p in births), tuple(p.node for p in deaths)))
            case gm.Joined():
                node.is_joined = True
                self._take_part(node)
            case gm.Transact() | gm.AskToJoin():
                node.question = output
            case gm.AnswerAddOnRight(token, row):
                asker = self.tokens.pop(token)
                outcome = "not_ready" if row is None else "joined"
                answer = gm.JoinAnswered(node.member.id, outcome, row)
                self.links.setdefault((node.name, asker.name), deque()).append(answer)
            case gm.StartNeighbourDownTimer(side, member):
                node.timers.append(("down", side, member))
            case gm.Confirmed(token, ok):
                assert ok
                node.confirmed.append(token)
            case gm.Stopped(reason):
                node.stopped = reason
                self._report_down(node, reason)
        self._take_part(node)

    def _take_part(self, node: Node) -> None:
        """From now on this node must hear everything."""
        if node.is_joined and node.member.publishers.states is not None and not node.joined_after:
            node.joined_after = {o.name: len(o.published) for o in self.nodes.values()}

    def _monitor(self, node: Node, side: str, member: MemberId) -> None:
        node.monitors[(side, member)] = None
        target = self.nodes[member.pid.node]
        if not target.is_alive or target.stopped is not None:
            self._send_down(target, node, side, member, target.stopped or "noproc")

    def _report_down(self, dead: Node, reason: str) -> None:
        for other in self.alive():
            for side, member in list(other.monitors):
                if member == dead.member.id:
                    self._send_down(dead, other, side, member, reason)

    def _send_down(self, dead: Node, to: Node, side: str, member: MemberId, reason: str) -> None:
        self.links.setdefault((dead.name, to.name), deque()).append(("down", side, member, reason))

    def _answer_join(self, asker: Node, answer: gm.JoinAnswered) -> None:
        asker.asked = asker.question = None
        if asker.is_alive:
            self.feed(asker, answer)
