"""From a chart to drawings: where axes, marks, labels and legends lie."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tracekit.model.chart import (
    Bar,
    Chart,
    Key,
    Line,
    Mark,
    Panel,
    Point,
    Rows,
    Rule,
    Segments,
)
from tracekit.report.charts.drawing import (
    TEXT_SIZE,
    Box,
    Dot,
    Drawing,
    Path,
    Shape,
    Text,
    text_width,
)
from tracekit.report.charts.palette import colour_name
from tracekit.report.charts.scales import Scale, fitted, x_values, y_values
from tracekit.wording.names import printable, shorten

__all__ = ["SMALL", "WIDE", "figure", "panel_drawing"]

WIDE, SMALL = 760.0, 370.0
"""Widths of a panel that stands alone and of one next to another."""
_TALL = {WIDE: 260.0, SMALL: 240.0}
_RIGHT, _TOP, _BOTTOM = 16.0, 12.0, 44.0
_TITLE = 18.0
_GAP = 20.0
_LINE = 15.0
_LABELS_FRAC = 0.36
"""Labels of rows wider than this share of a panel stand above their row, not left of it."""
_ROW, _ROW_BELOW_LABEL = 22.0, 36.0
_BAR = 13.0
_TICK_ROOM = 18.0


@dataclass(frozen=True)
class _Frame:
    """The area of the marks and the scales of a panel."""

    left: float
    right: float
    top: float
    bottom: float
    x: Scale
    y: Scale
    rows: bool
    row_height: float

    def across(self, value: float) -> float:
        return self.left + self.x.frac(value) * (self.right - self.left)

    def up(self, value: float) -> float:
        """Place of a value of the vertical axis, or the middle of the bar of a row."""
        if self.rows:
            return self.top + (value + 1) * self.row_height - _ROW / 2
        return self.bottom - self.y.frac(value) * (self.bottom - self.top)


def panel_drawing(panel: Panel) -> Drawing:
    """Return the drawing of one panel, without its title, as wide as `Panel.wide` says."""
    width = WIDE if panel.wide else SMALL
    frame, height, labels = _framed(panel, width)
    marks = [shape for mark in panel.marks for shape in _mark(mark, frame)]
    rules = [s for s in marks if isinstance(s, Path) and s.kind == "rule"]
    above = [s for s in marks if s not in rules]
    # Lines lie below texts, and texts below marks.
    ticks = [s for s in labels if isinstance(s, Path)]
    texts = [s for s in labels if s not in ticks]
    shapes = (*_x_axis(frame), *ticks, *rules, *texts, *above)
    return Drawing(printable(panel.title), width, height, shapes)


def _framed(panel: Panel, width: float) -> tuple[_Frame, float, list[Shape]]:
    """The frame of a panel, its height, and the shapes of its vertical axis."""
    x = fitted(panel.x, x_values(panel))
    if isinstance(panel.y, Rows):
        return _framed_rows(panel, panel.y, x, width)
    y = fitted(panel.y, y_values(panel))
    height = _TALL[width]
    ticks = y.ticks(5)
    left = 26 + max((text_width(t) for _, t in ticks), default=0.0)
    frame = _Frame(left, width - _RIGHT, _TOP, height - _BOTTOM, x, y, rows=False, row_height=0)
    shapes: list[Shape] = []
    for value, words in ticks:
        at = frame.up(value)
        shapes.append(Path((((left, at), (frame.right, at)),), "tick"))
        shapes.append(Text(left - 6, at + 4, words, "end"))
    middle = (frame.top + frame.bottom) / 2
    room = height / TEXT_SIZE * 1.7
    shapes.append(Text(11, middle, shorten(y.title, int(room)), "middle", "name", turned=True))
    return frame, height, shapes


def _framed_rows(
    panel: Panel, rows: Rows, x: Scale, width: float
) -> tuple[_Frame, float, list[Shape]]:
    """Rows keep their labels left of the marks if those are short, else above each row."""
    labels = [printable(label) for label in rows.labels]
    widest = max((text_width(label) for label in labels), default=0.0)
    left_of_marks = widest <= _LABELS_FRAC * width
    named = any(isinstance(m, Rule) and m.label for m in panel.marks)
    title = _LINE if rows.title or named else 0.0
    row_height = _ROW if left_of_marks else _ROW_BELOW_LABEL
    top = 4 + title
    bottom = top + row_height * len(labels) + 4
    left = widest + 12 if left_of_marks else 12.0
    ends = (_end_width(panel), _RIGHT)
    y = Scale("", 0, 1, "", log=False)
    frame = _Frame(left, width - max(ends), top, bottom, x, y, rows=True, row_height=row_height)
    shapes: list[Shape] = [Text(0, top - 5, rows.title, "start", "name")] if rows.title else []
    for row, label in enumerate(labels):
        at = frame.up(row) + 4
        if left_of_marks:
            shapes.append(Text(left - 8, at, label, "end"))
        else:
            shapes.append(_cut(0.0, at - _LINE - 2, label, width - 4, "over"))
    return frame, bottom + _BOTTOM, shapes


def _cut(x: float, y: float, words: str, room: float, kind: str = "") -> Text:
    """Text no wider than `room`, the whole of it under the mouse where it was cut."""
    short, keep = words, len(words)
    while text_width(short) > room and keep > 4:
        keep = min(keep - 1, int(keep * room / text_width(short)))
        short = shorten(words, keep)
    return Text(x, y, short, kind=kind, tip="" if short == words else words)


def _end_width(panel: Panel) -> float:
    """Room that texts after bars need to the right of the axis."""
    widths = [text_width(m.label) for m in panel.marks if isinstance(m, Bar) and m.label]
    return max(widths, default=0.0) + 10 if widths else 0.0


def _x_axis(frame: _Frame) -> list[Shape]:
    most = 6
    ticks = frame.x.ticks(most)
    while most > 1 and sum(text_width(t) + _TICK_ROOM for _, t in ticks) > frame.right - frame.left:
        most -= 1
        ticks = frame.x.ticks(most)
    shapes: list[Shape] = []
    for value, words in ticks:
        at = frame.across(value)
        shapes.append(Path((((at, frame.top), (at, frame.bottom)),), "tick"))
        half = text_width(words) / 2
        inside = min(max(at, half), frame.right + _RIGHT - half)
        shapes.append(Text(inside, frame.bottom + _LINE, words, "middle"))
    middle = (frame.left + frame.right) / 2
    half = text_width(frame.x.title) / 2
    middle = max(middle, half) if middle + half <= frame.right + _RIGHT else frame.right - half
    shapes.append(Text(middle, frame.bottom + 2.3 * _LINE, frame.x.title, "middle", "name"))
    return shapes


def _mark(mark: Mark, frame: _Frame) -> list[Shape]:
    match mark:
        case Bar():
            return _bar(mark, frame)
        case Point():
            return _point(mark, frame)
        case Line():
            return [_line(mark, frame)]
        case Segments():
            pieces = tuple(
                (
                    (frame.across(x0), frame.up(y0)),
                    (max(frame.across(x1), frame.across(x0) + 0.1), frame.up(y1)),
                )
                for x0, y0, x1, y1 in mark.lines
            )
            return [Path(pieces, f"run {colour_name(mark.role)}")]
        case Rule():
            return _rule(mark, frame)


def _bar(mark: Bar, frame: _Frame) -> list[Shape]:
    low, high = sorted((frame.across(mark.start), frame.across(mark.end)))
    middle, kind = frame.up(mark.row), colour_name(mark.role)
    width = max(0.5, high - low)
    shapes: list[Shape] = [
        Box(low, middle - _BAR / 2, width, _BAR, kind, mark.shade, printable(mark.tip))
    ]
    if mark.label:
        shapes.append(Text(low + width + 5, middle + 4, printable(mark.label), kind="over"))
    return shapes


def _point(mark: Point, frame: _Frame) -> list[Shape]:
    x, y, kind = frame.across(mark.x), frame.up(mark.y), colour_name(mark.role)
    shapes: list[Shape] = []
    if mark.interval is not None:
        low, high = mark.interval
        ends = (
            ((frame.across(low), y), (frame.across(high), y))
            if frame.rows
            else ((x, frame.up(low)), (x, frame.up(high)))
        )
        shapes.append(Path((ends,), "whisker"))
    return [*shapes, Dot(x, y, kind, printable(mark.tip))]


def _line(mark: Line, frame: _Frame) -> Path:
    places = [(frame.across(x), frame.up(y)) for x, y in mark.points]
    if mark.steps:
        corners = [(after[0], before[1]) for before, after in pairwise(places)]
        pairs = zip(places, [*corners, None], strict=True)
        places = [place for pair in pairs for place in pair if place is not None]
    return Path((tuple(places),), f"run {colour_name(mark.role)}", printable(mark.tip))


def _rule(mark: Rule, frame: _Frame) -> list[Shape]:
    if mark.horizontal:
        at = frame.up(mark.at)
        ends, place = ((frame.left, at), (frame.right, at)), (frame.right, at - 4)
    else:
        at = frame.across(mark.at)
        ends, place = (
            ((at, frame.top), (at, frame.bottom)),
            (at - 4, frame.top - 4 if frame.rows else frame.top + 9),
        )
    shapes: list[Shape] = [Path((ends,), "rule")]
    if mark.label:
        start = not mark.horizontal and place[0] - text_width(mark.label) < frame.left
        x = at + 4 if start else place[0]
        shapes.append(
            Text(x, place[1], printable(mark.label), "start" if start else "end", "over name")
        )
    return shapes


def figure(chart: Chart) -> Drawing:
    """Return the drawing of a whole chart: heading, caption, legend, and every panel."""
    shapes: list[Shape] = []
    y = 20.0
    for words, kind in ((chart.title, "heading"), (chart.caption, "")):
        for line in _wrapped(printable(words), WIDE - 8):
            shapes.append(Text(0, y, line, kind=kind))
            y += _LINE
        y += 4
    if chart.legend:
        keys, y = _legend(chart.legend, y)
        shapes += keys
    x, line_height = 0.0, 0.0
    for panel in chart.panels:
        drawn = panel_drawing(panel)
        if x and x + drawn.width > WIDE:
            x, y, line_height = 0.0, y + line_height, 0.0
        title = len(chart.panels) > 1
        if title:
            shapes.append(_cut(x, y + 12, drawn.label, drawn.width - 8))
        shapes += drawn.moved(x, y + _TITLE * title)
        line_height = max(line_height, drawn.height + _TITLE * title + 8)
        x += drawn.width + _GAP
    margin = 12.0
    whole = Drawing(printable(chart.title), WIDE, y + line_height, tuple(shapes))
    return Drawing(
        whole.label, WIDE + 2 * margin, whole.height + margin, whole.moved(margin, margin / 2)
    )


def _legend(keys: tuple[Key, ...], y: float) -> tuple[list[Shape], float]:
    shapes: list[Shape] = []
    x = 0.0
    for key in keys:
        needed = 16 + text_width(key.label) + 18
        if x and x + needed > WIDE:
            x, y = 0.0, y + _LINE + 2
        shapes.append(Box(x, y - 9, 10, 10, colour_name(key.role), key.shade))
        shapes.append(Text(x + 15, y, printable(key.label)))
        x += needed
    return shapes, y + _LINE + 4


def _wrapped(words: str, room: float) -> list[str]:
    lines = [""]
    for word in words.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
