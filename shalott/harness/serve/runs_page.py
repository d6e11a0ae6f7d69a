"""The list of runs: which ones a request wants, page by page, and the values to choose from.

Filters are on the columns of the table, and all must hold; several values of one filter are
alternatives. ``text`` is looked for as it stands, in any case; it is no pattern, so none can take
long.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shalott.harness.matrix.cell_names import plain_key
from shalott.harness.matrix.run_outcomes import tags_of, verdict_of
from shalott.harness.serve.cached_table import VERDICTS, Runs
from shalott.harness.serve.live_runs import Found, LiveRun
from shalott.harness.serve.request import Query, Refused, whole_number
from shalott.harness.store.columns import Row

PAGE_ROWS = 50
PAGE_ROWS_MAX = 500
EQUAL = ("system", "profile", "workload", "cluster", "name")  # columns of one text
SEARCHED = ("run", "name", "headline", "cell", "night", "commit", "image", "campaign")
KINDS = ("run", "finding", "all")
ORDERS = ("red", "newest", "oldest", "lost", "slowest")
CHOICES_MAX = 200  # values listed of a filter
_NOT_KNOWN = "?"  # which faults a plan has
Mask = npt.NDArray[np.bool_]


class AnomalyCount(msgspec.Struct, frozen=True):
    kind: str
    count: int
    checker: str = ""
    broken: bool = False


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run as lists show it. ``group``: its night, or its UTC day. ``turn``: of a matrix, the
    pass; "again 2" only repeats another run, to see how often it fails. ``expected``: it is not
    valid, and its cell says that it may be so."""

    run: str
    kind: str
    group: str
    verdict: str
    headline: str
    system: str
    profile: str
    workload: str
    cluster: str
    cell: str
    nemesis: tuple[str, ...]
    anomalies: tuple[AnomalyCount, ...]
    failed_checkers: tuple[str, ...]
    started_wall_ns: int | None
    elapsed_ns: int | None
    seed: int | None
    commit: str
    acknowledged: int | None
    lost: int | None
    rto_ms: float | None
    unavailable_ms_max: float | None
    latency_p99_ms: float | None
    turn: str = ""
    expected: bool = False


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list. ``verdicts``: how many of all that match have which."""

    filters: Filters
    total: int  # in the table, of the kind that is shown
    matching: int
    verdicts: dict[str, int]
    page: int  # from 1
    pages: int
    rows: tuple[RunRow, ...]
    choices: dict[str, list[str]]
    live: tuple[LiveRun, ...]
    notes: tuple[str, ...]


def list_runs(runs: Runs, query: Query, found: Found) -> RunList:
    """Raises Refused."""
    filters = read_filters(query)
    size = max(1, query.number("rows", PAGE_ROWS, most=PAGE_ROWS_MAX))
    mask = matching(runs, filters)
    numbers = ordered(runs, mask, filters.order)
    pages = max(1, -(-len(numbers) // size))
    page = min(max(1, query.number("page", 1)), pages)
    shown = numbers[(page - 1) * size : page * size]
    return RunList(
        filters=filters,
        total=int(matching(runs, Filters(kind=filters.kind)).sum()),
        matching=len(numbers),
        verdicts=count_verdicts(runs, mask),
        page=page,
        pages=pages,
        rows=row_views(runs, shown),
        choices=choices(runs),
        live=found.live,
        notes=runs.notes + found.notes,
    )


def count_verdicts(runs: Runs, mask: Mask) -> dict[str, int]:
    """Of the rows of a mask, by the word for people; the gravest first."""
    values = pc.fill_null(runs.table["valid"], "").filter(pa.array(mask))
    counted = pc.value_counts(values)
    known = dict(
        zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
    )
    return {name: int(known.get(word, 0)) for word, name in VERDICTS.items()}


def row_views(runs: Runs, numbers: npt.NDArray[np.int64]) -> tuple[RunRow, ...]:
    own = cells(runs).take(pa.array(numbers, type=pa.int64())).to_pylist()
    found = runs.rows(numbers.tolist())
    return tuple(row_view(row, cell) for row, cell in zip(found, own, strict=True))


def row_view(row: Row, cell: str) -> RunRow:
    """A row of the table as lists show it."""
    tags = tags_of(row["tags"])
    return RunRow(
        run=row["run"],
        kind=row["kind"] or "run",
        group=row["group"],
        verdict=VERDICTS.get(row["valid"] or "", "no verdict"),
        headline=row["headline"] or _without_verdict(row),
        system=row["system"] or "",
        profile=row["profile"] or "",
        workload=row["workload"] or "",
        cluster=row["cluster"] or "",
        cell=cell,
        nemesis=tuple(filter(None, row["nemesis"] or ())),
        anomalies=tuple(
            AnomalyCount(
                each["kind"], each["count"] or 0, each["checker"] or "", bool(each["broken"])
            )
            for each in row["anomalies"] or ()
            if each and each["kind"]
        ),
        failed_checkers=tuple(filter(None, row["failed_checkers"] or ())),
        **{
            name: row[name]
            for name in ("started_wall_ns", "elapsed_ns", "seed", "acknowledged", "lost")
        },
        **{name: row[name] for name in ("rto_ms", "unavailable_ms_max", "latency_p99_ms")},
        commit=row["commit"] or "",
        turn=tags.turn,
        expected=row["valid"] != "true" and tags.expects(*verdict_of(row)),
    )


def _without_verdict(row: Row) -> str:
    failures = row["harness_failures"] or ()
    return f"The harness failed: {failures[0]}" if failures else "It has no verdict."


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, as it is shown in the form."""

    kind: str = "run"
    order: str = "red"
    verdict: tuple[str, ...] = ()
    equal: Mapping[str, tuple[str, ...]] = {}
    nemesis: tuple[str, ...] = ()
    anomaly: tuple[str, ...] = ()
    seed: str = ""
    commit: str = ""
    text: str = ""
    night: str = ""
    cell: str = ""


