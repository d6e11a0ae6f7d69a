"""What became of messages for each consumer group, in any number of runs: as checkers/groups weighs
them in one run, in the columns of CONSUMED.

A group's messages are those of the topics that its members were assigned, with a tag that they
subscribe to. ``unsure``: behind the group's offset, and it was not seen how a delivery of it ended.
``gone``: acknowledged, and neither that, nor consumed (a listener returned success), nor in the
group's dead letters at the end. Of these are ``lost``: those that no final read of their queue
has, and that do not wait in the retry topic; and ``skipped``: those that lie before the group's
offset, were never sent back, and not passed over on purpose. A delayed message is not called lost:
how long it may take is the plan's. A broadcast group has no offsets at brokers: its members'
deliveries are counted, each member's by itself.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from shalott.spark_analysis.sql.consumed_messages import operations, summed

_SAID = (
    "struct<member: string, group: string, outcome: string, why: string, tag: string,"
    " broadcast: boolean, tags: array<string>, level: bigint, delay: bigint>"
)
_POLL = "struct<records: array<array<bigint>>>"
_ROWS = ("send", "member", "assignment", "deliver", "send-back", "reset", "final-offset")
_RETRY, _DEAD = "%RETRY%", "%DLQ%"


def group_messages(ops: DataFrame) -> DataFrame:
    """Counts and their evidence by run and group (schema CONSUMED)."""
    rows = ops.where(F.col("f").isin(*_ROWS)).withColumn("said", F.from_json("extra", _SAID))
    rows = rows.withColumn("group", F.coalesce("said.group", "key"))
    deliveries = _deliveries(rows)
    told = _of_messages(_with_ends(_wanted(rows), rows, deliveries, _final(ops)))
    return summed(
        told.unionByName(_of_deliveries(deliveries, rows), allowMissingColumns=True), "group"
    )


def _topic(key: str) -> Column:
    return F.regexp_replace(key, "/[^/]*$", "")


def _sends(rows: DataFrame) -> DataFrame:
    sent = rows.where((F.col("f") == "send") & F.col("value").isNotNull())
    return sent.select(
        "run", "value", "index", "key", "type", F.col("said.tag").alias("tag"),
        (F.coalesce("said.delay", F.lit(0)) > 0).alias("delayed"),
    )  # fmt: skip


def _groups(rows: DataFrame) -> DataFrame:
    """What the members of each group said of it: ``tags`` (empty: all) and ``broadcast``."""
    members = rows.where(F.col("f") == "member")
    return members.groupBy("run", "group").agg(
        F.array_distinct(F.flatten(F.collect_list("said.tags"))).alias("tags"),
        F.coalesce(F.max("said.broadcast"), F.lit(False)).alias("broadcast"),
    )


def _wanted(rows: DataFrame) -> DataFrame:
    """One row a message and group that wants it; none of broadcasts."""
    assigned = rows.where((F.col("f") == "assignment") & ~F.col("key").startswith("%"))
    topics = assigned.select("run", "group", _topic("key").alias("topic")).distinct()
    groups = _groups(rows).where(~F.col("broadcast")).join(topics, ["run", "group"])
    sends = _sends(rows).withColumn("topic", _topic("key"))
    wanted = sends.join(F.broadcast(groups), ["run", "topic"])
    return wanted.where((F.size("tags") == 0) | F.array_contains("tags", F.col("tag")))


def _deliveries(rows: DataFrame) -> DataFrame:
    given = rows.where((F.col("f") == "deliver") & F.col("value").isNotNull())
    return given.select(
        "run", "group", "value", "index", "redelivered",
        F.col("said.member").alias("member"), F.col("said.outcome").alias("outcome"),
    )  # fmt: skip


def _final(ops: DataFrame) -> DataFrame:
    """What polls of the drain found: the last offset of each (queue, value)."""
    phases = ops.where((F.col("process") < 0) & (F.col("f") == "phase") & (F.col("type") == "ok"))
    phases = phases.where(F.get_json_object("extra", "$.phase") == "drain")
    begins = phases.groupBy("run").agg(F.min("invoke_ns").alias("drain_ns"))
    polls = ops.where((F.col("process") >= 0) & (F.col("f") == "poll") & (F.col("type") == "ok"))
    polls = polls.join(F.broadcast(begins), "run").where("invoke_ns >= drain_ns")
    record = F.explode(F.from_json("extra", _POLL)["records"])
    records = polls.select("run", "key", record.alias("record"))
    return records.groupBy("run", "key", F.col("record")[1].alias("value")).agg(
        F.max(F.col("record")[0]).alias("place")
    )


def _offsets(rows: DataFrame) -> DataFrame:
    """What the master said of each group's offsets at the end."""
    told = rows.where((F.col("f") == "final-offset") & (F.col("type") == "ok"))
    offset = F.coalesce(F.max_by("offset", "index"), F.lit(-1))
    return told.groupBy("run", "group", "key").agg(offset.alias("committed"))


