"""The timeline of a page: tracks of boxes, sampled series, contention windows, findings."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracekit.model.diagnosis import Diagnosis
from tracekit.wording.names import printable, short_name

__all__ = ["COLOURS", "timeline"]

COLOURS = {
    "communication": 1,
    "matrix product": 2,
    "attention": 3,
    "dequantisation": 4,
    "copy or memset": 5,
    "other compute": 6,
    "opaque graph": 7,
    "step": 8,
    "contention window": 9,
}
"""Legend of the boxes to the number of the colour in the style sheet."""
_GROUPS = {
    "comm": "communication",
    "custom_comm": "communication",
    "memcpy PtoP": "communication",
    "gemm": "matrix product",
    "gemm_quant": "matrix product",
    "moe_gemm": "matrix product",
    "gemm_helper": "matrix product",
    "attention": "attention",
    "dequant": "dequantisation",
    "opaque graph": "opaque graph",
}
_MOST_WINDOWS = 8_000
_NAME = 120
_LANE_ORDER = ("steps", "communication", "contention windows", "compute", "copies", "opaque graphs")


def timeline(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """Return what the timeline draws, None when nothing on a device was recorded.

    Returns:
        Mapping of origin and span (ns, session time), tracks (label, gpu, lane and columns s, d
        (start after origin and length, ns), k (position in ``kinds``), w (position in ``names``),
        n (pieces merged), b (ns they run)), series (label, gpu, s, d, v and x: mean and maximum in
        permille of peak), marks (findings with their worst window), kinds, names, legend.
    """
    work = diagnosis.pictures.get("work")
    if work is None or work.is_empty():
        return None
    samples = diagnosis.pictures.get("samples")
    origin = int(str(work["start_ns"].min()))
    span = int(str(work["end_ns"].max())) - origin
    texts = _Texts()
    tracks = [_track(part, origin, texts) for part in work.partition_by("track")]
    tracks += _windows(diagnosis, origin, texts)
    tracks.sort(key=lambda t: (-1 if t["gpu"] is None else t["gpu"], _LANE_ORDER.index(t["lane"])))
    used = {group for track in tracks for group in track["groups"]}
    return {
        "origin": origin,
        "span": span,
        "gpus": _gpus(diagnosis, tracks),
        "tracks": tracks,
        "series": [] if samples is None else _all_series(samples, origin),
        "marks": _marks(diagnosis, origin),
        "kinds": [[kind, COLOURS[group]] for kind, group in texts.kinds],
        "names": list(texts.names),
        "legend": [[label, colour] for label, colour in COLOURS.items() if label in used],
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
        self.kinds: dict[tuple[str, str], int] = {}

    def name(self, text: str | None) -> int:
        """Return the position of a name."""
        return self.names.setdefault(short_name(text or "", _NAME), len(self.names))

    def kind(self, text: str, group: str) -> int:
        """Return the position of a kind."""
        return self.kinds.setdefault((printable(text), group), len(self.kinds))


def _track(part: pl.DataFrame, origin: int, texts: _Texts) -> dict[str, Any]:
    lane, stream, gpu = part["lane"][0], part["stream"][0], part["gpu"][0]
    groups = [_group(lane, kind) for kind in part["kind"]]
    where = {"steps": ""}.get(lane, "other streams" if stream is None else f"stream {stream}")
    return {
        "label": f"{lane} · {where}" if where else lane,
        "gpu": gpu,
        "lane": lane,
        "groups": sorted(set(groups)),
        "s": (part["start_ns"] - origin).to_list(),
        "d": (part["end_ns"] - part["start_ns"]).to_list(),
        "b": part["busy_ns"].to_list() if part["n"].max() != 1 else None,
        "n": part["n"].to_list() if part["n"].max() != 1 else None,
        "k": [texts.kind(k or "step", g) for k, g in zip(part["kind"], groups, strict=True)],
        "w": [texts.name(name) for name in part["name"]],
    }


def _group(lane: str, kind: str | None) -> str:
    if lane == "steps":
        return "step"
    if lane == "copies":
        return "copy or memset"
    return _GROUPS.get(kind or "", "other compute")


def _windows(diagnosis: Diagnosis, origin: int, texts: _Texts) -> list[dict[str, Any]]:
    """Contention windows, one track a GPU."""
    frame = diagnosis.frames.get("allreduce_contention", {}).get("windows")
    if frame is None or frame.is_empty():
        return []
    tracks = []
    for part in frame.head(_MOST_WINDOWS).sort("gpu", "start_ns").partition_by("gpu"):
        words = [
            f"{op or 'communication'} beside {beside or 'other work'}"
            for op, beside in part.select("comm", "corunners").iter_rows()
        ]
        kind = texts.kind("contention window", "contention window")
        tracks.append(
            {
                "label": "contention windows",
                "gpu": part["gpu"][0],
                "lane": "contention windows",
                "groups": ["contention window"],
                "s": (part["start_ns"] - origin).to_list(),
                "d": (part["end_ns"] - part["start_ns"]).to_list(),
                "b": None,
                "n": None,
                "k": [kind] * part.height,
                "w": [texts.name(word) for word in words],
            }
        )
    return tracks


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
