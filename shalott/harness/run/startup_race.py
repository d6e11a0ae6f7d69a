"""The startup race: the nodes of mirrored queues stop and start together, and some queue ends
without a mirror, or stopped, or takes no message any more, for good.

Told in "RabbitMQ: problems of mirrored queues (1)" of October 2019, of RabbitMQ 3.7, in ten steps
of two nodes A and B, each of which is looked for here in what the nodes wrote. The causes are
known bugs: KB-RMQ-01 (T4), 02 (T7, T10), and 37 and 38, without which the queue would recover.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

from shalott.harness.report.meta import STORY_NAMES, StoryResult, StoryStep
from shalott.harness.run.story import Event, Material, Story

TITLE = "The startup race of mirrored queues"
SOURCE = "RabbitMQ, problems of mirrored queues (1), 2019: ten steps of nodes A and B"
QUIET_S = 10.0  # what is still so after so long, with nothing to wait for, is so for good

# The steps, as the document tells them.
STEPS = {
    "T1": "Node A starts.",
    "T2": "Node B starts and has the tables that A has.",
    "T3": "A creates the master of a durable queue.",
    "T4": "A's master enters the row, finds B and asks it for a mirror; B's"
    " rabbit_amqqueue_sup_sup is not up yet, and the master crashes.",
    "T5": "B's rabbit_amqqueue_sup_sup is up, and B starts a process of the queue by itself, as a"
    " mirror.",
    "T6": "The mirror finds in the row a master that does not live, and promotes itself.",
    "T7": "A's crashed master is started again, does not look at the row, overwrites it with itself"
    " as master, and asks B for a mirror.",
    "T8": "B, which has a master of the queue, starts a mirror of it as well.",
    "T9": "Both processes on B hear the ring; the master takes what A's says for illegal, and"
    " ends.",
    "T10": "B's master stops all mirrors on its way out; the queue has no mirror any more.",
    "end": "Some queues are stopped, have no mirror, or exist and take no message, until an"
    " operator acts.",
}


@dataclass
class _Chain:
    """The steps that one queue went through."""

    queue: str
    steps: list[StoryStep] = field(default_factory=list)
    ending: str = ""
    happened: bool = False

    @property
    def seen(self) -> int:
        return sum(step.at_s is not None for step in self.steps)


def tell(material: Material) -> StoryResult:
    """The queue that went the whole way, or the farthest."""
    queues = dict.fromkeys(event.group for event in material.events if event.group)
    chains = [_follow(material, queue) for queue in queues] or [_Chain("")]
    best = max(chains, key=lambda chain: (chain.happened, chain.seen))
    others = sum(chain.happened for chain in chains) - best.happened
    more = f" So it went with {others} more of {len(chains)} queues." if others else ""
    seen = {step.name: step for step in best.steps}
    return StoryResult(
        name="startup-race",
        title=TITLE,
        source=SOURCE,
        happened=best.happened,
        group=best.queue if best.seen else "",
        ending=best.ending + more,
        steps=tuple(seen.get(name, StoryStep(name=name, story=STEPS[name])) for name in STEPS),
    )


def _follow(material: Material, queue: str) -> _Chain:
    """From the crash of T4 backwards to the start, and forwards to the end."""
    chain = _Chain(queue)
    say = _sayer(material, chain)
    crash = material.first(0, group=queue, kind="stopped", detail=_lacks_supervisor)
    if crash is None:
        return chain
    a = crash.node
    master = material.last(
        crash.at_s, node=a, group=queue, kind="role", detail=_started_as("recovered")
    )
    promoted = material.first(crash.at_s, node=_other(a), group=queue, kind="promoted")
    b = (
        next((node for node in material.seen if node != a), "")
        if promoted is None
        else promoted.node
    )
    _say_starts(material, chain, a, b, crash.at_s)
    say("T3", master)
    say("T4", crash, "had child rabbit_amqqueue started with", "queue_supervisor_not_found")
    if promoted is None:
        return chain
    mirror = material.last(promoted.at_s, node=b, group=queue, kind="role", role="mirror")
    say("T5", mirror, f"Adding mirror on node {b}")
    say("T6", promoted, "Promoting slave")
    again = material.first(
        promoted.at_s, node=a, group=queue, kind="role", detail=_started_as("recovered")
    )
    say("T7", again, "Restarting crashed queue")
    if again is None:
        return chain
    second = material.first(again.at_s, node=b, group=queue, kind="role", role="mirror")
    yielded = material.first(again.at_s, node=b, group=queue, kind="demoted", role="master")
    if second is not None:
        say("T8", second, f"Adding mirror on node {b}", node=a)
    say("T9", yielded)
    if yielded is None:
        return chain
    ended = material.first(
        yielded.at_s, node=b, group=queue, kind="stopped", detail=_because("shutdown")
    )
    say("T10", ended, "Stopping all nodes on master shutdown")
    if ended is not None:
        _say_end(material, chain, ended)
    return chain


def _sayer(material: Material, chain: _Chain) -> Callable[..., None]:
    def say(name: str, event: Event | None, *texts: str, node: str = "") -> None:
        if event is None:
            return
        named = f"queue '{chain.queue}'"
        quoted = f'queue,<<"{chain.queue}">>'
        line = None
        for queue in (named, quoted):
            if texts and line is None:
                line = material.line(node or event.node, event.at_s, queue, *texts)
        chain.steps.append(
            StoryStep(
                name=name,
                story=STEPS[name],
                at_s=event.at_s,
                node=event.node,
                event=event.as_text(),
                line="" if line is None else line.text,
            )
        )

    return say


def _say_starts(material: Material, chain: _Chain, a: str, b: str, before_s: float) -> None:
    """T1 and T2: the last of either before the crash."""
    for name, node, text in (("T1", a, "start: the node starts"), ("T2", b, "linked to")):
        lines = [x for x in material.lines if x.node == node and text in x.text]
        lines = [line for line in lines if line.at_s <= before_s]
        if lines:
            chain.steps.append(
                StoryStep(
                    name=name,
                    story=STEPS[name],
                    at_s=lines[-1].at_s,
                    node=node,
                    line=lines[-1].text,
                )
            )


def _say_end(material: Material, chain: _Chain, ended: Event) -> None:
    """What every node claimed of the queue when it was looked at last."""
    claims = {
        node: (at_s, by_queue[chain.queue])
        for node, (at_s, by_queue) in material.seen.items()
        if chain.queue in by_queue
    }
    if not claims:
        return
    at_s = min(at_s for at_s, _ in claims.values())
    masters = [node for node, (_, claim) in claims.items() if claim["role"] == "master"]
    mirrors = {mirror for _, claim in claims.values() for mirror in claim["mirrors"]}
    views = "; ".join(
        f"{node} says it is {claim['state']} with its master on {claim['master'] or 'no node'}"
        for node, (_, claim) in sorted(claims.items())
    )
    tried = [
        ok
        for queue, when_s, ok in material.writes
        if queue == chain.queue and when_s > ended.at_s + 1
    ]
    if masters and mirrors:
        chain.ending = "The queue recovered."
        return
    what = "has no mirror" if masters else "exists and takes no message"
    chain.ending = (
        f"{at_s - ended.at_s:.0f} s later the queue {what}: {views}."
        f" Of {len(tried)} messages sent to it since, {sum(tried)} were confirmed."
    )
    chain.happened = at_s - ended.at_s >= QUIET_S and {s.name for s in chain.steps} >= {*STEPS} - {
        "end"
    }
    chain.steps.append(
        StoryStep(
            name="end", story=STEPS["end"], at_s=at_s, node=", ".join(sorted(claims)), event=views
        )
    )


def _other(node: str) -> Callable[[str], bool]:
    return lambda seen: seen != node


def _started_as(how: str) -> Callable[[dict[str, object]], bool]:
    return lambda detail: detail.get("started_as") == how


def _because(reason: str) -> Callable[[dict[str, object]], bool]:
    return lambda detail: detail.get("reason") == reason


def _lacks_supervisor(detail: dict[str, object]) -> bool:
    reason = str(detail.get("reason", ""))
    return reason.startswith("crash: NoProcess") and "name='queues'" in reason


STARTUP_RACE = Story(
    name="startup-race",
    # Everything is stopped once, in good order, and starts again at its own pace.
    settings={
        "nodes": "2",
        "policy": ("ha-sync-mode=automatic",),
        "bug": ("KB-RMQ-01", "KB-RMQ-02", "KB-RMQ-37", "KB-RMQ-38"),
        "nemesis": "restart-all",
        "targets": "all",
        "nemesis_interval": "8",
        "nemesis_duration": "1",
        "time_limit": "24",
        "rate": 40.0,
        "min_acked": 20,
        "concurrency": "4n",
    },
    given={"startup-delay": "3s", "recovery-delay": "3s", "queues": "16"},
    plan={"settle_timeout_ms": 20_000},
    faults_max=1,  # another restart would be an operator's act
    gates={"must_settle": True},
    tell=tell,
)


STORIES: tuple[Story, ...] = (STARTUP_RACE,)
assert tuple(story.name for story in STORIES) == STORY_NAMES
_WIDTH = 118


def find_story(name: str) -> Story:
    """One of STORY_NAMES, which the request was held to."""
    return next(story for story in STORIES if story.name == name)


def story_as_text(told: StoryResult) -> str:
    where = f" to {told.group}" if told.group else ""
    verdict = f"It happened{where}." if told.happened else "It did not happen."
    head = [f"{told.title}", f"({told.source})", "", verdict, told.ending, ""]
    return "\n".join(head + [line for step in told.steps for line in _step(step)]).rstrip()


def _step(step: StoryStep) -> list[str]:
    seen = "not seen" if step.at_s is None else f"{step.at_s:9.3f} s  {step.node}"
    wrapped = textwrap.wrap(f"{step.name:<4} {step.story}", _WIDTH, subsequent_indent=" " * 5)
    rows = [*wrapped, f"     -> {seen}" + (f"  {step.event}" if step.event else "")]
    if step.line:
        rows += [f"        {step.line}"]
    return rows