def _with_ends(
    wanted: DataFrame, rows: DataFrame, deliveries: DataFrame, final: DataFrame
) -> DataFrame:
    """With everything that decides how each message ended for each group."""
    of_group = ["run", "group", "value"]
    given = deliveries.groupBy(*of_group).agg(
        F.count_if(F.col("outcome") == "success").alias("consumed"),
        F.count_if(F.col("outcome").isNull() | (F.col("outcome") == "")).alias("unseen"),
    )
    back = rows.where((F.col("f") == "send-back") & (F.col("type") == "ok"))
    sent_back = back.groupBy(*of_group).agg(F.count("index").alias("sent_back"))
    offsets = _offsets(rows)
    dead = _kept_for(final, _DEAD, "dead")
    retried = _kept_for(final, _RETRY, "retried")
    own_retries = F.concat(F.lit(_RETRY), F.col("group"))
    retries = offsets.where(_topic("key") == own_retries)
    retries = retries.select("run", "group", F.col("committed").alias("retries_committed"))
    return (
        wanted.join(given, of_group, "left")
        .join(sent_back, of_group, "left")
        .join(dead, of_group, "left")
        .join(retried, of_group, "left")
        .join(F.broadcast(retries), ["run", "group"], "left")
        .join(final, ["run", "key", "value"], "left")
        .join(F.broadcast(offsets), ["run", "group", "key"], "left")
        .join(F.broadcast(_passed(rows)), ["run", "group", "key"], "left")
        .fillna(0, ["consumed", "unseen", "sent_back", "retries_committed"])
    )


def _kept_for(final: DataFrame, prefix: str, name: str) -> DataFrame:
    """What lies in a group's retry topic, or in its dead letters."""
    own = final.where(F.col("key").startswith(prefix))
    group = F.substring(_topic("key"), len(prefix) + 1, 1000)
    return own.groupBy("run", group.alias("group"), "value").agg(F.max("place").alias(name))


def _passed(rows: DataFrame) -> DataFrame:
    """How far a group was told to begin in each queue: at its end at the time, or by a reset."""
    told = rows.where((F.col("f") == "reset") | (F.col("said.why") == "last"))
    return told.groupBy("run", "group", "key").agg(F.max("offset").alias("told_to_begin"))


def _of_messages(ends: DataFrame) -> DataFrame:
    acked = F.col("type") == "ok"
    is_open = acked & (F.col("consumed") == 0) & F.col("dead").isNull()
    waits = F.col("retried").isNotNull() & (F.col("retried") >= F.col("retries_committed"))
    is_behind = F.coalesce(F.col("place") < F.col("committed"), F.lit(False))
    is_unsure = is_open & ~waits & is_behind & (F.col("unseen") > 0)
    is_gone = is_open & ~is_unsure
    is_lost = is_gone & ~waits & F.col("place").isNull() & ~F.col("delayed")
    is_passed = F.coalesce(F.col("told_to_begin") > F.col("place"), F.lit(False))
    is_skipped = is_gone & ~waits & ~is_passed & (F.col("sent_back") == 0) & is_behind
    return ends.groupBy("run", F.col("group").alias("lane")).agg(
        F.count("value").alias("attempts"),
        F.count_if(acked).alias("acknowledged"),
        F.count_if(acked & (F.col("consumed") > 0)).alias("consumed"),
        F.count_if(acked & (F.col("consumed") == 0) & F.col("dead").isNotNull()).alias(
            "dead_lettered"
        ),
        F.count_if(is_unsure).alias("unsure"),
        F.count_if(is_gone).alias("gone"),
        F.count_if(is_lost).alias("lost"),
        F.count_if(is_skipped).alias("skipped"),
        operations(is_lost, "lost", F.array("index")),
        operations(is_skipped, "skipped", F.array("index")),
    )


def _of_deliveries(deliveries: DataFrame, rows: DataFrame) -> DataFrame:
    """``again``: all but the first of a message that a client sent; of broadcasts by member."""
    sent = _sends(rows).select("run", "value").distinct().withColumn("sent", F.lit(True))
    known = deliveries.join(sent, ["run", "value"], "left")
    known = known.join(F.broadcast(_groups(rows)), ["run", "group"], "left")
    unit = F.when(F.col("broadcast"), F.col("member"))
    one = Window.partitionBy("run", "group", unit, "value").orderBy("index")
    is_again = F.col("sent").isNotNull() & (F.row_number().over(one) > 1)
    counted = known.withColumn("again", is_again)
    flagged = F.coalesce("redelivered", F.lit(False))
    return counted.groupBy("run", F.col("group").alias("lane")).agg(
        F.count("index").alias("deliveries"),
        F.count_if("again").alias("again"),
        F.count_if(F.col("again") & ~flagged).alias("again_unflagged"),
        operations(F.col("again"), "again", F.array("index")),
    )
