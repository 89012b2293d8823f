"""Findings on collectives that other work does not slow, or that cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from tracekit.analyses._collectives.wording import (
    amount,
    missing_sizes,
    op_name,
    opaque_caveat,
    whose,
)
from tracekit.analyses.allreduce_contention.wording import (
    NAME,
    confidence,
    groups_evidence,
    metrics,
    partner_words,
)
from tracekit.model.finding import Finding, Level, Missing
from tracekit.trace.analysis import Frames

__all__ = ["nothing_to_compare", "unharmed"]

Row = Mapping[str, Any]


def unharmed(frames: Frames, facts: Row, comm: Row, rows: pl.DataFrame, params: Any) -> Finding:
    """Return the verdict on a communicator that other work does not slow."""
    first = rows.sort("n_cont", descending=True, maintain_order=True).row(0, named=True)
    op = op_name(first["op"])
    interval = f"[{first['slowdown_lo_ratio']:.2f}, {first['slowdown_hi_ratio']:.2f}]"
    return Finding(
        id=f"{NAME}/unharmed" + ("" if frames["communicators"].height == 1 else f"-{comm['comm']}"),
        level=Level.OK,
        title=f"{op}{whose(frames, comm['comm'])} is not slower beside {partner_words(first)}:"
        f" transfer {first['slowdown_ratio']:.2f}x {interval},"
        f" {amount(first['n_cont'], 'collective')} against {first['n_base']} alone",
        metrics=metrics(frames, first, params),
        confidence=confidence(facts, comm, first),
        caveats=opaque_caveat(facts),
        scope=(("communicator", comm["comm"]), ("operation", op)),
        evidence=(groups_evidence({"comm": comm["comm"]}),),
        missing=missing_sizes(facts),
    )


def nothing_to_compare(frames: Frames, facts: Row, comm: Row) -> Finding:
    """Return the verdict where no group has five collectives alone and five beside."""
    groups = frames["groups"].filter(pl.col("comm") == comm["comm"])
    contended = int(groups["n_cont"].sum())
    alone = int(groups.unique("bytes")["n_base"].sum())
    suffix = "" if frames["communicators"].height == 1 else f"-{comm['comm']}"
    scope = (("communicator", comm["comm"]),)
    evidence = (groups_evidence({"comm": comm["comm"]}),)
    if contended == 0:
        return Finding(
            id=f"{NAME}/no_overlap{suffix}",
            level=Level.OK,
            title=f"none of {amount(comm['n_matched'], 'collective')}{whose(frames, comm['comm'])}"
            " ran beside other work",
            confidence=confidence(facts, comm, {"n_cont": comm["n_matched"], "prov": comm["prov"]}),
            caveats=opaque_caveat(facts),
            scope=scope,
            evidence=evidence,
            missing=missing_sizes(facts),
        )
    return Finding(
        id=f"{NAME}/no_baseline{suffix}",
        level=Level.UNKNOWN,
        title=f"contention is unknown{whose(frames, comm['comm'])}: {contended} collectives ran"
        f" beside other work and {alone} alone, and no size has five of both",
        caveats=("Only collectives of one size, type, kernel and grid are compared.",),
        scope=scope,
        evidence=evidence,
        missing=(Missing("a longer recording, or one phase in which the other work does not run"),),
    )
