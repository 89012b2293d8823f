"""KV layout, relocations and fill: worked examples and field cases, from markers to findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support.builders import Export
from tracekit.analyses import load
from tracekit.analyses.kv_fragmentation.chart import chart
from tracekit.engine import run
from tracekit.model.chart import Axis
from tracekit.model.finding import Finding, Level
from tracekit.opening import open_trace
from tracekit.trace.analysis import Frames
from tracekit.views.kv.address_map import RUNS
from tracekit.views.kv.cache import KvCache, kv_cache

BASE = 0x7F0000000000
BLOCK = 32768
MIB = 1 << 20
Judged = tuple[Frames, dict[str, Finding]]


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., Judged]:
    """Return a function that runs the analysis on an export."""

    def go(export: Export, **params: Any) -> Judged:
        analysis = load("kv_fragmentation")
        with open_trace([export.write(tmp_path / "r.sqlite")]) as trace:
            frames, findings = run(analysis, trace, analysis.params(**params))
            return frames, {f.id.partition("/")[2]: f for f in findings}

    return go


def marked(*texts: str, start: int = 10) -> Export:
    e = Export().gpu().kernel(0, 1_000_000, "k")
    for i, text in enumerate(texts):
        e.mark(start + i, text)
    return e


def blocks(
    offsets: Sequence[int],
    size: int = BLOCK,
    *,
    indices: Sequence[int] | None = None,
    more: str = "",
) -> Export:
    """Blocks of one sequence and layer at byte offsets from a page boundary."""
    numbers = range(len(offsets)) if indices is None else indices
    return marked(
        *(
            f"KV_BLOCK layer=0 seq=0 block={i} kind=k addr={BASE + at:#x} bytes={size}{more}"
            for i, at in zip(numbers, offsets, strict=True)
        )
    )


def layer(frames: Frames) -> dict[str, Any]:
    rows = frames["layout"].filter((pl.col("level") == "layer") & pl.col("at_peak"))
    assert rows.height == 1
    return rows.row(0, named=True)


def only(found: dict[str, Finding]) -> Finding:
    (finding,) = found.values()
    return finding


def check(row: dict[str, Any], **want: float | str | None) -> None:
    for name, value in want.items():
        expected = (
            value if value is None or isinstance(value, str) else pytest.approx(value, rel=1e-6)
        )
        assert row[name] == expected, name


IN_BLOCKS = [
    pytest.param(
        [0, 1, 2, 3],
        {"pairs": 3, "contiguity_frac": 1, "frag_frac": 0, "stride_median_bytes": 32768, "runs": 1,
         "scatter_frac": 0, "overfetch_32b_frac": 0, "severity": "ok"},
        id="a1",
    ),
    pytest.param(
        [0, 2, 1, 3],
        {"stride_mean_bytes": 54613.333333, "stride_median_bytes": 65536, "backward": 1,
         "contiguity_frac": 0, "frag_frac": 1, "runs": 4, "run_mean_bytes": 32768,
         "scatter_frac": 0, "overfetch_32b_frac": 0, "overfetch_64b_frac": 0,
         "overfetch_128b_frac": 0, "severity": "ok"},
        id="a2",
    ),
    pytest.param(
        [7, 8, 9, 3, 4, 12, 13],
        {"contiguity_frac": 2 / 3, "frag_frac": 1 / 3, "backward": 1, "runs": 3,
         "stride_mean_bytes": 98304, "stride_median_bytes": 32768, "scatter_frac": 4 / 11,
         "severity": "ok"},
        id="a11",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("places", "want"), IN_BLOCKS)
def test_block_order_alone_is_harmless(judge, places, want):
    frames, found = judge(blocks([p * BLOCK for p in places]))
    check(layer(frames), **want)
    assert only(found).level is Level.OK


@pytest.mark.parametrize(("pitch", "scatter"), [(512, 0.428571), (896, 0.652174)])
def test_short_rows_apart_are_a_matter_of_run_length(judge, pitch, scatter):
    frames, found = judge(blocks([i * pitch for i in range(4)], 256))
    check(
        layer(frames),
        stride_median_bytes=pitch,
        contiguity_frac=0,
        run_mean_bytes=256,
        overfetch_32b_frac=0,
        overfetch_128b_frac=0,
        severity="warn",
        why="frag_frac",
    )
    assert layer(frames)["scatter_frac"] == pytest.approx(scatter, abs=1e-6)
    assert "contiguous pieces are short" in only(found).title


def test_a_block_off_its_sector_fetches_more(judge):
    frames, _ = judge(blocks([16], 256))
    check(
        layer(frames),
        overfetch_32b_frac=0.125,
        overfetch_64b_frac=0.25,
        overfetch_128b_frac=0.5,
        sector_overfetch_frac=0.125,
    )


@pytest.mark.parametrize(
    ("offset", "overfetch_32b", "overfetch_128b"), [(16, 0.25, 1.0), (32, 0.0, 1.0)]
)
def test_an_isolated_line(judge, offset, overfetch_32b, overfetch_128b):
    frames, _ = judge(blocks([offset], 128))
    check(
        layer(frames),
        overfetch_32b_frac=overfetch_32b,
        sector_overfetch_frac=overfetch_32b,
        overfetch_128b_frac=overfetch_128b,
    )


def test_isolated_misaligned_lines_are_critical_in_number(judge):
    n = 2 * MIB // 128
    pool = f"KV_POOL layer=0 kind=k addr={BASE + 16:#x} stride=512 blocks={n} block_bytes=128"
    frames, found = judge(marked(pool, f"KV_TABLE seq=0 ids={','.join(map(str, range(n)))}"))
    check(layer(frames), sector_overfetch_frac=0.25, severity="critical")
    finding = found[f"layout-pool-of-{n}-blocks-of-128-b"]
    assert finding.level is Level.CRITICAL
    assert "25.0% more bytes move from memory" in finding.title
    _, found = judge(blocks([16], 128))
    assert only(found).level is Level.WARN, "one block is no proof"


def test_rows_of_144_bytes(judge):
    pool = (
        f"KV_POOL layer=0 kind=k addr={BASE:#x} stride=1152 blocks=4 block_bytes=1152"
        " block_tokens=8 token_pitch=144 row_bytes=144"
    )
    frames, found = judge(marked(pool, "KV_TABLE seq=0 ids=0"))
    check(
        layer(frames),
        segment="row",
        misaligned_32b_frac=0.5,
        misaligned_128b_frac=0.875,
        overfetch_32b_frac=1 / 9,
        sector_overfetch_frac=0,
        overfetch_128b_frac=7 / 9,
        severity="warn",
    )
    assert next(iter(found.values())).level is not Level.CRITICAL


def test_rows_of_160_bytes(judge):
    pool = (
        f"KV_POOL layer=0 kind=k addr={BASE:#x} stride=640 blocks=4 block_bytes=640"
        " block_tokens=4 token_pitch=160 row_bytes=160"
    )
    frames, _ = judge(marked(pool, "KV_TABLE seq=0 ids=0"))
    check(
        layer(frames),
        overfetch_32b_frac=0,
        overfetch_64b_frac=0.2,
        overfetch_128b_frac=0.6,
        line_overfetch_frac=0,
    )


def test_slots_behind_the_last_token(judge):
    texts, place = [], 0
    for seq, length in enumerate([1, 17, 100]):
        for i in range(-(-length // 16)):
            held = min(16, length - 16 * i)
            texts.append(
                f"KV_BLOCK layer=0 seq={seq} block={i} addr={BASE + place * BLOCK:#x}"
                f" bytes={BLOCK} used={held * 2048}"
            )
            place += 1
    e = marked(*texts)
    frames, found = judge(e)
    assert place == 10
    usage = frames["usage"].filter("at_peak").row(0, named=True)
    assert usage["internal_frac"] == pytest.approx(0.2625)
    assert found["usage-blocks-of-32768-b"].level is Level.OK, "ten blocks of a whole GPU"
    small = Export().gpu(totalMemory=16 * MIB).kernel(0, 1_000_000, "k")
    for i, text in enumerate(texts):
        small.mark(10 + i, text)
    _, found = judge(small)
    finding = found["usage-blocks-of-32768-b"]
    assert finding.level is Level.WARN
    assert "26.2% of allocated bytes hold no token" in finding.title


def test_external_fragmentation_of_a_pool_of_mixed_blocks(judge):
    sizes = [(10, 3), (5, 4), (25, 5), (20, 0)]
    texts = [f"KV_POOL layer=0 addr={BASE:#x} bytes={72 * MIB}"]
    at = 0
    for i, (free, taken) in enumerate(sizes):
        at += free
        if taken:
            texts.append(
                f"KV_BLOCK layer=0 seq={i} block=0 addr={BASE + at * MIB:#x} bytes={taken * MIB}"
            )
        at += taken
    frames, found = judge(marked(*texts))
    usage = frames["usage"].filter("at_peak").row(0, named=True)
    assert usage["external_frac"] == pytest.approx(1 - 25 / 60)
    assert found["usage-blocks-of-mixed-size"].level is Level.WARN


def test_pages_are_not_judged_below_one_page_of_bytes(judge):
    frames, found = judge(blocks([0, 2 * MIB, 4 * MIB]))
    check(layer(frames), pages=3, pages_min=1, page_ratio=None, scatter_frac=0.976744)
    assert only(found).level is Level.OK


def test_one_block(judge):
    frames, found = judge(blocks([0]))
    check(
        layer(frames),
        pairs=0,
        frag_frac=0,
        stride_mean_bytes=None,
        stride_median_bytes=None,
        contiguity_frac=None,
        runs=1,
    )
    assert "one piece" in only(found).title


def test_a_missing_index_ends_a_run(judge):
    frames, _ = judge(blocks([0, BLOCK, 5 * BLOCK], indices=[0, 1, 3]))
    check(layer(frames), pairs=1, contiguity_frac=1, runs=2, run_mean_bytes=49152, scatter_frac=0.5)


def reallocs(sizes: Sequence[int], *, layer: int = 0, step_ns: int | None = None) -> Export:
    e = Export().gpu()
    for i, size in enumerate(sizes):
        at = 1_000 + i * (step_ns or 1_000)
        e.mark(at, f"KV_REALLOC layer={layer} kind=k addr={BASE + i * 16 * MIB:#x} bytes={size}")
    return e


def test_a_concatenating_cache(judge):
    frames, found = judge(reallocs([204800, 206848, 208896, 210944]).kernel(0, 10**9, "k"))
    check(
        frames["chains"].row(0, named=True),
        moves=3,
        copied_bytes=620544,
        new_bytes=6144,
        write_amplification=101.0,
        pattern="growing cache",
    )
    assert found["copies-one-tensor-a-layer"].level is Level.OK


def test_copying_a_long_cache_every_step_is_critical(judge):
    """16 sequences of an 8B model at context 2048 on an H100: 4 GiB copied every step."""
    gib4 = 4294967296
    step = 8_640_340
    e = Export().gpu(name="NVIDIA H100 80GB HBM3", memoryBandwidth=3_350_000_000_000)
    for i in range(40):
        begin = 1_000 + i * 10_000_000
        e.range(begin, begin + 9_000_000, f"decode step={i}")
        e.kernel(begin + 100, begin + 100 + step, "k", launch=begin + 50)
        size = gib4 + i * 2_097_152
        e.mark(begin + 60, f"KV_REALLOC layer=0 kind=k addr={BASE + i * 2**33:#x} bytes={size}")
    frames, found = judge(e)
    first = 2 * gib4 / 3350e9 / (step * 1e-9)
    assert first == pytest.approx(0.29677, rel=1e-4)
    share = frames["copies"].row(0, named=True)["copy_frac"]
    assert share == pytest.approx(first * 39 / 40, rel=0.02), "the first step copies nothing"
    finding = found["copies-one-tensor-a-layer"]
    assert finding.level is Level.CRITICAL
    assert finding.at_stake_of == "GPU step time"
    assert "Preallocate" in finding.advice


@pytest.mark.parametrize(
    "pitches", [(2048, 256), (256, 4096)], ids=["tokens-first", "heads-first-as-view"]
)
def test_both_orders_of_heads_and_tokens_are_dense(judge, pitches):
    token, head = pitches
    pool = (
        f"KV_POOL layer=0 kind=k addr={BASE:#x} stride={BLOCK} blocks=10 block_bytes={BLOCK}"
        f" block_tokens=16 token_pitch={token} head_pitch={head} row_bytes=256"
    )
    frames, found = judge(marked(pool, "KV_TABLE seq=0 ids=0,1,2,3,4,5,6,7,8,9"))
    check(
        layer(frames),
        segment="row",
        overfetch_32b_frac=0,
        sector_overfetch_frac=0,
        line_overfetch_frac=0,
        frag_frac=0,
    )
    assert found["layout-pool-of-10-blocks-of-32768-b"].level is Level.OK


def test_gaps_are_locality_not_lost_memory(judge):
    frames, found = judge(blocks([p * BLOCK for p in (5, 6, 7, 20, 21)]))
    check(layer(frames), pairs=4, frag_frac=0.25, runs=2)
    finding = only(found)
    assert finding.level is Level.OK
    assert "25.0% of neighbouring blocks lie apart (1 of 4, 2 pieces" in finding.title
    assert any("no memory is lost" in caveat for caveat in finding.caveats)


def test_reserved_allocated_and_holding_tokens_are_three_numbers(judge):
    tokens = [16] * 20 + [9] * 20
    assert sum(tokens) == 500
    texts = [f"KV_POOL layer=0 addr={BASE:#x} stride=1024 blocks=100 block_bytes=1024"]
    texts += [
        f"KV_BLOCK layer=0 seq=0 block={i} addr={BASE + 1024 * i:#x} bytes=1024 used={64 * n}"
        for i, n in enumerate(tokens)
    ]
    frames, found = judge(marked(*texts))
    usage = frames["usage"].filter("at_peak").row(0, named=True)
    assert usage["reserved_bytes"] == 102400
    assert usage["allocated_frac"] == pytest.approx(0.40)
    assert usage["used_frac"] == pytest.approx(0.3125)
    title = found["usage-pool-of-100-blocks-of-1024-b"].title
    assert "40.0% of it allocated, 31.2% holding tokens" in title


def test_tokens_may_come_from_steps(judge):
    pool = f"KV_POOL layer=0 addr={BASE:#x} stride=1024 blocks=100 block_bytes=1024 block_tokens=16"
    ids = ",".join(map(str, range(40)))
    e = marked(pool).range(5, 500, "STEP step=0 kv_tokens=500")
    frames, _ = judge(e.mark(400, f"KV_TABLE seq=0 ids={ids}"))
    usage = frames["usage"].filter("at_peak").row(0, named=True)
    assert (usage["used_from"], usage["used_frac"]) == ("step tokens", pytest.approx(0.3125))
    assert usage["internal_frac"] == pytest.approx(1 - 500 / 640)


def test_what_is_not_stated_stays_unknown(judge):
    pool = f"KV_POOL layer=0 addr={BASE:#x} stride=1024 blocks=100 block_bytes=1024"
    _, found = judge(marked(pool, "KV_TABLE seq=0 ids=1,2,3"))
    finding = found["usage-pool-of-100-blocks-of-1024-b"]
    assert finding.level is Level.UNKNOWN
    assert "how much holds tokens is not stated" in finding.title
    assert finding.missing


def test_a_cache_that_grows_by_steps_is_no_leak(judge):
    sizes = [256 * k for k in range(1, 17)]
    frames, found = judge(reallocs(sizes).kernel(0, 10**9, "k"))
    check(
        frames["chains"].row(0, named=True),
        events=16,
        copied_bytes=30720,
        last_bytes=4096,
        pattern="growing cache",
    )
    finding = found["copies-one-tensor-a-layer"]
    assert finding.title.startswith("growing cache")
    assert any("not a leak" in caveat for caveat in finding.caveats)


def test_no_heads_axis_and_groups_of_different_block_counts(judge):
    latent = (
        f"KV_POOL layer=0 kind=kv addr={BASE:#x} stride=18432 blocks=100 block_bytes=18432"
        " block_tokens=16 token_pitch=1152 row_bytes=1152"
    )
    window = (
        f"KV_POOL layer=1 kind=kv addr={BASE + 2**32:#x} stride={BLOCK} blocks=20"
        f" block_bytes={BLOCK} block_tokens=16 token_pitch=2048 head_pitch=256 row_bytes=256"
    )
    frames, found = judge(marked(latent, window, "KV_TABLE seq=0 ids=0,1,2"))
    assert {f for f in found if f.startswith("layout")} == {
        "layout-pool-of-100-blocks-of-18432-b",
        "layout-pool-of-20-blocks-of-32768-b",
    }
    rows = frames["layout"].filter((pl.col("level") == "layer") & pl.col("at_peak"))
    assert rows["segment"].to_list() == ["row", "row"]
    assert rows["sector_overfetch_frac"].to_list() == [0.0, 0.0]


def test_misaligned_blocks_cost_requests_not_bytes(judge):
    frames, found = judge(blocks([6 + i * BLOCK for i in range(64)]))
    row = layer(frames)
    check(
        row,
        misaligned_16b_frac=1.0,
        request_overfetch_frac=0.25,
        why="misaligned_16b_frac,request_overfetch_frac",
    )
    assert row["sector_overfetch_frac"] < 0.001
    finding = only(found)
    assert finding.level is Level.WARN
    assert "off a 16 B boundary" in finding.title
    assert any("hardly any DRAM byte" in caveat for caveat in finding.caveats)


def test_blocks_that_overlap_leave_no_confidence(judge):
    _, found = judge(blocks([0, BLOCK // 2]))
    finding = only(found)
    assert finding.confidence is not None
    assert finding.confidence.value == 0
    assert "overlap" in finding.confidence.why


def test_a_shared_prefix_counts_once_in_bytes_and_in_every_sequence_in_pairs(judge):
    texts = [
        f"KV_BLOCK layer=0 seq={seq} block={i} addr={BASE + (i if i < 2 else 2 + seq) * BLOCK:#x}"
        f" bytes={BLOCK}"
        for seq in range(2)
        for i in range(3)
    ]
    frames, _ = judge(marked(*texts))
    check(layer(frames), m=6, pairs=4, bytes=4 * BLOCK, frag_frac=0.25)


def test_two_processes_are_never_compared(judge):
    e = Export().gpu().kernel(0, 1000, "k")
    for i in range(4):
        pid = 100 + i % 2
        e.mark(10 + i, f"KV_BLOCK layer=0 seq=0 block={i} addr={BASE:#x} bytes=64", pid=pid)
    frames, _ = judge(e)
    rows = frames["layout"].filter((pl.col("level") == "layer") & pl.col("at_peak"))
    assert (rows["m"].to_list(), rows["pairs"].to_list()) == ([2, 2], [0, 0])


def test_without_markers_it_is_unknown_and_says_what_to_run(judge):
    _, found = judge(Export().gpu().kernel(0, 1000, "k").mark(5, "hello"))
    finding = found["no-markers"]
    assert finding.level is Level.UNKNOWN
    assert finding.missing[0].command == "tracekit run -- YOUR_COMMAND"


def test_pools_without_block_tables_say_so(judge):
    _, found = judge(marked(f"KV_POOL layer=0 addr={BASE:#x} stride=64 blocks=9 block_bytes=64"))
    assert "1 KV pool is stated, but no block tables" in found["no-markers"].title


@pytest.mark.parametrize(
    ("asked", "unused", "level", "words"),
    [
        ("16.00 GiB", "335.00 MiB", Level.OK, "not fragmentation (351 MB < 17.2 GB)"),
        ("2.00 GiB", "5.00 GiB", Level.WARN, "possible fragmentation"),
    ],
)
def test_an_out_of_memory_message_in_the_trace(judge, asked, unused, level, words):
    text = (
        f"CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 78.09 GiB"
        f" of which 9.00 MiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch,"
        f" and {unused} is reserved by PyTorch but unallocated."
    )
    _, found = judge(Export().gpu().kernel(0, 1000, "k").mark(5, text))
    finding = found["out-of-memory"]
    assert (finding.level, words in finding.title) == (level, True)
    assert "no-markers" in found


def test_thresholds_are_parameters(judge):
    _, found = judge(blocks([i * 512 for i in range(4)], 256), short_run_bytes=128)
    assert only(found).level is Level.OK


def test_live_sets_are_looked_at_when_steps_end(judge):
    e = Export().gpu()
    for step in range(3):
        begin = 1_000 * step
        e.range(begin, begin + 900, f"step {step}")
        e.kernel(begin + 100, begin + 800, "k", launch=begin + 50)
        e.mark(
            begin + 60,
            f"KV_BLOCK layer=0 seq=0 block={step} addr={BASE + 2 * step * BLOCK:#x} bytes={BLOCK}",
        )
    frames, _ = judge(e)
    pool = frames["layout"].filter(pl.col("level") == "pool").sort("t_ns")
    assert dict(pool.select("t_ns", "m").iter_rows()) == {900: 1, 1900: 2, 2060: 3, 2900: 3}
    assert pool.filter("at_peak")["t_ns"].to_list() == [2060]


def runs(n_layers: int, n_blocks: int) -> pl.DataFrame:
    """Maps of layers whose blocks lie one after the other, each a run."""
    rows = [
        (0, 0, layer, "kv", 0, 5, run, n_blocks, n_blocks, run, run, run, 64 * run, 64 * run + 64)
        for layer in range(n_layers)
        for run in range(n_blocks)
    ]
    return pl.DataFrame(rows, schema=RUNS.schema, orient="row")


def test_the_chart_shows_fragmentation_over_time_and_the_most_broken_layers(judge):
    e = Export().gpu()
    for step in range(3):
        begin = 1_000 * step
        e.range(begin, begin + 900, f"step {step}")
        e.kernel(begin + 100, begin + 800, "k", launch=begin + 50)
        addr = BASE + 2 * step * BLOCK
        e.mark(begin + 60, f"KV_BLOCK layer=0 seq=0 block={step} addr={addr:#x} bytes={BLOCK}")
    frames, _ = judge(e)
    drawn = chart({**frames, "kv_map": runs(14, 3)})
    assert drawn is not None
    index, *maps = drawn.panels
    assert (index.y, index.wide) == (Axis("fragmentation index", "1", low=0, high=1), True)
    [line] = index.marks
    assert dict(line.points)[2900] == 1.0
    assert [m.title for m in maps[:2]] == [f"layer {i}: 3 blocks in 3 runs" for i in range(2)]
    assert len(maps) == 12
    assert "2 layers with longer runs are not shown" in drawn.caption
    assert maps[0].marks[1].lines == ((1, 64, 2, 128),)
    nothing = {name: frame.clear() for name, frame in frames.items()}
    assert chart({**nothing, "kv_map": runs(2, 1)}) is None


def test_a_trace_without_markers_has_a_cache_of_the_same_columns(tmp_path: Path) -> None:
    def schemas(name: str, export: Export) -> list[pl.Schema]:
        with open_trace([export.write(tmp_path / name)]) as trace:
            cache: KvCache = kv_cache(trace)
            return [part.schema for part in cache if isinstance(part, pl.DataFrame)]

    assert schemas("none.sqlite", marked()) == schemas("some.sqlite", blocks([0, BLOCK]))
