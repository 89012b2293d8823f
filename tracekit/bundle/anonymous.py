"""A trace made fit for strangers: nothing in it names a machine, a process or an address.

Stands on a redacted trace (`tracekit.io.run.redaction` decides which text passes) and goes further:
processes, threads, addresses and pointers become small numbers, payloads are reduced to the fields
that are understood, and kernel names can be hashed. Documents and slices made of one such trace
agree with each other.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.model.catalog import CATALOG
from tracekit.model.kernels import Classifier, KernelKind, KernelName, classify
from tracekit.model.markers import EVENTS
from tracekit.model.nvtx import HEADER_BYTES, PAYLOAD_FIELDS
from tracekit.trace import Trace
from tracekit.views.nvtx.payloads import decode

__all__ = [
    "AnonymousLoader",
    "KnownPayloads",
    "Processes",
    "TextNumbers",
    "anonymous",
    "bases",
    "hashed_name",
    "known_payloads",
    "number_processes",
    "shifted",
]

PROCESS_STEP = 1000
"""The i-th process is number ``1000 i``, as is its main thread; its other threads follow."""
ADDRESS_UNIT = 1 << 32
"""Bases are multiples of 4 GiB, so the alignment of every address stays as it was."""
NO_BASE = 0
_POINTER_KEYS = ("handle", "comm", "stream")
_TELLING = r" (?:addr|handle|comm|stream|pid|mono_ns)=\S+"
_NUMBER = re.compile(r" (addr|handle|comm|stream|pid|mono_ns)=(\S+)")
_IS_MARKER = rf"^(?:{'|'.join(sorted(EVENTS))})\b"
_ADDRESS = r" addr=0x([0-9a-fA-F]{1,16})(?: |$)"
Base = Mapping[tuple[int, int | None], int]


@dataclass(frozen=True)
class Processes:
    """New numbers of processes and threads.

    Attributes:
        pids: Frame of report UInt16, pid UInt32, new_pid UInt32.
        tids: Frame of report UInt16, pid UInt32, tid UInt32, new_tid UInt32.
    """

    pids: pl.DataFrame
    tids: pl.DataFrame

    def renumbered(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return `frame` with its ``pid`` and ``tid`` columns, where it has them, renumbered."""
        columns = frame.columns
        if "pid" not in columns:
            return frame
        if "tid" in columns:
            keys = ["report", "pid", "tid"]
            frame = frame.join(self.tids, on=keys, how="left", maintain_order="left")
            frame = frame.drop("tid").rename({"new_tid": "tid"})
        frame = frame.join(self.pids, on=["report", "pid"], how="left", maintain_order="left")
        return frame.drop("pid").rename({"new_pid": "pid"}).select(columns)

    def new_pid(self) -> dict[tuple[int, int], int]:
        """Return (report, pid) to its new number."""
        return {(r, p): n for r, p, n in self.pids.iter_rows()}


def number_processes(frames: Iterable[pl.DataFrame]) -> Processes:
    """Number the processes and threads that `frames` mention, in the order of their own numbers.

    Args:
        frames: Frames with report and pid, some with tid.
    """
    schema = {"report": pl.UInt16, "pid": pl.UInt32, "tid": pl.UInt32}
    parts = [
        frame.select(c if c in frame.columns else pl.lit(None, pl.UInt32).alias(c) for c in schema)
        for frame in frames
        if "pid" in frame.columns
    ]
    known = pl.concat([pl.DataFrame(schema=schema), *(p.unique() for p in parts)])
    known = known.filter(pl.col("pid").is_not_null()).unique().sort("report", "pid", "tid")
    pids = known.select("report", "pid").unique(maintain_order=True).with_row_index("new_pid", 1)
    pids = pids.select("report", "pid", (pl.col("new_pid") * PROCESS_STEP).cast(pl.UInt32))
    tids = known.drop_nulls("tid").join(pids, on=["report", "pid"], how="left")
    is_main = pl.col("tid") == pl.col("pid")
    nth = (~is_main).cast(pl.UInt32).cum_sum().over("report", "pid")
    number = pl.col("new_pid") + pl.when(is_main).then(0).otherwise(nth)
    return Processes(
        pids,
        tids.sort("report", "pid", "tid").with_columns(number.alias("new_tid")).drop("new_pid"),
    )


