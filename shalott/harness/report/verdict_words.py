"""The verdict in plain words, for the terminal and for the head of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shalott.checkers.checker import Result, merge_valid
from shalott.checkers.runs.standard import RUN_WIDE
from shalott.harness.report.consumer_words import good_news, own_words

# One of a kind, and several. In order of weight: the first of them makes the headline.
_KINDS: dict[str, tuple[str, str]] = {
    "lost": ("1 acknowledged message was lost", "{n} acknowledged messages were lost"),
    "unexpected": ("1 message came from nowhere", "{n} messages came from nowhere"),
    "corrupted": ("1 message came back corrupted", "{n} messages came back corrupted"),
    "phantom": (
        "1 message was delivered although its enqueue had certainly failed",
        "{n} messages were delivered although their enqueues had certainly failed",
    ),
    "too-early": (
        "1 message was delivered before it was sent",
        "{n} messages were delivered before they were sent",
    ),
    "unflagged": (
        "1 message was delivered again without the flag by the master that knew it",
        "{n} messages were delivered again without the flag by the master that knew it",
    ),
    "duplicated": (
        "1 message was delivered twice, not flagged as redelivered",
        "{n} messages were delivered twice, not flagged as redelivered",
    ),
    "dual-master-effective": (
        "two nodes acknowledged writes of one queue as its master at once",
        "two nodes acknowledged writes of one queue as its master at once, {n} times",
    ),
    "dual-master-claimed": (
        "two nodes called themselves master of one queue at once",
        "two nodes called themselves master of one queue at once, {n} times",
    ),
    "stuck": (
        "the healed cluster got stuck: {summary}",
        "the healed cluster got stuck in {n} ways: {summary}, and more",
    ),
    "crashed": (
        "a process of the broker crashed by itself: {summary}",
        "processes of the broker crashed by themselves, {n} times: {summary}, and more",
    ),
    "died": (
        "a node ended by itself, or was ended from outside: {summary}",
        "nodes ended by themselves, or were ended from outside, {n} times: {summary}, and more",
    ),
    "diverged": (
        "a synchronised replica differs from its master: {summary}",
        "synchronised replicas differ from their masters, {n} times: {summary}, and more",
    ),
    "redelivered": (
        "1 message was redelivered, flagged as such",
        "{n} messages were redelivered, flagged as such",
    ),
}

# In runs of replicated logs some kinds are told otherwise: there are sends, offsets and groups.
_LOG_KINDS: dict[str, tuple[str, str]] = {
    "lost-write": ("1 acknowledged message was lost", "{n} acknowledged messages were lost"),
    "lost-on-node": (
        "1 acknowledged message is not on every node",
        "{n} acknowledged messages are not on every node",
    ),
    "vanished": (
        "1 message that a client had read is gone from every node",
        "{n} messages that clients had read are gone from every node",
    ),
    "shared-offset": (
        "two messages were acknowledged at one offset",
        "several messages were acknowledged at one offset, {n} times",
    ),
    "inconsistent-offsets": (
        "one offset held different messages",
        "{n} offsets held different messages",
    ),
    "duplicate": (
        "1 message is at several places of the log",
        "{n} messages are at several places of the log",
    ),
    "stored-twice": (
        "a client's library sent 1 message again, and it was stored twice",
        "clients' libraries sent {n} messages again, and they were stored twice",
    ),
    "committed-twice": (
        "1 transaction was committed twice",
        "{n} transactions were committed twice",
    ),
    "decided-twice": (
        "1 transaction was decided again after it had been",
        "{n} transactions were decided again after they had been",
    ),
    "acked-again": (
        "1 popped message came again after it was acknowledged",
        "{n} popped messages came again after they were acknowledged",
    ),
    "pop-lost": ("1 message was never popped", "{n} messages were never popped"),
    "early": (
        "1 popped message came again before its time",
        "{n} popped messages came again before their time",
    ),
    "undecided": ("1 transaction stays undecided", "{n} transactions stay undecided"),
    "unexpected": _KINDS["unexpected"],
    "corrupted": _KINDS["corrupted"],
    "phantom": (
        "1 message was read although its send had certainly failed",
        "{n} messages were read although their sends had certainly failed",
    ),
    "too-early": (
        "1 message was read before it was sent",
        "{n} messages were read before they were sent",
    ),
    "dual-master-effective": (
        "two nodes acknowledged writes as master of one group at once",
        "two nodes acknowledged writes as master of one group at once, {n} times",
    ),
    "dual-master-claimed": (
        "two nodes called themselves master of one group at once",
        "two nodes called themselves master of one group at once, {n} times",
    ),
    "stale-read": (
        "a reader was not given what had been acknowledged before it asked",
        "readers were not given what had been acknowledged before they asked, {n} times",
    ),
    "poll-skip": ("a reader was led past a message", "readers were led past messages, {n} times"),
    "nonmonotonic-poll": ("a reader was led back", "readers were led back, {n} times"),
    "nonmonotonic-send": (
        "a sender's later message was put before its earlier one",
        "later messages of senders were put before their earlier ones, {n} times",
    ),
    "reordered": (
        "a message was put before one that had been acknowledged before it was sent",
        "messages were put before ones that had been acknowledged before they were sent, {n} times",
    ),
    "unseen": (
        "1 acknowledged message was read by no client, but not all was read: it may be there",
        "{n} acknowledged messages were read by no client, but not all was read: they may be there",
    ),
}
_LOG_CHECKERS = ("log", "elections")

# Our own checkers, whose nouns and counts are known here. Others say theirs (Result.words).
_OF_MESSAGES = ("total-queue", "log")
_OF_RUNS = (*(record.name for record in RUN_WIDE), "checkers", "run")
_OWN = (
    *(*_OF_MESSAGES, *_LOG_CHECKERS, *_OF_RUNS),
    *("locks", "fifo-order", "reads", "linearizability"),
    *("i1-acked-on-members", "i2-master-from-set", "i3-master-has-acked"),
    "i4-one-master-an-epoch",
)

# What an acknowledged message is that never came out of a queue that was not drained.
_MISSING = (
    "1 acknowledged message was not seen again, but not every queue was drained: it may be there",
    "{n} acknowledged messages were not seen again, but not every queue was drained: they may be "
    "there",
)

# What a valid run's headline tells nevertheless: the system did not promise otherwise.
_ENDS = ("died", "crashed")

# Of these is told whether a manual documents them, where that was looked into.
_LOSSES = ("lost", "lost-write", "unseen")

# Anomalies that break no promise unless their checker says so.
_TOLERATED = ("duplicated", "redelivered", "dual-master-claimed", "epoch-regression")


def overall(results: Sequence[Result]) -> bool | str:
    """The run's validity: false beats unknown beats true."""
    return merge_valid(result.valid for result in results)


