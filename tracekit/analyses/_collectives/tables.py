"""Result tables of the analyses of communication, and what their columns mean."""

from __future__ import annotations

import polars as pl

from tracekit.model.table import Column, Table
from tracekit.views.collectives.facts import FACTS, RAW
from tracekit.views.collectives.matching import COMMUNICATOR
from tracekit.views.contention.corunners import ATTRIBUTION, SLOWED
from tracekit.views.contention.groups import GROUP
from tracekit.views.contention.loss import FELT, HELD_UP, MECHANISM
from tracekit.views.contention.windows import SHARED_TIME, WINDOW
from tracekit.views.waiting.lateness import LATENESS
from tracekit.views.waiting.queueing import QUEUEING
from tracekit.views.waiting.rank_waits import RANK_WAITS, SKEW

__all__ = [
    "ATTRIBUTION_TABLE",
    "CASE",
    "CASES_TABLE",
    "COMMUNICATORS_TABLE",
    "COPIES_TABLE",
    "FACTS_TABLE",
    "GROUPS_TABLE",
    "HELD_UP_TABLE",
    "LATENESS_TABLE",
    "LOSS_FELT_TABLE",
    "MECHANISMS_TABLE",
    "QUEUEING_TABLE",
    "RANKS_TABLE",
    "RANK_WAITS_TABLE",
    "RAW_TABLE",
    "SHARED_TABLE",
    "SKEW_TABLE",
    "SLOWED_TABLE",
    "WINDOWS_TABLE",
]

CASE = pl.Schema(
    {
        "comm": pl.String(),
        "op": pl.String(),
        "bytes": pl.Int64(),
        "n_seen": pl.UInt32(),
        "last_start_ns": pl.Int64(),
        "last_end_ns": pl.Int64(),
        "transfer_ns": pl.Int64(),
        "skew_ns": pl.Int64(),
        "overlap_frac": pl.Float64(),
        "state": pl.String(),
        "partner": pl.String(),
        "mechanism": pl.String(),
        "excess_ns": pl.Int64(),
        "step_group": pl.String(),
    }
)
COPIES = pl.Schema(
    {
        "gpu": pl.Int16(),
        "n": pl.UInt32(),
        "bytes": pl.Int64(),
        "time_ns": pl.Int64(),
        "bytes_per_s": pl.Float64(),
    }
)
RANKS = pl.Schema(
    {
        "rank_id": pl.UInt32(),
        "rank": pl.String(),
        "where": pl.String(),
        "rank_known": pl.Boolean(),
        "report": pl.UInt16(),
        "gpu": pl.Int16(),
        "pid": pl.UInt32(),
    }
)
_UNITS = (
    ("_bytes_per_s", "B/s"),
    ("bytes_per_s", "B/s"),
    ("_gbps", "GB/s"),
    ("bytes", "bytes"),
    ("bytes_min", "bytes"),
    ("bytes_max", "bytes"),
    ("_frac", "1"),
    ("_ns", "ns"),
    ("_ratio", "x"),
)
_DOCS = {
    "comm": "communicator: the library's id, or ~family#k in order of use where it is unknown",
    "op": "operation; null when neither the call nor the kernel's name tells",
    "bytes": "whole message; null when unknown",
    "dtype": "element type",
    "name": "kernel name, or kind of copy",
    "grid": "grid of the kernel",
    "block": "block of the kernel",
    "kind": "class of work",
    "partner": "kind of work that covered most of the overlap",
    "partners": "kinds of work beside it, most lost time first",
    "mechanism": "bandwidth (DRAM used up), link, SM/scheduling (neither), or unknown",
    "n_base": "collectives with at most 5% overlap",
    "n_cont": "collectives with at least 50% overlap",
    "base_ns": "median transfer alone",
    "cont_ns": "median transfer beside the partner",
    "slowdown_ratio": "median beside over median alone; weighted geometric mean in roll-ups",
    "slowdown_lo_ratio": "lower end of its 95% bootstrap interval",
    "slowdown_hi_ratio": "upper end",
    "known": "five collectives on either side",
    "per_overlap": "slope of transfer over overlap share, relative to no overlap (Theil-Sen)",
    "lost_ns": "transfer time above the median alone, summed",
    "lost_frac": "of the step group or capture where it is largest",
    "lost_of_ns": "length of that step group, or of the capture",
    "all_time_ns": "length of all steps, or of the capture",
    "heaviest_bytes": "message size that lost most; sampled columns are of it",
    "sms_base_frac": "SMs with work, over the transfers alone",
    "sms_cont_frac": "SMs with work, over the transfers beside the partner",
    "felt_ns": "part that something was seen to wait for",
    "felt_frac": "felt_ns, of all step time or of the capture",
    "wait_felt_ns": "part of wait_ns through which something was seen to wait",
    "mean_wait_felt_ns": "part of mean_wait_ns through which something was seen to wait",
    "first_wait_ns": "wait in the first collective, left out of sums and of step time",
    "weighty": "worth reading: the largest of a rank, and large ones after it",
    "waiting_ns": "felt waiting for ranks, mean over ranks, without the first collective",
    "queueing_ns": "felt queueing",
    "slower_ns": "transfer time above the median alone",
    "together_ns": "all three, each moment counted once",
    "lost_all_frac": "of all step time, or of the capture",
    "comm_lost_frac": "all mechanisms that slow this communicator together",
    "dram_base_frac": "DRAM read + write over the transfers alone, share of peak",
    "dram_cont_frac": "DRAM read + write over the transfers beside the partner",
    "dram_cont_lo_frac": "lower end over windows",
    "dram_cont_hi_frac": "upper end over windows",
    "link_base_frac": "NVLink, busier direction, over the transfers alone",
    "link_cont_frac": "NVLink, busier direction, beside the partner",
    "coverage_frac": "share of the windows for which there are samples",
    "subsample": "windows are shorter than the sampling period",
    "busbw_base_gbps": "bus bandwidth alone (nccl-tests' factor)",
    "busbw_cont_gbps": "bus bandwidth beside the partner",
    "lag_base_p95_ns": "95th percentile of start - ready alone",
    "lag_cont_ns": "median of start - ready beside the partner",
    "provenance": "confidence in the source of size and operation, 0..1",
    "clock": "confidence in a common clock, 0..1",
    "mad_ns": "error of the clock alignment",
    "state": "alone, contended or partly",
    "transfer_ns": "last end - latest start",
    "skew_ns": "latest start - first start",
    "skew_over_transfer": "median skew over median transfer",
    "wait_frac": "of the rank's own step time",
    "xfer_median_ns": "median of own end - latest start",
    "n_last": "collectives at which this rank came last",
    "mean_wait_ns": "summed mean wait over ranks: won if all came at the mean moment",
    "first_skew_ns": "skew of the first collective, left out of sums (start of recording)",
    "late_ns": "skew of the collectives at which this rank was last, summed",
    "what": "what the time went to",
    "extra_ns": "more time than the earliest rank spent on it, summed",
    "extra_frac": "of late_ns",
    "n_mismatched": "collectives whose operation or size differs between ranks; not used",
    "n_clock_faults": "collectives that a rank left before the last one came",
    "status": "whether collectives could be matched across ranks",
    "dependency": "the start may have waited for an event instead of for room",
    "one_rank": "not matched across ranks: other ranks may have been later still",
    "queued_of_ns": "what queued_frac is of",
    "queued_frac": "of the step group or capture where it is largest",
    "n_all": "collectives in all",
    "excess_ns": "time above the median without company",
    "excess_frac": "share of the mechanism's excess",
    "hidden_ns": "communication that ran meanwhile and would else be exposed",
    "change_ratio": "DRAM contended over DRAM in pure compute, minus 1",
    "n_zero_len": "rows of no length, dropped",
    "n_host_calls": "calls of collectives on the host; graph replays need none",
    "n_unsized": "communication kernels of unknown message size",
    "n_shared_gpus": "GPUs that several processes used",
    "link_peak_gbps": "peak of the GPU link in one direction",
    "rank_known": "whether the number is the library's own",
}


