"""What a competent analyst writes for the questions that the benchmark asks: the yardstick.

One script, only the columns that it needs, vectorised throughout. Per GPU it answers how much
communication overlaps computation and what DRAM does inside and outside of it, and for the whole
run how kernel time splits over NVTX ranges and how much of it is dequantisation. The join to
ranges is the usual shortcut, the range opened last on the launching thread if it is still open:
quicker than a search for the innermost one, and wrong once a nested range has closed.

Usage: python -m benchmarks.pandas_script REPORT.sqlite
"""

from __future__ import annotations

import sqlite3
import sys

import numpy as np
import pandas as pd

SHOWN = 12


def union(intervals: pd.DataFrame) -> pd.DataFrame:
    """Merge overlapping intervals: frame of disjoint start, end in ns, sorted."""
    ordered = intervals.sort_values("start")
    reached = ordered["end"].cummax().shift(fill_value=-1)
    islands = (ordered["start"] > reached).cumsum()
    return ordered.groupby(islands).agg(start=("start", "min"), end=("end", "max"))


def total(disjoint: pd.DataFrame) -> int:
    """Return the summed length of disjoint intervals, ns."""
    return int((disjoint["end"] - disjoint["start"]).sum())


def load_kernels(db: sqlite3.Connection, strings: pd.Series) -> pd.DataFrame:
    """Read kernels: times, device, process, correlation, name, and whether each is NCCL's."""
    kernels = pd.read_sql(
        "SELECT start, end, deviceId, globalPid, correlationId, demangledName"
        " FROM CUPTI_ACTIVITY_KIND_KERNEL",
        db,
    )
    kernels["ns"] = kernels["end"] - kernels["start"]
    nccl = strings.index[strings.str.startswith("nccl")]
    kernels["is_nccl"] = kernels["demangledName"].isin(nccl)
    return kernels


def overlap(kernels: pd.DataFrame) -> pd.DataFrame:
    """Per device: how long NCCL and computation ran, and how long both at once, ms."""
    rows = []
    for device, on_device in kernels.groupby("deviceId"):
        nccl = union(on_device[on_device["is_nccl"]])
        compute = union(on_device[~on_device["is_nccl"]])
        either = total(union(pd.concat([nccl, compute])))
        both = total(nccl) + total(compute) - either
        span = int(on_device["end"].max() - on_device["start"].min())
        rows.append(
            {
                "device": device,
                "nccl_ms": total(nccl) / 1e6,
                "compute_ms": total(compute) / 1e6,
                "both_ms": both / 1e6,
                "idle_pct": 100 * (1 - either / span),
            }
        )
    return pd.DataFrame(rows)


def dram(db: sqlite3.Connection, kernels: pd.DataFrame) -> pd.DataFrame:
    """Per device: mean DRAM read and write throughput inside and outside collectives, %."""
    samples = pd.read_sql(
        "SELECT timestamp, typeId, value FROM GPU_METRICS WHERE metricId IN (SELECT metricId FROM"
        " TARGET_INFO_GPU_METRICS WHERE metricName LIKE 'DRAM % Bandwidth%')",
        db,
    )
    samples["device"] = samples.pop("typeId") & 0xFF
    both = samples.groupby(["device", "timestamp"], as_index=False)["value"].sum()
    rows = []
    for device, on_device in both.groupby("device"):
        nccl = union(kernels[(kernels["deviceId"] == device) & kernels["is_nccl"]])
        joined = pd.merge_asof(
            on_device.sort_values("timestamp"), nccl, left_on="timestamp", right_on="start"
        )
        inside = joined["timestamp"] < joined["end"]
        rows.append(
            {
                "device": device,
                "inside_pct": joined["value"][inside].mean(),
                "outside_pct": joined["value"][~inside].mean(),
            }
        )
    return pd.DataFrame(rows)


def by_range(db: sqlite3.Connection, kernels: pd.DataFrame, strings: pd.Series) -> pd.DataFrame:
    """Kernel count and time by the NVTX range around the launching call."""
    calls = pd.read_sql(
        "SELECT start AS launch, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME", db
    )
    calls["globalPid"] = calls["globalTid"] & ~0xFFFFFF
    launched = kernels.merge(calls, on=["globalPid", "correlationId"])
    ranges = pd.read_sql(
        "SELECT start AS opened, end AS closed, globalTid, text, textId FROM NVTX_EVENTS"
        " WHERE eventType IN (59, 60) AND domainId = 0",
        db,
    )
    ranges["range"] = ranges["text"].fillna(ranges["textId"].map(strings))
    joined = pd.merge_asof(
        launched.sort_values("launch"),
        ranges[["opened", "closed", "globalTid", "range"]].sort_values("opened"),
        left_on="launch",
        right_on="opened",
        by="globalTid",
    )
    joined.loc[joined["launch"] >= joined["closed"], "range"] = None
    return summary(joined.groupby("range", dropna=False)["ns"])


def summary(groups: pd.core.groupby.SeriesGroupBy) -> pd.DataFrame:
    """Count, sum in ms and median in us of each group, the largest sum first."""
    table = groups.agg(["count", "sum", "median"]).sort_values("sum", ascending=False)
    return table.assign(sum=table["sum"] / 1e6, median=table["median"] / 1e3)


def dequant_share(kernels: pd.DataFrame, strings: pd.Series) -> float:
    """Share of computing kernel time that dequantises, 0..1."""
    ids = strings.index[strings.str.contains("dequant", case=False)]
    compute = kernels[~kernels["is_nccl"]]
    ns = compute["ns"].sum()
    return compute["ns"][compute["demangledName"].isin(ids)].sum() / ns if ns else np.nan


def main(path: str) -> None:
    """Print the answers for one report."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    strings = pd.read_sql("SELECT id, value FROM StringIds", db).set_index("id")["value"]
    kernels = load_kernels(db, strings)
    print("NCCL and computation", overlap(kernels).round(3).to_string(index=False), sep="\n")
    print("DRAM, % of peak", dram(db, kernels).round(2).to_string(index=False), sep="\n")
    print("kernel time by range", by_range(db, kernels, strings).head(SHOWN).round(3), sep="\n")
    named = kernels.groupby(kernels["demangledName"].map(strings).str.slice(0, 60))["ns"]
    print("kernel time by name", summary(named).head(SHOWN).round(3), sep="\n")
    print(f"dequantisation: {dequant_share(kernels, strings):.1%} of computing time")


if __name__ == "__main__":
    main(sys.argv[1])
