"""Series of an engine and of DCGM from a Prometheus server, brought to one clock."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tracekit.errors import InputError, UsageError
from tracekit.sizing.slo.levels import Samples

__all__ = ["Query", "fetch"]

_TIMEOUT_S = 30
_MOST_POINTS = 10_000
_LOOK_BACK_S = 600
_PER_WINDOW = 4
"""Scrapes that a rate's window must hold."""
DRAM_ACTIVE = "DCGM_FI_PROF_DRAM_ACTIVE"
_REQUESTS = ("vllm:request_success_total", "sglang:num_requests_total")
_LATENCY: Mapping[str, tuple[str, ...]] = {
    "e2e": ("vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds"),
    "ttft": ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
    # Newer names first: engines keep the older one for a while.
    "tpot": (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "sglang:inter_token_latency_seconds",
        "sglang:time_per_output_token_seconds",
    ),
}
_CACHE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What to read.

    Attributes:
        url: Address of the server, as ``http://host:9090``.
        start_s: Beginning, Unix time.
        end_s: End, Unix time.
        latency: ``e2e``, ``ttft`` or ``tpot``.
        quantile: Of the latency, 0..1; None for the mean.
        match: Label matchers of the engine's series, as ``model_name="x"``.
        gpu_match: Label matchers of DCGM's series.
        window_s: Window of rates; four scrapes at least.
    """

    url: str
    start_s: float
    end_s: float
    latency: str = "e2e"
    quantile: float | None = 0.95
    match: str = ""
    gpu_match: str = ""
    window_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Series from a server.

    Attributes:
        samples: The series on one clock.
        series: Name of each series by what it is.
        step_s: Interval of that clock: the longest scrape interval.
        window_s: Window of rates.
    """

    samples: Samples
    series: Mapping[str, str | None]
    step_s: float
    window_s: float


def fetch(query: Query) -> Found:
    """Return load, latency, DRAM activity and cache use over a period.

    Raises:
        UsageError: The address or the latency is not one.
        InputError: No answer, an error of the server, or no series of an engine.
    """
    if urllib.parse.urlsplit(query.url).scheme not in ("http", "https"):
        message = f"{query.url!r} is no address of a server"
        raise UsageError(message, hint="as http://localhost:9090")
    if query.latency not in _LATENCY:
        message = f"no latency named {query.latency!r}"
        raise UsageError(message, hint=f"there are: {', '.join(_LATENCY)}")
    server = _Server(query.url)
    names = server.names()
    requests = _first(_REQUESTS, names, "request counter", query.url)
    histograms = {n.removesuffix("_bucket") for n in names if n.endswith("_bucket")}
    latency = _first(_LATENCY[query.latency], histograms, f"{query.latency} latency", query.url)
    cache = next((n for n in _spelled(_CACHE) if n in names), None)
    dram = DRAM_ACTIVE if DRAM_ACTIVE in names else None
    scraped = [_selector(requests, query.match)]
    scraped += [_selector(dram, query.gpu_match)] if dram else []
    step = max(server.interval(one, query.end_s) for one in scraped)
    step = max(step, (query.end_s - query.start_s) / _MOST_POINTS)
    window = max(query.window_s, _PER_WINDOW * step)
    span = f"[{math.ceil(window * 1000)}ms]"
    texts = {
        "qps": f"sum(rate({scraped[0]}{span}))",
        "latency": _latency_query(latency, query, span),
        "dram": dram and f"avg(avg_over_time({_selector(dram, query.gpu_match)}{span}))",
        "kv": cache and f"avg(avg_over_time({_selector(cache, query.match)}{span}))",
    }
    columns = {
        what: server.range(text, query.start_s, query.end_s, step) if text else {}
        for what, text in texts.items()
    }
    return Found(
        samples=_joined(columns),
        series={"requests": requests, "latency": latency, "dram_active": dram, "kv_cache": cache},
        step_s=step,
        window_s=window,
    )


def _spelled(names: Sequence[str]) -> tuple[str, ...]:
    """Names as engines write them, then as collectors that allow no colon do."""
    return (*names, *(name.replace(":", "_") for name in names))


def _first(candidates: Sequence[str], names: set[str], what: str, url: str) -> str:
    for name in _spelled(candidates):
        if name in names:
            return name
    message = f"{url} has no {what} of vLLM or SGLang"
    raise InputError(message, hint=f"one of {', '.join(candidates)} must be scraped")


def _selector(name: str, match: str) -> str:
    return f"{name}{{{match}}}"


def _latency_query(name: str, query: Query, span: str) -> str:
    total = f"sum(rate({_selector(f'{name}_sum', query.match)}{span}))"
    number = f"sum(rate({_selector(f'{name}_count', query.match)}{span}))"
    buckets = f"sum by (le) (rate({_selector(f'{name}_bucket', query.match)}{span}))"
    if query.quantile is None:
        return f"{total} / {number}"
    return f"histogram_quantile({query.quantile}, {buckets})"


def _joined(columns: Mapping[str, Mapping[float, float]]) -> Samples:
    times = sorted({time for column in columns.values() for time in column})

    def on_clock(what: str) -> Floats:
        return np.array([columns[what].get(t, math.nan) for t in times], dtype=np.float64)

    return Samples(
        time_s=np.array(times, dtype=np.float64),
        qps=on_clock("qps"),
        latency_s=on_clock("latency"),
        util_frac=on_clock("dram"),
        kv_frac=on_clock("kv"),
    )


class _Server:
    """The HTTP API of one server."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def names(self) -> set[str]:
        """Names of all metrics."""
        return set(self._get("/api/v1/label/__name__/values", {}))

    def interval(self, selector: str, at_s: float) -> float:
        """Scrape interval of a metric before a time, seconds."""
        text = f"{selector}[{_LOOK_BACK_S}s]"
        result = self._get("/api/v1/query", {"query": text, "time": f"{at_s:.3f}"})["result"]
        times = [float(t) for t, _ in max((r["values"] for r in result), key=len, default=[])]
        if len(times) < 2:
            message = f"{self._url}: {selector} has fewer than two samples before the end"
            raise InputError(message, hint="check --since, --until and the label matchers")
        return float(np.median(np.diff(times)))

    def range(self, text: str, start_s: float, end_s: float, step_s: float) -> dict[float, float]:
        """Values of an expression by time; what is no finite number is left out."""
        result = self._get(
            "/api/v1/query_range",
            {
                "query": text,
                "start": f"{start_s:.3f}",
                "end": f"{end_s:.3f}",
                "step": f"{step_s:.3f}",
            },
        )["result"]
        values = result[0]["values"] if result else []
        pairs = ((float(time), float(value)) for time, value in values)
        return {time: value for time, value in pairs if math.isfinite(value)}

    def _get(self, path: str, values: Mapping[str, str]) -> Any:
        address = f"{self._url}{path}?{urllib.parse.urlencode(values)}"
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                message = f"{self._url}: {_reason(error)}"
            raise InputError(message) from None
        except OSError as error:
            message = f"{self._url}: no answer: {getattr(error, 'reason', error)}"
            raise InputError(message, hint="is Prometheus running there?") from None
        except ValueError:
            message = f"{self._url}: the answer is not Prometheus's"
            raise InputError(message) from None
        if not isinstance(document, dict) or document.get("status") != "success":
            message = f"{self._url}: the answer is not Prometheus's"
            raise InputError(message)
        return document["data"]


def _reason(error: urllib.error.HTTPError) -> str:
    """What the server says is wrong, or its status."""
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {error.code}"