def read_filters(query: Query) -> Filters:
    """Raises Refused."""
    verdicts = tuple(query.texts("verdict"))
    for verdict in verdicts:
        if verdict not in VERDICTS.values():
            raise Refused(400, f"verdict must be one of {', '.join(VERDICTS.values())}.")
    seed = query.text("seed").strip()
    if seed and whole_number(seed) is None:
        raise Refused(400, "seed must be a whole number of 64 bits.")
    return Filters(
        kind=query.one_of("kind", KINDS),
        order=query.one_of("order", ORDERS),
        verdict=verdicts,
        equal={name: tuple(filter(None, query.texts(name))) for name in EQUAL},
        nemesis=tuple(filter(None, query.texts("nemesis"))),
        anomaly=tuple(filter(None, query.texts("anomaly"))),
        seed=seed,
        commit=query.text("commit").strip().lower(),
        text=query.text("text").strip(),
        night=query.text("night"),
        cell=query.text("cell"),
    )


def matching(runs: Runs, filters: Filters) -> Mask:
    """For each row of the table whether it is wanted."""
    table = runs.table
    mask = _of_kind(table, filters.kind)
    wanted: list[pa.ChunkedArray | pa.Array] = []
    if filters.verdict:
        words = [word for word, name in VERDICTS.items() if name in filters.verdict]
        wanted.append(pc.is_in(pc.fill_null(table["valid"], ""), value_set=pa.array(words)))
    for name, values in filters.equal.items():
        if values:
            wanted.append(pc.is_in(table[name], value_set=pa.array(values)))
    if filters.seed:
        wanted.append(pc.equal(table["seed"], whole_number(filters.seed)))
    if filters.commit:
        wanted.append(pc.starts_with(table["commit"], filters.commit))
    if filters.night:
        wanted.append(pc.equal(runs.group, filters.night))
    if filters.cell:
        wanted.append(pc.equal(cells(runs), filters.cell))
    for one in wanted:
        mask &= as_mask(one)
    if filters.nemesis:
        mask &= _holds(table["nemesis"], filters.nemesis)
    if filters.anomaly:
        mask &= _holds(table["anomalies"], filters.anomaly, "kind")
    return mask & _mentions(table, filters.text) if filters.text else mask


def _of_kind(table: pa.Table, kind: str) -> Mask:
    kinds = pc.fill_null(table["kind"], "run")
    if kind == "all":
        return as_mask(pc.not_equal(kinds, "campaign"))
    return as_mask(pc.equal(kinds, kind))