def _table(name: str, schema: pl.Schema, doc: str) -> Table:
    columns = (Column(n, t, _unit(n), _DOCS.get(n, n.replace("_", " "))) for n, t in schema.items())
    return Table(name, tuple(columns), doc)


def _unit(name: str) -> str:
    return next((unit for suffix, unit in _UNITS if name.endswith(suffix)), "")


FACTS_TABLE = _table("facts", FACTS, "what the recording can tell about communication")
COMMUNICATORS_TABLE = _table("communicators", COMMUNICATOR, "one communicator and its matching")
MECHANISMS_TABLE = _table("mechanisms", MECHANISM, "slowdown and loss of one mechanism")
GROUPS_TABLE = _table("groups", GROUP, "like collectives beside one partner, against alone")
CASES_TABLE = _table("collectives", CASE, "one collective, matched across its ranks")
WINDOWS_TABLE = _table("windows", WINDOW, "one stretch of communication beside other work")
SHARED_TABLE = _table("shared_time", SHARED_TIME, "time of one GPU by what ran")
ATTRIBUTION_TABLE = _table("attribution", ATTRIBUTION, "what the lost time goes with")
SLOWED_TABLE = _table("slowed_compute", SLOWED, "like work inside collectives, against outside")
RAW_TABLE = _table("raw_durations", RAW, "kernel durations, waiting included")
COPIES_TABLE = _table("peer_copies", COPIES, "copies between GPUs on one GPU")
HELD_UP_TABLE = _table("held_up", HELD_UP, "what a communicator's findings put at stake together")
LOSS_FELT_TABLE = _table("loss_felt", FELT, "lost transfer time that something waited for")
QUEUEING_TABLE = _table("queueing", QUEUEING, "ready collectives that could not start")
RANKS_TABLE = _table("ranks", RANKS, "one rank")
RANK_WAITS_TABLE = _table("rank_waits", RANK_WAITS, "waiting of one rank in one step group")
SKEW_TABLE = _table("skew", SKEW, "skew against transfer in one step group")
LATENESS_TABLE = _table("lateness", LATENESS, "what a late rank did that the earliest did not")