def bases(allocations: pl.DataFrame, texts: pl.DataFrame) -> Base:
    """Return what to subtract from the addresses of each process.

    Args:
        allocations: Frame of report, pid and addr Int64 (64 bits, reinterpreted as signed).
        texts: Frame of report, pid, text; addresses in markers count too.

    Returns:
        (report, pid) to a multiple of 4 GiB, such that the lowest address ends up in the second
        4 GiB: no address becomes the null pointer.
    """
    in_text = pl.col("text").str.extract(_ADDRESS).str.to_integer(base=16, dtype=pl.UInt64)
    own = pl.col("addr").reinterpret(signed=False)
    addresses = pl.concat(
        [
            allocations.select("report", "pid", own),
            texts.filter(pl.col("text").str.contains(_IS_MARKER)).select(
                "report", "pid", in_text.alias("addr")
            ),
        ]
    )
    lowest = addresses.filter(pl.col("addr") > 0).group_by("report", "pid").agg(pl.min("addr"))
    return {
        (report, pid): int(addr) // ADDRESS_UNIT * ADDRESS_UNIT - ADDRESS_UNIT
        for report, pid, addr in lowest.iter_rows()
    }


def shifted(address: int, base: int) -> int:
    """Return an address relative to the base of its process; the null pointer stays."""
    return (address - base) % (1 << 64) if address else 0


class TextNumbers:
    """Rewrites the telling numbers in the texts of markers.

    Args:
        texts: Distinct marker texts with their report and pid: frame of report, pid, text.
        processes: New process numbers.
        base: Of each process, see `bases`.
    """

    def __init__(self, texts: pl.DataFrame, processes: Processes, base: Base) -> None:
        self._pids = processes.new_pid()
        self._base = base
        seen: dict[str, set[int]] = {}
        markers = texts["text"].filter(
            texts["text"].str.contains(_IS_MARKER).fill_null(value=False)
        )
        for word in markers.str.extract_all(_TELLING).explode().drop_nulls().unique():
            key, _, value = word[1:].partition("=")
            seen.setdefault(key, set()).add(_integer(value))
        self._pointers = {
            key: {v: i for i, v in enumerate(sorted(seen.get(key, set()) - {0}), 1)}
            for key in _POINTER_KEYS
        }
        self._start_ns = min(seen.get("mono_ns", {0}))

    def column(self, frame: pl.DataFrame) -> pl.Series:
        """Return the ``text`` column of a frame (report, pid, text) with numbers rewritten."""
        telling = pl.col("text").str.contains(_IS_MARKER) & pl.col("text").str.contains(_TELLING)
        keys = ["report", "pid", "text"]
        old = frame.filter(telling).select(keys).unique(maintain_order=True)
        new = pl.Series("_new", [self._one(*row) for row in old.iter_rows()], dtype=pl.String)
        joined = frame.select(keys).join(
            old.hstack([new]), on=keys, how="left", maintain_order="left", nulls_equal=True
        )
        return joined.select(pl.coalesce("_new", "text").alias("text")).to_series()

    def _one(self, report: int, pid: int | None, text: str) -> str:
        return _NUMBER.sub(self._replacement(report, pid), text)

    def _replacement(self, report: int, pid: int | None) -> Callable[[re.Match[str]], str]:
        base = self._base.get((report, pid), NO_BASE)

        def new(match: re.Match[str]) -> str:
            key, value = match[1], _integer(match[2])
            if key == "addr":
                return f" addr=0x{shifted(value, base):x}"
            if key == "pid":
                return f" pid={self._pids.get((report, value), 0)}"
            if key == "mono_ns":
                return f" mono_ns={value - self._start_ns}"
            return f" {key}=0x{self._pointers[key].get(value, 0):x}"

        return new


def _integer(text: str) -> int:
    """Return the number that `text` spells; 0 where it spells none."""
    digits, base = (text[2:], 16) if text.startswith("0x") else (text, 10)
    try:
        return int(digits, base) % (1 << 64)
    except ValueError:
        return 0


