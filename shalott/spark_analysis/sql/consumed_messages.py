"""What became of the messages of queues with consumers, in any number of runs: as
checkers/consumers weighs them in one run, in the columns of CONSUMED.

    settled deliveries   each delivery with the first row that settles it: by its tag, or with
                         multiple (and by recover) the first whose highest tag is not lower
    messages             (run, queue, value): how it was seen to end
    then                 (run, queue): counts, and the operations that prove them

A copy that died is the message of the queue in which it died first. ``gone``: acknowledged, and no
end of it was seen. Of these ``lost`` are those that no consumer refused, in queues whose plan has
no policy that takes messages (``taking``: rows run and queue); the checkers tell the others apart.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from shalott.spark_analysis.kernels.tables import OPERATIONS_MAX
from shalott.spark_analysis.sql import schema
from shalott.spark_analysis.sql.lost_messages import NEVER

_SAID = (
    "struct<consumer: string, channel: string, tag: bigint, upto: bigint, multiple: boolean,"
    " requeue: boolean, no_ack: boolean, to: array<string>,"
    " deaths: array<struct<queue: string, reason: string, count: bigint>>>"
)
_SETTLING = ("ack", "nack", "reject", "recover")
_DELETING = ("delete-queue", "purge-queue")
_ROWS = ("enqueue", "deliver", "dequeue", "consumer", *_DELETING, *_SETTLING)


def consumed_messages(ops: DataFrame, taking: DataFrame) -> DataFrame:
    """Counts and their evidence by run and queue (schema CONSUMED)."""
    rows = ops.where((F.col("process") >= 0) & F.col("f").isin(*_ROWS))
    rows = rows.withColumn("said", F.from_json("extra", _SAID))
    published = _published(rows)
    deliveries = _at_home(_deliveries(rows), published)
    ends = _ends(published, deliveries)
    told = _of_messages(ends, taking, _deletions(rows)).unionByName(
        _of_deliveries(deliveries), allowMissingColumns=True
    )
    return summed(told, "consume")


def summed(told: DataFrame, kind: str) -> DataFrame:
    """Rows of counts by run and lane as one row each; what a row does not tell is nothing."""
    evidence = [f"{each}_operations" for each in schema.CONSUMED_EVIDENCE]
    types = dict.fromkeys(schema.CONSUMED_COUNTS, "bigint")
    types |= dict.fromkeys(evidence, "array<bigint>")
    absent = {n: F.lit(None).cast(t) for n, t in types.items() if n not in told.columns}
    told = told.withColumns(absent)
    counts = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in schema.CONSUMED_COUNTS]
    lists = [
        F.slice(F.flatten(F.collect_list(name)), 1, OPERATIONS_MAX).alias(name) for name in evidence
    ]
    found = told.groupBy("run", "lane").agg(*counts, *lists)
    return found.withColumn("kind", F.lit(kind)).to(schema.CONSUMED)


def _published(rows: DataFrame) -> DataFrame:
    """One row a message: a publish that is routed to three queues is three."""
    sent = rows.where((F.col("f") == "enqueue") & F.col("value").isNotNull())
    lanes = F.coalesce("said.to", F.array("key"))
    return sent.select("run", "value", "index", "type", "invoke_ns", F.explode(lanes).alias("lane"))


def _deletions(rows: DataFrame) -> DataFrame:
    """By run and queue until when it may have been deleted, or purged."""
    deleted = rows.where(F.col("f").isin(*_DELETING) & (F.col("type") != "fail"))
    end_ns = F.when(F.col("type") == "ok", F.col("complete_ns"))
    last = F.max(F.coalesce(end_ns, NEVER)).alias("deleted_ns")
    return deleted.groupBy("run", F.col("key").alias("lane")).agg(last)


def _deliveries(rows: DataFrame) -> DataFrame:
    """Deliveries and takes, each with what settled it first: ``by`` is its index, f and type."""
    came = F.col("f").isin("deliver", "dequeue") & (F.col("type") != "fail")
    settles = F.col("f").isin(*_SETTLING) & (F.col("type") != "fail")
    many = F.col("said.upto").isNotNull() | F.coalesce("said.multiple", F.lit(False))
    many |= F.col("f") == "recover"
    tag = F.when(settles & many, F.coalesce("said.upto", "said.tag")).otherwise(F.col("said.tag"))
    row = F.struct("index", "f", "type", F.col("said.requeue").alias("requeue"))
    both = rows.where(came | settles).select(
        "run", "index", "f", "key", "value", "type", "redelivered",
        came.alias("came"),
        F.col("said.channel").alias("channel"), tag.alias("tag"),
        F.col("said.consumer").alias("consumer"), F.col("said.deaths").alias("deaths"),
        F.when(settles & many, row).alias("many"),
        F.when(settles & ~many, row).alias("single"),
    )  # fmt: skip
    channel = Window.partitionBy("run", "channel")
    higher = channel.orderBy(F.desc("tag")).rangeBetween(Window.unboundedPreceding, 0)
    same = Window.partitionBy("run", "channel", "tag")
    first = F.least(F.min("many").over(higher), F.min("single").over(same))
    of_consumers = F.col("came") & (F.col("f") == "deliver")
    settled = both.withColumn("by", F.when(of_consumers, first)).where("came")
    silent = rows.where((F.col("f") == "consumer") & F.col("said.no_ack"))
    silent = silent.select("run", F.col("said.consumer").alias("consumer")).distinct()
    silent = silent.withColumn("automatic", F.lit(True))
    return settled.join(F.broadcast(silent), ["run", "consumer"], "left")


def _at_home(deliveries: DataFrame, published: DataFrame) -> DataFrame:
    """With ``lane``: the queue that the message was published to; null if no client did."""
    lanes = published.groupBy("run", "value").agg(F.collect_set("lane").alias("lanes"))
    known = deliveries.join(lanes, ["run", "value"], "left")
    died = F.filter(F.col("deaths.queue"), lambda queue: F.array_contains("lanes", queue))
    is_dead = F.coalesce(F.size("deaths") > 0, F.lit(False))
    home = F.when(is_dead, F.get(died, F.size(died) - 1)).otherwise(
        F.when(F.array_contains("lanes", F.col("key")), F.col("key"))
    )
    return known.withColumns({"lane": home, "is_dead": is_dead})


def _ends(published: DataFrame, deliveries: DataFrame) -> DataFrame:
    """One row a message: its publish, and how it was seen to end."""
    alive, is_ack = ~F.col("is_dead"), F.coalesce(F.col("by.f") == "ack", F.lit(False))
    # Who consumes without acknowledgements can say nothing.
    automatic = F.coalesce("automatic", F.lit(False))
    acked = alive & is_ack & ~automatic
    is_known = F.coalesce(F.col("by.type") == "ok", F.lit(False))
    refused = F.col("by.f").isin("nack", "reject") & ~F.coalesce("by.requeue", F.lit(False))
    told = deliveries.where(F.col("lane").isNotNull()).groupBy("run", "lane", "value").agg(
        F.count_if(acked & is_known).alias("consumed"),
        F.count_if(alive & (F.col("f") == "dequeue")).alias("drained"),
        F.count_if(F.col("is_dead")).alias("dead"),
        F.count_if((acked & ~is_known) | (alive & automatic)).alias("unsure"),
        F.count_if(alive & F.coalesce(refused, F.lit(False))).alias("refused"),
    )  # fmt: skip
    return published.join(told, ["run", "lane", "value"], "left").fillna(0)


def _of_messages(ends: DataFrame, taking: DataFrame, deletions: DataFrame) -> DataFrame:
    """By run and lane."""
    acked = F.col("type") == "ok"
    end = (
        F.when(F.col("consumed") > 0, "consumed")
        .when(F.col("drained") > 0, "drained")
        .when(F.col("dead") > 0, "dead_lettered")
        .when(F.col("unsure") > 0, "unsure")
        .otherwise("gone")
    )
    takes = taking.select("run", F.col("queue").alias("lane"), F.lit(True).alias("takes"))
    known = ends.withColumn("end", F.when(acked, end)).join(
        F.broadcast(takes), ["run", "lane"], "left"
    )
    known = known.join(F.broadcast(deletions), ["run", "lane"], "left")
    lost = (F.col("end") == "gone") & (F.col("refused") == 0) & F.col("takes").isNull()
    lost &= F.coalesce(F.col("invoke_ns") >= F.col("deleted_ns"), F.lit(True))
    return known.groupBy("run", "lane").agg(
        F.count("value").alias("attempts"),
        F.count_if(acked).alias("acknowledged"),
        *(
            F.count_if(F.col("end") == name).alias(name)
            for name in ("consumed", "drained", "dead_lettered", "unsure", "gone")
        ),
        F.count_if(lost).alias("lost"),
        operations(lost, "lost", F.array("index")),
    )


def _of_deliveries(deliveries: DataFrame) -> DataFrame:
    """By run and the queue that they came from. ``again``: all but the first of a copy."""
    life = F.when(F.col("is_dead"), F.to_json("deaths"))
    copies = Window.partitionBy("run", "value", "lane", "key", life).orderBy("index")
    is_again = F.col("lane").isNotNull() & (F.row_number().over(copies) > 1)
    counted = deliveries.withColumn("again", is_again)
    flagged = F.coalesce("redelivered", F.lit(False))
    return counted.groupBy("run", F.col("key").alias("lane")).agg(
        F.count_if(F.col("f") == "deliver").alias("deliveries"),
        F.count_if("again").alias("again"),
        F.count_if(F.col("again") & ~flagged).alias("again_unflagged"),
        operations(F.col("again"), "again", F.array("index")),
    )


def operations(chosen: Column, kind: str, evidence: Column) -> Column:
    """The first operations that prove something, in order of index."""
    found = F.flatten(F.sort_array(F.collect_list(F.when(chosen, evidence))))
    return F.slice(found, 1, OPERATIONS_MAX).alias(f"{kind}_operations")
