"""The timeline of a page: tracks of boxes, sampled series, tracks of analyses, findings."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracekit.model.chart import Role, Track, role_of_kind
from tracekit.model.diagnosis import Diagnosis
from tracekit.report.charts.palette import LIGHT, colour_name
from tracekit.wording.names import printable, short_name

__all__ = ["timeline"]

_MOST_SPANS = 8_000
_NAME = 120
_LANES = ("steps", "communication", "", "compute", "copies", "opaque graphs")
"""Lanes from top to bottom; "" are the tracks that analyses hand over."""


def timeline(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """Return what the timeline draws, None when nothing on a device was recorded.

    Returns:
        Mapping of origin and span (ns, session time), tracks (label, gpu, lane, shaded, columns s,
        d (start after origin and length, ns), k (position in ``kinds``), w (position in
        ``names``), n (pieces merged), b (ns they run)), series (label, gpu, s, d, v and x: mean and
        maximum in permille of peak), marks (findings with their worst window), kinds (text and name
        of its colour), names, legend.
    """
    work = diagnosis.pictures.get("work")
    if work is None or work.is_empty():
        return None
    samples = diagnosis.pictures.get("samples")
    origin = int(str(work["start_ns"].min()))
    span = int(str(work["end_ns"].max())) - origin
    texts = _Texts()
    tracks = [_track(part, origin, texts) for part in work.partition_by("track")]
    for handed in diagnosis.tracks:
        tracks += _handed(handed, origin, texts)
    tracks.sort(key=lambda t: (-1 if t["gpu"] is None else t["gpu"], _LANES.index(t["lane"])))
    return {
        "origin": origin,
        "span": span,
        "gpus": _gpus(diagnosis, tracks),
        "tracks": tracks,
        "series": [] if samples is None else _all_series(samples, origin),
        "marks": _marks(diagnosis, origin),
        "kinds": [[kind, colour] for kind, _, colour in texts.kinds],
        "names": list(texts.names),
        "legend": texts.legend(),
    }


def _gpus(diagnosis: Diagnosis, tracks: list[dict[str, Any]]) -> dict[int, str]:
    """GPUs with a track, by index, and their names as far as they are known."""
    names = {g.index: printable(g.name) for g in diagnosis.gpus}
    used = sorted({t["gpu"] for t in tracks if t["gpu"] is not None})
    return {gpu: names.get(gpu, "") for gpu in used}


class _Texts:
    """Names and kinds, each stated once."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.kinds: dict[tuple[str, str, str], int] = {}

    def name(self, text: str | None) -> int:
        """Return the position of a name."""
        return self.names.setdefault(short_name(text or "", _NAME), len(self.names))

    def kind(self, text: str, legend: str, role: Role) -> int:
        """Return the position of a kind."""
        key = (printable(text), printable(legend), colour_name(role))
        return self.kinds.setdefault(key, len(self.kinds))

    def legend(self) -> list[list[str]]:
        """Return what each colour means, in the order of the colours."""
        order = list(LIGHT)
        used = {(order.index(colour), legend, colour) for _, legend, colour in self.kinds}
        return [[legend, colour] for _, legend, colour in sorted(used)]


def _track(part: pl.DataFrame, origin: int, texts: _Texts) -> dict[str, Any]:
    lane, stream = part["lane"][0], part["stream"][0]
    roles = [_role(lane, kind) for kind in part["kind"]]
    where = {"steps": ""}.get(lane, "other streams" if stream is None else f"stream {stream}")
    merged = part["n"].max() != 1
    return {
        "label": f"{lane} · {where}" if where else lane,
        "gpu": part["gpu"][0],
        "lane": lane,
        "shaded": False,
        **_spans(part, origin, texts),
        "b": part["busy_ns"].to_list() if merged else None,
        "n": part["n"].to_list() if merged else None,
        "k": [texts.kind(k or "step", r, r) for k, r in zip(part["kind"], roles, strict=True)],
    }


def _spans(part: pl.DataFrame, origin: int, texts: _Texts) -> dict[str, list[int]]:
    return {
        "s": (part["start_ns"] - origin).to_list(),
        "d": (part["end_ns"] - part["start_ns"]).to_list(),
        "w": [texts.name(name) for name in part["name"]],
    }


def _role(lane: str, kind: str | None) -> Role:
    if lane == "steps":
        return Role.STEP
    return Role.COPY if lane == "copies" else role_of_kind(kind)


def _handed(track: Track, origin: int, texts: _Texts) -> list[dict[str, Any]]:
    """One track of an analysis on every GPU that it has spans on."""
    spans = track.spans.head(_MOST_SPANS).sort("gpu", "start_ns", "end_ns")
    return [
        {
            "label": printable(track.label),
            "gpu": part["gpu"][0],
            "lane": "",
            "shaded": track.shaded,
            **_spans(part, origin, texts),
            "b": None,
            "n": None,
            "k": [texts.kind(kind, kind, track.roles[kind]) for kind in part["kind"]],
        }
        for part in spans.partition_by("gpu", maintain_order=True)
    ]


def _all_series(samples: pl.DataFrame, origin: int) -> list[dict[str, Any]]:
    return [_series(part, origin) for part in samples.partition_by("gpu", "what")]


def _series(part: pl.DataFrame, origin: int) -> dict[str, Any]:
    def permille(column: str) -> list[int]:
        return (part[column] * 1000).round().cast(pl.Int64).to_list()

    mean, highest = permille("mean_frac"), permille("max_frac")
    return {
        "label": part["what"][0],
        "gpu": part["gpu"][0],
        "s": (part["start_ns"] - origin).to_list(),
        "d": (part["end_ns"] - part["start_ns"]).to_list(),
        "v": mean,
        "x": None if highest == mean else highest,
    }


def _marks(diagnosis: Diagnosis, origin: int) -> list[dict[str, Any]]:
    return [
        {
            "finding": number,
            "level": finding.level.value,
            "title": printable(finding.title),
            "s": finding.t_range_ns[0] - origin,
            "d": finding.t_range_ns[1] - finding.t_range_ns[0],
        }
        for number, finding in enumerate(diagnosis.findings)
        if finding.t_range_ns is not None
    ]