def valid_word(valid: bool | str) -> str:
    """valid, invalid or unknown."""
    if isinstance(valid, bool):
        return "valid" if valid else "invalid"
    return "unknown"


def severity(valid: bool | str) -> int:
    """For sorting: invalid, unknown, valid."""
    return ("invalid", "unknown", "valid").index(valid_word(valid))


def headline(results: Sequence[Result]) -> str:
    """One sentence: the verdict and its chief reasons."""
    valid = overall(results)
    found = findings(results)
    if valid is False:
        chief = [sentence.rstrip(".") for v, _, sentence in found if v is False][:2]
        return f"Invalid: {', and '.join(chief) or 'a check failed'}."
    if valid is True:
        ends = [f"but {each}" for name in _ENDS for each in _of_kind(found, results, name)]
        return f"Valid: {'; '.join((_good_news(results), *ends, *remarks(results)))}."
    doubts = [sentence for v, _, sentence in found if valid_word(v) == "unknown"]
    return f"Unknown: {doubts[0] if doubts else 'nothing was checked.'}"


def _of_kind(
    found: Sequence[tuple[bool | str, str, str]], results: Sequence[Result], kind: str
) -> list[str]:
    """The findings about anomalies of one kind, as parts of a sentence."""
    checkers = [r.checker for r in results if any(a.kind == kind for a in r.anomalies)]
    return [sentence.rstrip(".") for _, checker, sentence in found if checker in checkers]


def remarks(results: Sequence[Result]) -> list[str]:
    """What the headline of a valid run must not keep back: ``remark`` of the checkers' details."""
    return [remark for remark in _texts(results, "remark") if remark]


def summaries(results: Sequence[Result]) -> list[str]:
    """What is told of every run with any verdict: ``summary`` of the checkers' details."""
    return [summary for summary in _texts(results, "summary") if summary]


def _texts(results: Sequence[Result], name: str) -> list[str]:
    found = [result.detail.get(name) for result in results]
    return [text for text in found if isinstance(text, str)]


def _good_news(results: Sequence[Result]) -> str:
    """What checkers say of what they counted; and if none says anything, what was judged."""
    own = good_news(results) or _own_good_news(results)
    said = [result.headline.strip().rstrip(".") for result in results if result.headline.strip()]
    return ", and ".join((own, *said) if own else said) or _judged(results)


def _judged(results: Sequence[Result]) -> str:
    """No number but that of the operations, which every run counts."""
    counts = next((result.counts for result in results if result.checker == "stats"), {})
    of = f" in {counts['count']:,.0f} operations" if "count" in counts else ""
    if "ok-count" in counts:
        of += f", of which {counts['ok-count']:,.0f} were acknowledged"
    names = [result.checker for result in results if result.checker not in _OF_RUNS]
    if not names:
        return f"no checker of the workload's own judged it; what every run promises held{of}"
    return f"nothing was found by {' and '.join(names)}{of}"


