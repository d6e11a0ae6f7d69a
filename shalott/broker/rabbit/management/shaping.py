"""columns, sort and page of a request's query: the answer cut to what was asked for
(rabbit_mgmt_util.erl, reply_list and columns; its documentation, Pagination Parameters)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from shalott.broker.base.http_api import Response, bad_request, json_response

PAGE_SIZE = 100
PAGE_SIZE_MAX = 500
ASKED_BY = ("columns", "sort", "page")


def shape(response: Response, query: Mapping[str, str]) -> Response:
    """Raises ApiError(400)."""
    if response.status != 200 or not any(key in query for key in ASKED_BY):
        return response
    if response.headers.get("Content-Type", "application/json") != "application/json":
        return response
    shown = msgspec.json.decode(response.body)
    if isinstance(shown, dict):
        return json_response(_cut(shown, query))
    if not isinstance(shown, list):
        return response
    if "sort" in query:
        keys = query["sort"].split(",")
        shown = sorted(
            shown,
            key=lambda each: [_rank(_at(each, key)) for key in keys],
            reverse=query.get("sort_reverse") == "true",
        )
    if "page" in query:
        return json_response(_page(shown, query))
    return json_response([_cut(each, query) for each in shown])


def _at(shown: object, path: str) -> object:
    """The value behind dots; None if there is none."""
    for name in path.split("."):
        shown = shown.get(name) if isinstance(shown, dict) else None
    return shown


def _rank(value: object) -> tuple[int, object]:
    """Values of several types in one order: numbers, then texts, then the rest."""
    match value:
        case None:
            return 0, 0
        case bool() | int() | float():
            return 1, value
        case str():
            return 2, value
    return 3, msgspec.json.encode(value, order="deterministic")


def _cut(shown: object, query: Mapping[str, str]) -> object:
    if "columns" not in query or not isinstance(shown, dict):
        return shown
    cut: dict[str, object] = {}
    for path in query["columns"].split(","):
        names = path.split(".")
        if not _has(shown, names):
            continue
        inner = cut
        for name in names[:-1]:
            deeper = inner.setdefault(name, {})
            inner = deeper if isinstance(deeper, dict) else {}
        inner[names[-1]] = _at(shown, path)
    return cut


def _has(shown: object, names: Sequence[str]) -> bool:
    for name in names:
        if not isinstance(shown, dict) or name not in shown:
            return False
        shown = shown[name]
    return True


def _page(shown: Sequence[object], query: Mapping[str, str]) -> dict[str, object]:
    page, size = _count(query, "page", 1), _count(query, "page_size", PAGE_SIZE)
    if size > PAGE_SIZE_MAX:
        raise bad_request(f"page_size is at most {PAGE_SIZE_MAX}")
    found = [each for each in shown if _is_named(each, query)]
    pages = max(1, -(-len(found) // size))
    if page > pages:
        reason = f"Page out of range, page: {page} page size: {size}, len: {len(found)}"
        raise bad_request(reason)
    items = found[(page - 1) * size : page * size]
    return {
        "filtered_count": len(found),
        "item_count": len(items),
        "items": [_cut(each, query) for each in items],
        "page": page,
        "page_count": pages,
        "page_size": size,
        "total_count": len(shown),
    }


def _count(query: Mapping[str, str], key: str, usual: int) -> int:
    text = query.get(key, str(usual))
    if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0) or len(text) > 9:
        raise bad_request(f"{key} must be a number of at least 1")
    return int(text)


def _is_named(shown: object, query: Mapping[str, str]) -> bool:
    wanted = query.get("name", "")
    name = str(_at(shown, "name") or "")
    if query.get("use_regex") != "true":
        return wanted in name
    try:
        return re.search(wanted, name) is not None
    except (re.error, RecursionError) as error:
        raise bad_request(f"name is not a regular expression: {error}") from error
