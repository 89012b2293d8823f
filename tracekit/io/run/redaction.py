"""A loader that lets only text pass which is known to be harmless.

An export names the machine, its users and their data: paths, prompts in NVTX ranges, messages of
the profiler. `RedactedLoader` stands between the files and everything else and works by an
allow-list, so nothing that it does not know can reach a report. What passes: kernel and CUDA
function names, NCCL's own ranges, markers in known form, step and layer numbers, counter and GPU
names of NVIDIA's spelling. All other NVTX text becomes ``text-1``, ``text-2``, ... in the order of
appearance, the same for the same words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

import polars as pl

from tracekit.model.inputs import Gpu, Report
from tracekit.model.markers import EVENTS, WORDS
from tracekit.model.nvtx import DOMAIN_CREATE, LIBRARY_DOMAINS
from tracekit.trace import Loader

__all__ = ["RedactedLoader", "Texts", "redacted_gpu", "redacted_report"]

_SAFE_VALUES = sorted(
    {"k", "v", "kv", "prefill", "decode", "mixed", "text", "payload", "both", "off", "tk1"}
    | {"alloc", "share", "free", "append", "move", "nvtx", "sidecar", "none"}
    | {"torch_segment", "torch_block"}
    | {word for words in WORDS.values() for word in words.values()}
)
_VALUE = rf"(?:0x[0-9a-fA-F]{{1,16}}|-?\d+(?:[.,]\d+)*,?|{'|'.join(_SAFE_VALUES)})"
_KEYS = "|".join(sorted({key for event in EVENTS.values() for key in event.keys}))
_ALSO = "device|stream|again|degraded|requested"
MARKER = rf"^(?:{'|'.join(sorted(EVENTS))})(?: (?:{_KEYS}|{_ALSO})={_VALUE})*$"
"""A marker whose every key and value is of a known form."""
_ENGINE = re.compile(r"(?<= engine=)\S+")
_MARKER = re.compile(MARKER)
_PASS = rf"{MARKER}|^tk\.[a-z]{{1,12}}$|^p?nccl[A-Z][A-Za-z]{{1,40}}$"
_NUMBERED = re.compile(r"(?i)\b(?:(?:step|iter|iteration)\b[ =:#]*|layer[ =:]*)\d{1,9}\b")
_PLAIN = re.compile(
    r"(?i)step|iter|iteration|n|layer|prefill|decode|mixed|generate|warmup|forward|backward"
    r"|optimizer|train|eval|attention|attn|mlp|moe|ffn|embed|sampling"
)
_WORD = re.compile(r"[^\W_]+")
_ENTRY = (
    rf"^(?i:NCCL communicator ID|Message size \[bytes\]|Reduction op(?:eration)?|No\. of ranks"
    rf"|Number of ranks|Rank|Peer(?: rank)?|Root(?: rank)?|CUDA device|{_KEYS})$"
)
_SCHEMA = r"^(?:tracekit\.[a-zA-Z_]{1,20}|p?nccl[A-Z][A-Za-z]{1,40})$"
_COUNTER = r"^[A-Za-z0-9 /.:()-]{1,80} \[[A-Za-z0-9 /%.-]{1,40}\]$"
_NAMES = {
    "metric_names": _COUNTER,
    "nvtx_schemas": _SCHEMA,
    "nvtx_schema_entries": _ENTRY,
}
_GPU = re.compile(
    r"(?:NVIDIA )?(?:(?:GeForce|Quadro|Tesla|RTX|GTX|TITAN|Graphics Device) ?){0,2}"
    r"(?:[A-Z]{1,2}\d{1,4}[A-Za-z]?|\d{4})(?:[ -](?:\d{1,3}GB|[A-Z]{3,4}\d?|Ti|SUPER|Ada|Generation"
    r"|Blackwell|Server|Workstation|Edition|NVL|PCIe)){0,5}"
)
_CHIP = re.compile(r"[A-Z]{2}\d{2}[0-9A-Z]{0,3}")
_PRODUCT = re.compile(r"NVIDIA Nsight (?:Systems|Compute)(?: [\d.]+)?|marker file of tracekit run")
_VERSION = re.compile(r"[\d.]+")
_SIZE = r"[\d.]{1,12} (?:bytes|[KMGT]iB)"
_OUT_OF_MEMORY = (
    rf"out of memory\. Tried to allocate {_SIZE}|total capacity of {_SIZE}"
    rf"|of which {_SIZE} is free|memory {_SIZE} is allocated by PyTorch"
    rf"|with {_SIZE} allocated in private pools"
    rf"|{_SIZE} (?:is reserved by PyTorch but unallocated|total capacity|already allocated"
    r"|reserved in total by PyTorch|free)"
)
"""What PyTorch says when memory runs out, number by number, in the wording of any version."""
_MEMORY = re.compile(rf"(?i){_OUT_OF_MEMORY}")
_SAID = re.compile(
    rf"(?i){_OUT_OF_MEMORY}"
    r"|number of (?:incomplete |lost )?[A-Z]{4,6} events dropped:? *\d+|\b(?:lost|dropped"
    r"|discarded|overflow|missing|privilege|permission|in use|CUPTI|CUDA|NVTX)\b"
)
_FUNCTION = r"^[A-Za-z_][A-Za-z0-9_]{1,60}$"
_NAMED_BY = {"kernels": ("name_id", "mangled_id", "short_id"), "runtime": ("name_id",)}


class Texts:
    """Gives unknown texts a number each."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._engines: dict[str, int] = {}

    def column(self, texts: pl.Series) -> pl.Series:
        """Return `texts` (String) with every text that is not known to be harmless replaced."""
        unknown = texts.filter(~texts.str.contains(_PASS)).drop_nulls().unique(maintain_order=True)
        stand_ins = pl.Series([self.one(t) for t in unknown], dtype=pl.String)
        return texts.replace(unknown, stand_ins)

    def one(self, text: str) -> str:
        """Return a stand-in for one text that keeps a marker, or the step and layer numbers."""
        marker = _ENGINE.sub(self._engine, text)
        if _MARKER.fullmatch(marker):
            return marker
        rest = _NUMBERED.sub(lambda m: re.sub(r"\d+", "N", m[0]), text)
        if all(_PLAIN.fullmatch(word) for word in _WORD.findall(rest)):
            return text if text.isascii() else self._number(rest)
        return " ".join([self._number(rest), *_NUMBERED.findall(text), *_MEMORY.findall(text)])

    def _engine(self, name: re.Match[str]) -> str:
        """Stand in for the name that joins a cache's tables with its pools: below 0, as none is."""
        return f"-{self._engines.setdefault(name[0], len(self._engines) + 1)}"

    def _number(self, rest: str) -> str:
        return f"text-{self._numbers.setdefault(rest, len(self._numbers) + 1)}"


