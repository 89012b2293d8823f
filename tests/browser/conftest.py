"""A real browser and the pages that it looks at."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from tests.support.diagnoses import CRITICAL, DEQUANT
from tracekit.analyses.allreduce_contention.chart import tracks
from tracekit.model.diagnosis import Diagnosis
from tracekit.model.finding import Evidence, Finding, Level
from tracekit.model.table import Column, Table
from tracekit.report.page import html
from tracekit.views.contention.windows import WINDOWS as WINDOWS_TABLE
from tracekit.views.overview.pictures import SAMPLES, WORK

EVIL = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'>"
N_WINDOWS = 5_000
MS = 1_000_000


def windows() -> pl.DataFrame:
    """5,000 contention windows of 1 to 5,000 us, shuffled, one a millisecond."""
    rows = [
        {
            "gpu": i % 2,
            "start_ns": i * MS,
            "end_ns": i * MS + 1_000 * length,
            "length_ns": 1_000 * length,
            "comm": "AllReduce" if i % 3 else EVIL,
            "corunners": "gemm" if i % 2 else "memcpy DtoD",
            "dram_read_frac": (length % 100) / 100 if i % 7 else None,
        }
        for i, length in ((i, i * 2_003 % N_WINDOWS + 1) for i in range(N_WINDOWS))
    ]
    return pl.DataFrame(rows, schema=WINDOWS_TABLE.schema)


def work() -> pl.DataFrame:
    """A kernel every other millisecond on two tracks of two GPUs."""
    rows = [
        {
            "gpu": gpu,
            "lane": lane,
            "stream": 7,
            "track": 2 * gpu + (lane == "compute"),
            "start_ns": 2 * i * MS,
            "end_ns": 2 * i * MS + MS // 2,
            "busy_ns": MS // 2,
            "n": 1,
            "kind": kind,
            "name": EVIL if i == 0 else f"kernel {i}",
        }
        for gpu in (0, 1)
        for lane, kind in (("communication", "comm"), ("compute", "gemm"))
        for i in range(2_500)
    ]
    return pl.DataFrame(rows, schema=WORK.schema)


def samples() -> pl.DataFrame:
    rows = [
        (gpu, what, i * MS, (i + 1) * MS, (i % 50) / 50, (i % 50) / 50)
        for gpu in (0, 1)
        for what in ("DRAM read + write", "NVLink sending")
        for i in range(1_000)
    ]
    return pl.DataFrame(rows, schema=SAMPLES.schema, orient="row")


def busy() -> Diagnosis:
    """A large diagnosis, its names hostile."""
    doc = [Column(n, t, "", f"what {n} is") for n, t in WINDOWS_TABLE.schema.items()]
    slow = Finding(
        id="allreduce_contention/all-reduce",
        level=Level.WARN,
        title=f"all-reduce is 1.65x slower {EVIL}",
        t_range_ns=(1_000 * MS, 1_010 * MS),
        evidence=(Evidence("windows", {"corunners": "gemm"}, ("gpu", "length_ns", "comm"), EVIL),),
    )
    return replace(
        DEQUANT,
        findings=(CRITICAL, slow, *DEQUANT.findings[1:]),
        frames={**DEQUANT.frames, "allreduce_contention": {"windows": windows()}},
        tables={"allreduce_contention": (Table("windows", tuple(doc), "one window"),)},
        questions={"allreduce_contention": "Do collectives get slower?"},
        pictures={"work": work(), "samples": samples()},
        tracks=tracks({"windows": windows()}),
    )


@pytest.fixture(scope="session")
def busy_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a large diagnosis."""
    path = tmp_path_factory.mktemp("pages") / "busy.html"
    path.write_text(html.render(busy()), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def recorded_page(
    tmp_path_factory: pytest.TempPathFactory, fixture_path: Callable[[str], Path]
) -> Callable[[str], Path]:
    """Return a function from the name of a bundled trace to its page."""
    from tracekit import engine

    folder = tmp_path_factory.mktemp("recorded")

    def made(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            found = engine.analyze([fixture_path(name)], with_pictures=True)
            path.write_text(html.render(found), encoding="utf-8")
        return path

    return made


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """A headless Chromium that logs its console and its requests."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium with chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    from selenium.webdriver.chrome.service import Service

    browser = webdriver.Chrome(options=options, service=Service(driver))
    browser.set_page_load_timeout(60)
    try:
        yield browser
    finally:
        browser.quit()