_K = KernelKind
_WORDS: dict[KernelKind, str] = {
    _K.COMM: "ncclDevKernel",
    _K.CUSTOM_COMM: "userbuffers",
    _K.ATTENTION: "attention",
    _K.GEMM: "gemm",
    _K.GEMM_QUANT: "weight_only_gemm",
    _K.MOE_GEMM: "moe_gemm",
    _K.GEMM_HELPER: "splitk_reduce",
    _K.DEQUANT: "dequantize",
    _K.QUANTIZE: "quantize",
    _K.REPACK: "repack",
    _K.KV_CACHE: "reshape_and_cache",
    _K.MOE: "moe",
    _K.NORM: "rms_norm",
    _K.ROPE: "rotary",
    _K.ACTIVATION: "activation_kernel",
    _K.SAMPLING: "sampling",
    _K.SORT_SCAN: "radix_sort",
    _K.STATE_SPACE: "selective_scan",
    _K.CONV: "convolution",
    _K.OPTIMIZER: "multi_tensor_apply",
    _K.COPY: "transpose",
    _K.REDUCTION: "reduce",
    _K.ELEMENTWISE: "elementwise",
    _K.UNCLASSIFIED: "kernel",
}
_OPS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AlltoAll": "all_to_all",
}
_HASH_DIGITS = 10
_SALIENT = ("kind", "op", "named_op", "reduction", "dtype", "fused", "multicast")


def hashed_name(name: str, classifier: Classifier) -> str:
    """Return a stand-in for a kernel name.

    Args:
        name: Name as recorded.
        classifier: Knows the classes that the user gave to names.

    Returns:
        The first of the candidates, most telling first, that says the same as `name`; at least
        the class is always the same.
    """
    found = classifier.classify(name)
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    candidates = [f"{words}<h{digest}>" for words in _candidates(found)]
    return next((c for c in candidates if _agrees(classify(c), found)), candidates[-1])


def _agrees(one: KernelName, other: KernelName) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in _SALIENT)


def _candidates(found: KernelName) -> Iterator[str]:
    """Words for the head of the name; only words of our own or of NCCL's fixed vocabulary."""
    words = _WORDS[found.kind]
    if found.kind is KernelKind.COMM and found.named_op is not None:
        parts = (found.named_op, (found.reduction or "").capitalize(), found.dtype)
        yield "_".join([words, *(p for p in parts if p)])
        if found.multicast:
            yield "_".join([words, *(p for p in parts if p), "LLMC"])
        yield f"{words}_{found.named_op}"
    if found.kind is KernelKind.CUSTOM_COMM:
        word = _OPS.get(found.named_op or "", words)
        for prefix in ("", "fused_", "multimem_", "multimem_fused_"):
            yield prefix + word
    yield words


_NAMES = {
    "comm": "NCCL communicator ID",
    "bytes": "Message size [bytes]",
    "redop": "Reduction operation",
    "nranks": "No. of ranks",
    "rank": "Rank",
    "peer": "Peer",
    "root": "Root",
    "device": "CUDA device",
}
_FIRST_SCHEMA = 1 << 24
_SIGNED, _UNSIGNED, _WIDTH = 17, 18, 8


@dataclass(frozen=True)
class KnownPayloads:
    """Payloads written anew.

    Attributes:
        blobs: Binary, one a row of the NVTX frame; null where nothing was understood.
        schemas: Catalog frame ``nvtx_schemas``.
        entries: Catalog frame ``nvtx_schema_entries``.
    """

    blobs: pl.Series
    schemas: pl.DataFrame
    entries: pl.DataFrame


def known_payloads(nvtx: pl.DataFrame, entries: pl.DataFrame) -> KnownPayloads:
    """Decode the payloads of an NVTX frame and write what was understood anew.

    Args:
        nvtx: Catalog frame ``nvtx``.
        entries: Catalog frame ``nvtx_schema_entries``; names that are not known must be gone.
    """
    rows = nvtx.select("report", "domain", "payload").with_row_index("nvtx_row")
    records = decode(rows.drop_nulls("payload"), entries).records
    domains = nvtx["domain"].fill_null(0)
    blobs: list[bytes | None] = [None] * nvtx.height
    layouts: dict[tuple[int, int, int], tuple[str, ...]] = {}
    for record in records.iter_rows(named=True):
        fields = tuple(f for f in PAYLOAD_FIELDS if record[f] is not None)
        if not fields:
            continue
        row, domain = record["nvtx_row"], domains[record["nvtx_row"]]
        schema = _FIRST_SCHEMA + sum(1 << i for i, f in enumerate(PAYLOAD_FIELDS) if f in fields)
        layouts[record["report"], domain, schema] = fields
        blobs[row] = _blob(domain, schema, [record[f] for f in fields])
    known = sorted(layouts.items())
    return KnownPayloads(
        pl.Series("payload", blobs, dtype=pl.Binary),
        pl.DataFrame(
            [(r, d, s, None, _WIDTH * len(fields)) for (r, d, s), fields in known],
            schema=CATALOG["nvtx_schemas"].table.schema,
            orient="row",
        ),
        pl.DataFrame(
            [
                (r, d, s, i, _UNSIGNED if f == "comm" else _SIGNED, _NAMES[f], _WIDTH * i)
                for (r, d, s), fields in known
                for i, f in enumerate(fields)
            ],
            schema=CATALOG["nvtx_schema_entries"].table.schema,
            orient="row",
        ),
    )


