"""``tracekit slo fit`` against a real Prometheus that scraped a queue of known capacity."""

from __future__ import annotations

import json
import math
import shutil
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tracekit.cli.shell import app as cli

CAPACITY_QPS = 20.0
LEVELS_QPS = [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0]
PER_LEVEL = 9
INTERVAL_S = 15
N_SCRAPES = PER_LEVEL * len(LEVELS_QPS)
BOUNDS_S = [0.01 * 1.12**k for k in range(60)]
PATIENCE_S = 180


def prometheus_binary(folder):
    """Debian's prometheus, installed or unpacked into `folder`; skips where apt cannot give it."""
    if found := shutil.which("prometheus"):
        return found
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip("no prometheus, and no apt-get to get it with")
    done = subprocess.run(
        ["apt-get", "download", "prometheus"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    packages = sorted(folder.glob("prometheus_*.deb"))
    if done.returncode or not packages:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"apt-get cannot download prometheus: {said}")
    subprocess.run(["dpkg", "-x", packages[0], folder / "unpacked"], check=True)
    return str(folder / "unpacked" / "usr" / "bin" / "prometheus")


class Replay:
    """An engine's and DCGM's metrics at one moment after another, one a scrape.

    Each scrape gets samples with their own timestamps, so that minutes pass in seconds.
    """

    def __init__(self, end_s):
        self.start_s = end_s - N_SCRAPES * INTERVAL_S
        self.complete = threading.Event()
        self._lock = threading.Lock()
        self._served = 0
        self._requests = 0.0
        self._seconds = 0.0
        self._buckets = [0.0] * len(BOUNDS_S)

    def page(self):
        with self._lock:
            if self._served > N_SCRAPES:
                self.complete.set()  # What came before has been stored: scrapes follow in turn.
            number = min(self._served, N_SCRAPES - 1)
            if self._served < N_SCRAPES:
                self._advance(LEVELS_QPS[number // PER_LEVEL])
            self._served += 1
            return self._text(LEVELS_QPS[number // PER_LEVEL], number)

    def _advance(self, qps):
        """An M/M/1 queue's requests of one interval: their times are exponential."""
        n, rate = qps * INTERVAL_S, CAPACITY_QPS - qps
        self._requests += n
        self._seconds += n / rate
        for i, bound in enumerate(BOUNDS_S):
            self._buckets[i] += n * (1 - math.exp(-rate * bound))

    def _text(self, qps, number):
        at = int((self.start_s + (number + 1) * INTERVAL_S) * 1000)
        name = "vllm:e2e_request_latency_seconds"
        lines = [
            f'vllm:request_success_total{{finished_reason="stop"}} {self._requests * 0.75} {at}',
            f'vllm:request_success_total{{finished_reason="length"}} {self._requests * 0.25} {at}',
            f"{name}_sum {self._seconds} {at}",
            f"{name}_count {self._requests} {at}",
            f'{name}_bucket{{le="+Inf"}} {self._requests} {at}',
            f'DCGM_FI_PROF_DRAM_ACTIVE{{gpu="0"}} {0.8 * qps / CAPACITY_QPS} {at}',
            f"vllm:gpu_cache_usage_perc {0.5 * qps / CAPACITY_QPS} {at}",
            *(
                f'{name}_bucket{{le="{bound:.6f}"}} {count} {at}'
                for bound, count in zip(BOUNDS_S, self._buckets, strict=True)
            ),
        ]
        return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Address of a Prometheus that has scraped the whole replay, and the replay's end."""
    folder = tmp_path_factory.mktemp("prometheus")
    binary = prometheus_binary(folder)
    replay = Replay(end_s=int(time.time()) - 30)

    class Target(BaseHTTPRequestHandler):
        def do_GET(self):
            body = replay.page().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_):
            """Say nothing of scrapes that timed out: their sample is missing, as in life."""

    target = Quiet(("127.0.0.1", 0), Target)
    thread = threading.Thread(target=target.serve_forever)
    thread.start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "scrape_configs": [
            {
                "job_name": "engine",
                "scrape_interval": "200ms",
                "scrape_timeout": "200ms",
                "static_configs": [{"targets": [f"127.0.0.1:{target.server_port}"]}],
            }
        ]
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML.
    words = [
        binary,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(words, stderr=log) as process:
        try:
            done = replay.complete.wait(PATIENCE_S)
            assert done, (folder / "log").read_text()[-2000:]
            yield f"http://127.0.0.1:{port}", replay.start_s + N_SCRAPES * INTERVAL_S
        finally:
            process.terminate()
            target.shutdown()
            thread.join()
            target.server_close()


def fitted(server, capsys, *words):
    url, end_s = server
    code = cli.call(
        [
            *("slo", "fit", "--prometheus", url, "--until", str(end_s)),
            *("--since", f"{N_SCRAPES * INTERVAL_S}s", "--format", "json"),
            *words,
        ]
    )
    out, error = capsys.readouterr()
    assert (code, error) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize("latency", [("--mean",), ("--quantile", "0.95")], ids=["mean", "p95"])
def test_the_planted_capacity_is_found(server, capsys, latency):
    found = fitted(server, capsys, *latency, "--objective", "400ms", "--headroom", "0.25")
    queue = found["fit"]["queue"]
    assert queue["capacity_qps"] == pytest.approx(CAPACITY_QPS, rel=0.05)
    assert len(found["fit"]["levels"]["levels"]) == len(LEVELS_QPS)
    assert found["fit"]["guards"] == []
    # Of an M/M/1 queue the time of a request is exponential: mean 1/(mu-q), P95 ln 20 times that.
    factor = 1.0 if "--mean" in latency else math.log(20)
    allowed = CAPACITY_QPS - factor / 0.4
    assert found["fit"]["by_latency"]["qps"] == pytest.approx(allowed, rel=0.05)
    # 25 % of 0.8 free is an activity of 0.6: three quarters of the capacity.
    assert found["fit"]["by_headroom"]["qps"] == pytest.approx(15.0, rel=0.05)
    assert found["fit"]["qps"]["qps"] == min(
        found["fit"]["by_latency"]["qps"], found["fit"]["by_headroom"]["qps"]
    )


def test_the_clock_is_that_of_the_scrapes(server, capsys):
    found = fitted(server, capsys)
    assert found["source"]["step_s"] == INTERVAL_S
    assert found["source"]["window_s"] == 4 * INTERVAL_S
    assert found["source"]["series"] == {
        "requests": "vllm:request_success_total",
        "latency": "vllm:e2e_request_latency_seconds",
        "dram_active": "DCGM_FI_PROF_DRAM_ACTIVE",
        "kv_cache": "vllm:gpu_cache_usage_perc",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--latency", "tpot"), "has no tpot latency of vLLM or SGLang"),
        (("--match", "{{"), "parse error"),
        (("--match", 'model_name="x"'), "has fewer than two samples before the end"),
    ],
)
def test_what_the_server_does_not_have(server, capsys, words, said):
    code = cli.call(["slo", "fit", "--prometheus", server[0], *words])
    out, error = capsys.readouterr()
    assert (code, out) == (3, "")
    assert said in error
    assert error.count("\n") == 1