def _own_good_news(results: Sequence[Result]) -> str:
    known = [result for result in results if result.checker in _OWN]
    counts = {name: number for result in known for name, number in result.counts.items()}
    if "acknowledged-count" not in counts and "linearized-count" in counts:
        objects = counts["object-count"]
        across = "one object" if objects == 1 else f"{objects:,.0f} objects"
        return f"{counts['linearized-count']:,.0f} operations on {across} are linearizable"
    if "acknowledged-count" not in counts and "election-count" in counts:
        times = int(counts["master-count"])
        tenures = (
            "a node became master once" if times == 1 else f"nodes became master {times} times"
        )
        return f"{tenures}, and no epoch had two masters"
    if "acknowledged-count" not in counts:
        return ""
    return f"nothing was lost of {counts['acknowledged-count']:,.0f} acknowledged messages"


def findings(results: Sequence[Result]) -> list[tuple[bool | str, str, str]]:
    """(validity, checker, sentence) for everything worth a line, worst first.

    What breaks no promise (a redelivery, a stale claim) is told as valid. A loss that no documented
    window explains goes before all else: no document warns of it.
    """
    found: list[tuple[bool | str, str, str]] = []
    words = {**_KINDS, **_LOG_KINDS} if is_about_logs(results) else _KINDS
    for result in results:
        own = {**own_words(result.checker), **result.words}
        known = words if result.checker in _OWN or own_words(result.checker) else {}
        kinds = _sentences(result, {**own, **{k: v for k, v in known.items() if k not in own}})
        found += [(weight(result, kind), result.checker, sentence) for kind, sentence in kinds]
        reasons = [v for v, checker, _ in found if checker == result.checker]
        if result.valid is not True and result.valid not in reasons:
            notes = result.notes or ("it gave no reason",)
            found += [(result.valid, result.checker, _sentence(note)) for note in notes]
    loud = {r.checker for r in results if r.valid is False and _unexplained(r)}
    return sorted(found, key=lambda item: (severity(item[0]), item[1] not in loud))


def is_about_logs(results: Sequence[Result]) -> bool:
    """Whether the run was one of a replicated log."""
    return any(result.checker in _LOG_CHECKERS for result in results)


def weight(result: Result, kind: str) -> bool | str:
    """What anomalies of a kind mean for a checker's verdict: true if they break no promise."""
    broken = result.detail.get("broken")
    if isinstance(broken, list):
        if kind in broken:
            return "unknown" if result.valid == "unknown" else False
        # Losses that broke nothing are those that could not be proved.
        return "unknown" if kind == "lost" and result.valid == "unknown" else True
    alone = all(anomaly.kind in _TOLERATED for anomaly in result.anomalies)
    return True if kind in _TOLERATED and not alone else result.valid


def _sentences(result: Result, kind_words: Mapping[str, tuple[str, str]]) -> list[tuple[str, str]]:
    kinds: dict[str, list[str]] = {}
    for anomaly in result.anomalies:
        kinds.setdefault(anomaly.kind, []).append(anomaly.summary)
    ranks = {kind: rank for rank, kind in enumerate(kind_words)}
    found = []
    for kind in sorted(kinds, key=lambda kind: ranks.get(kind, len(ranks))):
        number = _number(result, kind)
        doubtful = kind == "lost" and weight(result, kind) == "unknown"
        if kind in kind_words:
            own = kind in result.words
            words = _MISSING if doubtful and not own else kind_words[kind]
            text = words[number != 1].format(n=f"{number:,}", summary=kinds[kind][0])
            if kind in _LOSSES and not doubtful:
                text += _how_documented(result, number)
        else:
            text = kinds[kind][0] + (f" ({number - 1:,} more)" if number > 1 else "")
        if "undocumented" in result.detail and weight(result, kind) is False:
            text += _how_documented(result, number)
        found.append((kind, _sentence(text)))
    return found


def _number(result: Result, kind: str) -> int:
    """How often; consumers' checkers tell many of a kind as one anomaly."""
    own = [anomaly.detail for anomaly in result.anomalies if anomaly.kind == kind]
    count = result.counts.get(f"{kind}-count")
    if count is None and own_words(result.checker):
        return sum(detail.get("count", 1) for detail in own)
    return len(own) if count is None else int(count)


def _unexplained(result: Result) -> int:
    """How many messages were lost in no documented way."""
    return int(result.counts.get("lost-unexplained-count", 0))


def _how_documented(result: Result, lost: int) -> str:
    """In no documented way, or where it is documented, by what the system's record names."""
    detail = result.detail.get("loss", result.detail)
    unexplained = _unexplained(result) or result.detail.get("undocumented", 0)
    if unexplained:
        some = "" if unexplained >= lost else f"{unexplained:,} of them "
        return f", {some}in no documented way"
    documented = detail.get("documented", {})
    manuals = dict.fromkeys(each["manual"] for each in documented.values())
    return f", as is documented ({', '.join(manuals)})" if manuals else ""


def _sentence(text: str) -> str:
    return f"{text.strip().rstrip('.')}."