class RedactedLoader:
    """Wraps a loader; see the module.

    Args:
        loader: Where frames come from.
        keep_nvtx: Let the program's own NVTX text pass.
    """

    def __init__(self, loader: Loader, *, keep_nvtx: bool = False) -> None:
        self._loader = loader
        self._keep_nvtx = keep_nvtx
        self._texts = Texts()

    def load(self, name: str) -> pl.DataFrame:
        """Return the canonical frame `name` without text that is not known to be harmless."""
        frame = self._loader.load(name)
        match name:
            case "strings":
                return self._strings(frame)
            case "nvtx":
                return self._nvtx(frame)
            case "diagnostics":
                said = [_said(t) for t in frame["text"]]
                return frame.with_columns(pl.Series("text", said, dtype=pl.String))
            case "ncu_kernels":
                return frame  # its only text is the names of kernels
            case "metric_names" | "nvtx_schemas" | "nvtx_schema_entries":
                return frame.with_columns(_only("name", _NAMES[name]))
            case "gpus":
                return frame.with_columns(
                    pl.Series(c, [_matching(p, t) for t in frame[c]], dtype=pl.String)
                    for c, p in (("name", _GPU), ("chip", _CHIP))
                )
            case _:
                text = [c for c, t in frame.schema.items() if t in (pl.String, pl.Binary)]
                return frame.with_columns(pl.lit(None, frame.schema[c]).alias(c) for c in text)

    def load_samples(self, metrics: Collection[str]) -> pl.DataFrame:
        """Return samples; their names are those requested."""
        return self._loader.load_samples(metrics)

    def _strings(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Keep the names of kernels, and of functions that look like one."""
        kernels = self._used("kernels")
        functions = self._used("runtime")
        is_function = pl.col("id").is_in(functions.implode()) & pl.col("value").str.contains(
            _FUNCTION
        )
        return frame.filter(pl.col("id").is_in(kernels.implode()) | is_function)

    def _used(self, table: str) -> pl.Series:
        frame = self._loader.load(table)
        return pl.concat([frame[c] for c in _NAMED_BY[table]]).drop_nulls().unique()

    def _nvtx(self, frame: pl.DataFrame) -> pl.DataFrame:
        strings = self._loader.load("strings").select(text_id="id", _value="value")
        frame = frame.join(strings, on="text_id", how="left", maintain_order="left")
        frame = frame.with_columns(pl.coalesce("text", "_value").alias("text")).drop("_value")
        known = pl.col("text").is_not_null()
        frame = frame.with_columns(
            pl.when(known).then(None).otherwise("text_id").alias("text_id"),
            pl.lit(None, pl.String).alias("json_text"),
            pl.lit(None, pl.Int64).alias("json_text_id"),
        )
        if self._keep_nvtx:
            return frame
        domain = pl.col("event_type") == DOMAIN_CREATE
        library = domain & pl.col("text").str.contains(
            rf"{LIBRARY_DOMAINS}|^tracekit(?:\.\w{{1,8}})?$"
        )
        hidden = self._texts.column(frame["text"])
        return frame.with_columns(pl.when(library).then("text").otherwise(hidden).alias("text"))


_ACTIVITY = re.compile(r"CUPTI_ACTIVITY_KIND_[A-Z][A-Z0-9_]{0,30}")
"""Table names that are NVIDIA's."""


def redacted_report(report: Report) -> Report:
    """Return what may be said of an input: versions and counts, no file name, no date.

    Its ``dropped`` stays the same mapping, because readers fill it while they read.
    """
    return replace(
        report,
        name=f"report-{report.index}",
        product=_matching(_PRODUCT, report.product) or "",
        schema_version=_matching(_VERSION, report.schema_version),
        graph_trace=report.graph_trace if report.graph_trace in {"graph", "node"} else "",
        utc_epoch_ns=None,
        notes=[],
        unread={t: n for t, n in report.unread.items() if _ACTIVITY.fullmatch(t)},
    )


def redacted_gpu(gpu: Gpu) -> Gpu:
    """Return a GPU whose names are NVIDIA's or empty."""
    return replace(gpu, name=_matching(_GPU, gpu.name) or "", chip=_matching(_CHIP, gpu.chip) or "")


def _matching(pattern: re.Pattern[str], text: str | None) -> str | None:
    return text if text is not None and pattern.fullmatch(text) else None


def _only(column: str, pattern: str) -> pl.Expr:
    """Blank what does not match; a null stays null."""
    text = pl.col(column)
    blank = pl.when(text.is_null()).then(None).otherwise(pl.lit(""))
    return pl.when(text.str.contains(pattern)).then(text).otherwise(blank).alias(column)


def _said(text: str | None) -> str | None:
    """Keep the words of a profiler's message that its meaning hangs on."""
    if text is None:
        return None
    return "; ".join(dict.fromkeys(["text withheld", *_found(text)]))


def _found(text: str) -> Iterable[str]:
    return (m[0] for m in _SAID.finditer(text))