def _blob(domain: int, schema: int, values: list[int]) -> bytes:
    """Return header and payload; a communicator fills all 64 bits, so words are unsigned."""
    header = (domain, schema, _WIDTH * len(values), HEADER_BYTES)
    words = [w % (1 << 64) for w in (*header, *values)]
    return struct.pack(f"<{len(words)}Q", *words)


_NAME_IDS = ("name_id", "mangled_id", "short_id")
_STAND_IN = r"^text-\d"


class AnonymousLoader:
    """Loads the frames of a redacted trace with numbers of their own; see the module.

    Args:
        trace: A redacted trace.
        hash_names: Replace kernel names.

    Attributes:
        sampled: Exact names of the counters that were requested.
    """

    def __init__(self, trace: Trace, *, hash_names: bool = False) -> None:
        self._trace = trace
        self._hash_names = hash_names
        self.sampled: set[str] = set()
        self._processes = number_processes(
            trace.frame(name) for name, entry in CATALOG.items() if "pid" in entry.table.schema
        )
        texts = trace.frame("nvtx").select("report", "pid", "text").unique(maintain_order=True)
        self._bases = bases(trace.frame("memory_events"), texts)
        self._numbers = TextNumbers(texts, self._processes, self._bases)
        self._payloads = known_payloads(trace.frame("nvtx"), trace.frame("nvtx_schema_entries"))

    def load(self, name: str) -> pl.DataFrame:
        """Return the canonical frame `name`."""
        frame = self._trace.frame(name)
        match name:
            case "strings" if self._hash_names:
                return self._hashed(frame)
            case "ncu_kernels" if self._hash_names:
                return frame.clear()  # spelled otherwise, their hashes would match nothing
            case "nvtx":
                return self._processes.renumbered(self._nvtx(frame))
            case "nvtx_schemas":
                return self._payloads.schemas
            case "nvtx_schema_entries":
                return self._payloads.entries
            case "memory_events":
                return self._processes.renumbered(self._relative(frame))
        return self._processes.renumbered(frame)

    def load_samples(self, metrics: Collection[str]) -> pl.DataFrame:
        """Return samples, and remember which counters they are of."""
        self.sampled.update(metrics)
        return self._trace.samples(metrics)

    def _nvtx(self, frame: pl.DataFrame) -> pl.DataFrame:
        # A number next to words that were removed may reveal what they said.
        replaced = pl.col("text").is_null() | pl.col("text").str.contains(_STAND_IN)
        return frame.with_columns(
            self._numbers.column(frame),
            self._payloads.blobs,
            pl.when(~replaced).then("int64").alias("int64"),
        )

    def _relative(self, frame: pl.DataFrame) -> pl.DataFrame:
        new = [
            None if addr is None else _signed(shifted(addr % (1 << 64), self._bases.get(key, 0)))
            for *key_parts, addr in frame.select("report", "pid", "addr").iter_rows()
            for key in [(key_parts[0], key_parts[1])]
        ]
        return frame.with_columns(pl.Series("addr", new, dtype=pl.Int64))

    def _hashed(self, frame: pl.DataFrame) -> pl.DataFrame:
        kernels = self._trace.frame("kernels")
        used = pl.concat([kernels[c] for c in _NAME_IDS]).drop_nulls().unique()
        classifier = Classifier(self._trace.settings.kernel_overrides)
        of_kernel = pl.col("id").is_in(used.implode())
        names = frame.filter(of_kernel)["value"].drop_nulls().unique(maintain_order=True)
        hashes = pl.Series([hashed_name(n, classifier) for n in names], dtype=pl.String)
        value = pl.col("value").replace(names, hashes)
        return frame.with_columns(pl.when(of_kernel).then(value).otherwise("value").alias("value"))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def anonymous(trace: Trace, *, hash_names: bool = False) -> tuple[Trace, AnonymousLoader]:
    """Return a redacted trace made anonymous, and its loader.

    Args:
        trace: A redacted trace.
        hash_names: Replace kernel names by hashes that keep their class.
    """
    loader = AnonymousLoader(trace, hash_names=hash_names)
    return trace.loaded_by(loader), loader