def as_mask(values: pa.ChunkedArray | pa.Array) -> Mask:
    """Null is no."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return np.array(pc.fill_null(whole, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _holds(lists: pa.ChunkedArray, values: tuple[str, ...], field: str = "") -> Mask:
    """Rows whose list has one of the values."""
    mask = np.zeros(len(lists), dtype=np.bool_)
    inner = pc.list_flatten(lists)
    if field:
        inner = pc.struct_field(inner, field)
    parents = pc.list_parent_indices(lists).to_numpy()
    mask[parents[as_mask(pc.is_in(inner, value_set=pa.array(values)))]] = True
    return mask


def _mentions(table: pa.Table, text: str) -> Mask:
    mask = np.zeros(table.num_rows, dtype=np.bool_)
    for name in SEARCHED:
        mask |= as_mask(pc.match_substring(table[name], text, ignore_case=True))
    for name in ("nemesis", "failed_checkers", "harness_failures"):
        mask |= _list_mentions(table[name], pc.list_flatten(table[name]), text)
    kinds = pc.struct_field(pc.list_flatten(table["anomalies"]), "kind")
    return mask | _list_mentions(table["anomalies"], kinds, text)


def _list_mentions(lists: pa.ChunkedArray, inner: pa.ChunkedArray, text: str) -> Mask:
    mask = np.zeros(len(lists), dtype=np.bool_)
    parents = pc.list_parent_indices(lists).to_numpy()
    mask[parents[as_mask(pc.match_substring(inner, text, ignore_case=True))]] = True
    return mask


def cells(runs: Runs) -> pa.Array:
    """The cell of each row: the matrix's word for it; of other runs what they were asked for,
    and not the faults that their plans drew."""
    found = runs.made.get("cells")
    if found is None:
        table = runs.table
        named = pc.fill_null(table["cell"], "")
        own = _plain_cells(table)
        found = pc.if_else(pc.equal(named, ""), own, named)
        found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        runs.made["cells"] = found
    return found


def _plain_cells(table: pa.Table) -> pa.Array:
    """Of few kinds of rows there are many: each kind is named once."""
    axes = [pc.fill_null(table[name], "?") for name in ("system", "profile", "cluster", "workload")]
    drawn = pc.fill_null(pc.binary_join(table["nemesis"], ","), _NOT_KNOWN)
    command = pc.fill_null(table["command"], "")
    is_test = pc.match_substring_regex(command, "^shalott test( |$)")
    asked = pc.if_else(
        pc.and_(is_test, pc.invert(pc.match_substring(command, " --plan"))),
        pc.replace_substring_regex(command, r"^(?:.*( --nemesis \S+).*|.*)$", r"shalott test\1"),
        "",
    )
    rows = pc.binary_join_element_wise(*axes, drawn, asked, "\0").combine_chunks()
    kinds = rows.dictionary_encode()
    names = []
    for kind in kinds.dictionary.to_pylist():
        *own, faults, words = kind.split("\0")
        names.append(plain_key(own, words, None if faults == _NOT_KNOWN else faults.split(",")))
    return pa.array(names, pa.string()).take(kinds.indices)


def choices(runs: Runs) -> dict[str, list[str]]:
    """What the table holds of each filter that is chosen from a list, the most frequent first."""
    found: dict[str, list[str]] | None = runs.made.get("choices")
    if found is None:
        table = runs.table
        columns = {name: table[name] for name in EQUAL}
        columns["nemesis"] = pc.list_flatten(table["nemesis"])
        columns["anomaly"] = pc.struct_field(pc.list_flatten(table["anomalies"]), "kind")
        found = {name: _by_frequency(values) for name, values in columns.items()}
        runs.made["choices"] = found
    return found


def _by_frequency(values: pa.ChunkedArray) -> list[str]:
    counted = pc.value_counts(pc.drop_null(values))
    names = counted.field("values").to_pylist()
    counts = counted.field("counts").to_pylist()
    pairs = sorted(zip(counts, names, strict=True), key=lambda pair: (-pair[0], pair[1]))
    return [name for _, name in pairs[:CHOICES_MAX] if name]


def ordered(runs: Runs, mask: Mask, order: str) -> npt.NDArray[np.int64]:
    """The wanted rows' numbers in the order that was asked for."""
    kept: npt.NDArray[np.int64] = runs.order[mask[runs.order]]
    if order == "red":
        return kept
    names = {"lost": "lost", "slowest": "latency_p99_ms"}
    column = runs.table[names.get(order, "started_wall_ns")]
    keys = pc.fill_null(column, -1).to_numpy()[kept]
    return np.asarray(kept[np.argsort(keys if order == "oldest" else -keys, kind="stable")])
