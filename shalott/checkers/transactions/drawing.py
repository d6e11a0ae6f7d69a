"""A cycle of transactions as a picture: SVG that needs nothing else.

Transactions stand below each other, with their micro-operations in a row each; an arrow leads from
each to the next one on the right, and from the last to the first on the left. Arrows are named and
coloured by what they are of: ww, wr, rw, a process, time.
"""

from __future__ import annotations

from html import escape
from typing import Final

from shalott.checkers.transactions.story import Teller, Told

COLOURS: Final = {
    "ww": "#b3213d",
    "wr": "#2f6db5",
    "rw": "#8a4fb0",
    "process": "#7a6a2f",
    "realtime": "#3f7a5a",
}
INK, SOFT, PAPER, BOX = "#1d2430", "#5b6675", "#ffffff", "#f3f5f8"
_CHARACTER: Final = 7.3  # of the 12 px monospaced text
_ROW, _HEAD, _GAP, _MARGIN = 17, 24, 46, 14
_TEXT_MAX: Final = 64
_ROWS_MAX: Final = 14


def cycle_svg(told: Told, teller: Teller) -> str:
    """The picture of a cycle; "" of an anomaly that is none."""
    if not told.edges:
        return ""
    boxes = [_lines(teller, at, number) for number, at in enumerate(told.transactions, start=1)]
    width = max(_width(line) for lines in boxes for line in lines) + 20
    left = _MARGIN + 26 + _width(told.edges[-1][3])
    labels = max((_width(label) for *_, label in told.edges[:-1]), default=0)
    parts: list[str] = []
    tops: list[tuple[float, float]] = []
    y: float = _MARGIN + 24
    for lines in boxes:
        tops.append((y, y + _HEAD + _ROW * (len(lines) - 1) + 8))
        parts.append(_box(left, y, width, lines))
        y = tops[-1][1] + _GAP
    for begin, end, kind, label in told.edges:
        parts.append(_arrow(left, width, tops, begin, end, kind, label))
    height, total = y - _GAP + _MARGIN, left + width + 30 + labels + _MARGIN
    heads = "".join(
        f'<marker id="head-{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8"'
        f' markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
        for kind, colour in COLOURS.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {height:.0f}"'
        f' width="{total:.0f}" height="{height:.0f}" role="img"'
        f' font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">'
        f"<title>{escape(told.summary)}</title><desc>{escape('. '.join(told.sentences))}.</desc>"
        f'<defs>{heads}</defs><rect width="100%" height="100%" fill="{PAPER}"/>'
        f'<text x="{_MARGIN}" y="{_MARGIN + 8}" fill="{INK}" font-weight="bold">'
        f"{escape(told.kind)}</text>{''.join(parts)}</svg>\n"
    )


def _lines(teller: Teller, at: int, number: int) -> list[str]:
    """The head of a box, and a row for each micro-operation."""
    found = teller.found
    mops = found.mops(at)
    rows = [_cut(teller.mop(mop)) for mop in mops[:_ROWS_MAX]]
    if len(mops) > _ROWS_MAX:
        rows.append(f"... and {len(mops) - _ROWS_MAX} more")
    return [f"T{number}: {teller.place(at)}, process {found.process(at)}", *rows]


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."


def _width(text: str) -> float:
    return _CHARACTER * len(text)


def _box(x: float, y: float, width: float, lines: list[str]) -> str:
    height = _HEAD + _ROW * (len(lines) - 1) + 8
    rows = "".join(
        f'<text x="{x + 10:.0f}" y="{y + _HEAD + _ROW * row + 9:.0f}" fill="{INK}">'
        f"{escape(line)}</text>"
        for row, line in enumerate(lines[1:])
    )
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="5"'
        f' fill="{BOX}" stroke="{SOFT}"/><text x="{x + 10:.0f}" y="{y + 16:.0f}" fill="{SOFT}">'
        f"{escape(lines[0])}</text>{rows}"
    )


def _arrow(
    left: float,
    width: float,
    tops: list[tuple[float, float]],
    begin: int,
    end: int,
    kind: str,
    label: str,
) -> str:
    colour = COLOURS[kind]
    if end > begin:  # down, on the right
        x, bend, anchor = left + width, 22, "start"
        y1, y2 = tops[begin][1] - 12, tops[end][0] + 14
    else:  # back up, on the left
        x, bend, anchor = left, -22, "end"
        y1, y2 = tops[begin][0] + 14, tops[end][1] - 12
    middle = (y1 + y2) / 2 + 4
    dash = ' stroke-dasharray="5 3"' if kind in ("process", "realtime") else ""
    return (
        f'<path d="M{x:.0f} {y1:.0f}C{x + bend * 1.4:.0f} {y1:.0f} {x + bend * 1.4:.0f} {y2:.0f}'
        f' {x:.0f} {y2:.0f}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}'
        f' marker-end="url(#head-{kind})"/>'
        f'<text x="{x + bend + (4 if bend > 0 else -4):.0f}" y="{middle:.0f}" fill="{colour}"'
        f' text-anchor="{anchor}">{escape(label)}</text>'
    )
