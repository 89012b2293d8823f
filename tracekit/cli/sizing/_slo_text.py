"""The text of ``tracekit slo fit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.slo import Limit, SloFit

__all__ = ["write_fit"]


def write_fit(
    page: Lines, found: SloFit, options: dict[str, Any], source: dict[str, object]
) -> None:
    """Write what was found, and the levels it rests on."""
    from tracekit.wording.numbers import NOT_MEASURED, count, duration, share, significant

    page.line("Request rate that the objectives allow", "bold")
    page.fields(
        [
            ("Allowed", _limit(found.qps, "requests/s")),
            ("By latency", _limit(found.by_latency, "requests/s") if options["objective"] else ""),
            (
                "By headroom",
                _limit(found.by_headroom, "requests/s") if options["headroom"] is not None else "",
            ),
            ("Capacity", _capacity(found)),
            *(("Forbids", text) for text in found.guards),
            *(("Note", text) for text in found.notes),
            *(("Unknown", str(one)) for one in found.missing),
        ]
    )
    series = source.get("series")
    if isinstance(series, dict):
        names = ", ".join(f"{what} from {name}" for what, name in series.items() if name)
        page.fields([("Series", names)])
    left = {h.qps: h.beta for h in found.headroom}
    rows = [
        (
            significant(level.qps),
            duration(level.latency_s * 1e9),
            share(level.util_frac) if level.util_frac is not None else NOT_MEASURED,
            share(left.get(level.qps)),
            count(level.n),
        )
        for level in found.levels.levels
    ]
    if rows:
        page.line()
        heads = ("requests/s", "latency", "DRAM active", "headroom", "samples")
        page.columns(heads, rows, (True,) * 5, indent=2)


def _limit(limit: Limit | None, unit: str) -> str:
    from tracekit.wording.numbers import significant

    if limit is None:
        return "unknown"
    if limit.at_least:
        return f"at least {significant(limit.qps)} {unit}, the most that was observed"
    text = f"{significant(limit.qps)} {unit}"
    if limit.low_qps is not None and limit.high_qps is not None:
        low, high = significant(limit.low_qps), significant(limit.high_qps)
        text += f" (95 % interval {low} to {high})"
    return text


def _capacity(found: SloFit) -> str:
    from tracekit.wording.numbers import duration, significant

    queue = found.queue
    if queue is None or queue.capacity_qps is None:
        return "unknown"
    low, high = queue.capacity_low_qps, queue.capacity_high_qps
    ends = f"{significant(low or 0)} to {'unknown' if high is None else significant(high)}"
    return (
        f"{significant(queue.capacity_qps)} requests/s (95 % interval {ends}); without load"
        f" {duration(queue.base_s * 1e9)}"
    )
