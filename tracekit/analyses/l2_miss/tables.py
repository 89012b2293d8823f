"""What `l2_miss` returns: its tables."""

from __future__ import annotations

import polars as pl

from tracekit.model.table import Column, Table
from tracekit.views.l2.layers import LAYER_KV

__all__ = [
    "ASSOCIATIONS",
    "COUNTERS",
    "KERNELS",
    "LAYERS",
    "NCU_KERNELS",
    "NCU_LAYERS",
    "NCU_MATCH",
    "SUMMARY",
]

I64, F64, STR = pl.Int64, pl.Float64, pl.String
_HITS = (
    Column("n_kernels", I64, "", "kernel executions"),
    Column("time_ns", I64, "ns", "sum of their durations"),
    Column("median_ns", F64, "ns", "median duration"),
    Column("cells", I64, "", "samples inside the kernels"),
    Column("valid_cells", I64, "", "of these, within the counter's scale"),
    Column("raw_mean", F64, "", "mean of the valid samples as recorded"),
    Column("hit_frac", F64, "1", "L2 hit rate, sampled; null when half the samples are invalid"),
    Column("hit_lo_frac", F64, "1", "lower end of its 95% interval over executions"),
    Column("hit_hi_frac", F64, "1", "upper end"),
    Column("miss_frac", F64, "1", "1 - hit_frac"),
    Column("subsample", pl.Boolean, "", "no sample lies inside a kernel: weighed by overlap"),
    Column("occupancy_frac", F64, "1", "resident warps of the most that fit; null: not sampled"),
)
LAYERS = Table(
    "layers",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("layer", pl.Int32, "", "layer"),
        Column("label", STR, "", "text of its first range, without the layer"),
        Column("of", STR, "", "attention kernels where there are any, else all kernels"),
        *_HITS,
        *LAYER_KV,
    ),
    "L2 hit rate of one layer and its KV layout when its kernels were launched, best first",
)
KERNELS = Table(
    "kernels",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("name", STR, "", "kernel name"),
        Column("kind", STR, "", "kernel class"),
        *_HITS,
    ),
    "L2 hit rate of one kernel, longest first",
)
ASSOCIATIONS = Table(
    "associations",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("source", STR, "", "where miss shares come from: sampled, or ncu"),
        Column("x_name", STR, "", "property of the layer"),
        Column("y_name", STR, "", "what it is compared with"),
        Column("n", I64, "", "layers for which both are known"),
        Column("n_eff", F64, "", "layers as independent observations"),
        *(Column(c, F64, "", "Pearson, Fisher interval") for c in ("r", "r_lo", "r_hi")),
        *(Column(c, F64, "", "Spearman, 95% interval") for c in ("rho", "rho_lo", "rho_hi")),
        Column("p_perm", F64, "", "two-sided permutation p of rho, from n = 5"),
        Column("p_holm", F64, "", "the same, adjusted for the number of properties tested"),
        *(
            Column(c, F64, "", "Pearson with the cache's bytes held fixed")
            for c in ("partial_r", "partial_lo", "partial_hi")
        ),
        Column("delta_miss_pp", F64, "pp", "misses of the top third of layers minus the bottom"),
        Column("severity", STR, "", "level; null for what is shown without being judged"),
        Column("why", STR, "", "why there is no coefficient; empty where there is one"),
    ),
    "association over layers: layout with misses (judged), misses with time (shown)",
)
COUNTERS = Table(
    "counters",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("name", STR, "", "exact name of the counter"),
        Column("samples", I64, "", "samples"),
        Column("invalid", I64, "", "samples outside of the scale, left out"),
        Column("at_full_scale", I64, "", "samples exactly at full scale"),
        Column("full_scale", I64, "", "value that means every look-up hits: 100, or 50"),
        Column("l2_bytes", I64, "bytes", "size of the L2; null when unknown"),
        Column("n_layers", I64, "", "layers with kernels"),
        Column("n_known", I64, "", "layers whose hit rate is known"),
    ),
    "L2 hit-rate counter of one GPU",
)
SUMMARY = Table(
    "summary",
    (
        Column("n_kernels", I64, "", "kernel executions"),
        Column("n_metrics", I64, "", "sampled counters of any kind"),
        Column("n_layers", I64, "", "layers with kernels on sampled GPUs"),
        Column("n_kv", I64, "", "KV block records"),
        Column("blocked", STR, "", "permission, in use, or empty: what kept counters away"),
        Column("chip", STR, "", "chip, empty when unknown"),
        Column("command", STR, "", "command that records the counters"),
        Column("n_profiled", I64, "", "kernel executions under Nsight Compute"),
        Column(
            "matched_frac", F64, "1", "share of kernel time that was profiled; null: no timeline"
        ),
        Column("by_shape_frac", F64, "1", "of kernel time, matched by name and shape alone"),
    ),
    "what the verdict also needs; one row",
)
_COUNTED = (
    Column(
        "miss_frac", F64, "1", "L2 look-ups that missed, by the best counter; null: not counted"
    ),
    Column("all_miss_frac", F64, "1", "the same for requests of any source"),
    Column(
        "dram_read_bytes", F64, "bytes", "DRAM reads of one execution, or of one of each kernel"
    ),
)
NCU_KERNELS = Table(
    "ncu_kernels",
    (
        Column("name", STR, "", "kernel name"),
        Column("layer", pl.Int32, "", "layer of its range; null without"),
        Column("grid", STR, "", "blocks"),
        Column("block", STR, "", "threads of a block"),
        Column("n_profiled", I64, "", "executions under Nsight Compute"),
        Column("misses", F64, "", "missed look-ups of these executions"),
        *_COUNTED,
        Column("miss_source", STR, "", "counter that miss_frac rests on"),
        Column("inconsistent", pl.Boolean, "", "misses exceed look-ups: another counter was taken"),
        Column("dram_amplification", F64, "x", "DRAM reads over useful_bytes; null: not stated"),
        Column("occupancy_frac", F64, "1", "achieved: resident warps of the most that fit"),
        Column("occupancy_gap_pp", F64, "pp", "theoretical minus achieved occupancy"),
    ),
    "L2 misses of one kernel as Nsight Compute counted them, most misses first",
)
NCU_LAYERS = Table(
    "ncu_layers",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("layer", pl.Int32, "", "layer"),
        Column("of", STR, "", "attention kernels where there are any, else all kernels"),
        Column("n_kernels", I64, "", "kernel executions of the timeline"),
        Column("time_ns", I64, "ns", "sum of their durations"),
        Column("median_ns", F64, "ns", "median duration"),
        Column("matched_frac", F64, "1", "share of that time that was profiled"),
        *_COUNTED,
        *LAYER_KV,
    ),
    "misses of one layer as Nsight Compute counted them, and its KV layout in the timeline",
)
NCU_MATCH = Table(
    "ncu_match",
    (
        Column("name", STR, "", "kernel name without template and return type"),
        Column("grid", STR, "", "blocks"),
        Column("block", STR, "", "threads of a block"),
        Column("n_timeline", I64, "", "executions in the timeline"),
        Column("time_ns", I64, "ns", "sum of their durations"),
        Column("time_frac", F64, "1", "share of kernel time"),
        Column("n_profiled", I64, "", "executions under Nsight Compute"),
        Column("status", STR, "", "matched, not profiled, or only in ncu"),
        Column(
            "matched_by",
            STR,
            "",
            "layer, order (of launches), shape: what distinguishes executions",
        ),
    ),
    "kernels of the timeline and of Nsight Compute side by side, longest first",
)
