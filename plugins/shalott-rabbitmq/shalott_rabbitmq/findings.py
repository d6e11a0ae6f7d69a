"""What is published of RabbitMQ, as far as Debian's releases can have it.

Not here: issue 17504, for which a quorum queue of 3.x must be carried over to a 4.x whose feature
flag ``rabbitmq_4.0.0`` is enabled afterwards: Debian has no 3.11 to 3.13, and no upgrade goes from
3.10 to 4.0. Issue 15473, deliveries that no channel knows of after an election: it is of consumers
to whom messages are pushed with a prefetch, and clients here fetch one by one (basic.get); whoever
reported it could not repeat it.
"""

from __future__ import annotations

from shalott.api import PublishedFinding, Seen
from shalott_rabbitmq.system import MANUAL

ISSUES = "https://github.com/rabbitmq/rabbitmq-server"
EMPTY = r"case_clause,\{ok,\[\]\}"
RELEASE, NEWEST = "4.0", "4.3"
LOST = (Seen(checker="total-queue", kinds=("lost",)),)


def finding(
    name: str,
    title: str,
    source: str,
    published: str,
    seen: tuple[Seen, ...],
    *command: str,
    mended: str = "",
    promised: str = "",
    log: str = "",
) -> PublishedFinding:
    return PublishedFinding(
        name=f"rabbitmq-{name}",
        title=title,
        source=source,
        system="rabbitmq4",
        releases=(RELEASE, NEWEST),
        newest=NEWEST,
        command=("--cluster", "docker", "--rate", "60", *command),
        seen=seen,
        mended=mended,
        published=published,
        promised=promised,
        log=log,
        minutes=2.0,
    )


FINDINGS = (
    finding(
        "17319",
        "Mnesia stays partitioned after a blip that pause_minority does not notice",
        f"{ISSUES}/issues/17319",
        "a blip of 43 ms, and 8 days apart, until a node was restarted; again after one of 4 ms",
        (Seen(checker="liveness", count="stuck-count"),),
        *("--profile", "safe", "--nemesis", "disconnect", "--nemesis-interval", "10"),
        *("--time-limit", "20"),
        mended="4.3",  # which has no Mnesia
        promised="pause_minority: the minority pauses, and comes back when the partition is over"
        f" ({MANUAL}/partitions)",
        log="inconsistent_database, running_partitioned_network",
    ),
    finding(
        "14589",
        "what was sent to a quorum queue just before a partition is not sent again",
        f"{ISSUES}/pull/14589",
        "in some cases; all that a channel publishes later waits behind it",
        (Seen(checker="unconfirmed", kinds=("unconfirmed",)),),
        # One member, which no partition can depose: then only the leader could ask for it again.
        *("--profile", "safe", "--metadata", "khepri", "--replicas", "1"),
        *("--nemesis", "partition-one"),
        *("--nemesis-interval", "45", "--nemesis-duration", "8", "--op-timeout", "30s"),
        *("--time-limit", "45"),
        mended="4.1.5",
        promised=f"a publish is confirmed or refused in the end ({MANUAL}/confirms)",
        log="resending \\d+ pending commands",
    ),
    finding(
        "delivery-limit",
        "a message that was delivered too often is dropped, without a dead-letter exchange",
        f"{MANUAL}/quorum-queues#poison-message-handling",
        "since 4.0 there is a limit unless one asks for none, and it is 20",
        LOST,
        *("--profile", "safe", "--delivery-limit", "0", "--ack-after", "200ms"),
        *("--enqueue-fraction", "0.5"),
        *("--nemesis", "kill", "--nemesis-interval", "10", "--time-limit", "25"),
        log="delivery.limit",
    ),
    finding(
        "classic-power",
        "classic queues confirm what is not on the disk yet",
        f"{MANUAL}/classic-queues",
        "fsync is not called before a confirm: use quorum queues",
        LOST,
        # Else no node boots again: see the next row.
        *("--sync-boot", "--nemesis", "power-all", "--power-loss", "drop"),
        *("--nemesis-interval", "15", "--nemesis-duration", "3", "--time-limit", "18"),
    ),
    finding(
        "feature-flags",
        "a node that loses its power soon after a boot never boots again",
        "https://github.com/rabbitmq/rabbitmq-server/blob/v4.0.5/deps/rabbit/src/"
        "rabbit_feature_flags.erl#L1070-L1090",
        "not published but in the source: the file feature_flags is written without fsync, and one"
        " that is empty is neither read nor taken for missing",
        (Seen(line=EMPTY),),
        *("--profile", "safe", "--nemesis", "power", "--power-loss", "drop"),
        *("--nemesis-interval", "12", "--nemesis-duration", "4", "--time-limit", "16"),
        promised="a quorum queue's member comes back after a failure, and catches up"
        f" ({MANUAL}/quorum-queues#behaviour)",
        log=EMPTY,
    ),
    PublishedFinding(
        name="rabbitmq-2014",
        title="mirrored queues lose what they acknowledged, in a partition that nodes ignore",
        source="https://aphyr.com/posts/315-call-me-maybe-rabbitmq",
        system="rabbitmq",
        releases=("3.10",),
        newest="3.10",
        mended="4.0",  # which has no mirrored queues
        command=(
            *("--cluster", "docker", "--profile", "upstream", "--rate", "60"),
            *("--nemesis", "partition-random-halves", "--nemesis-interval", "8"),
            *("--nemesis-duration", "15", "--time-limit", "40"),
        ),
        seen=LOST,
        published="about 35 % of the acknowledged writes",
        log="inconsistent_database, running_partitioned_network",
    ),
)
