"""``tracekit slo fit`` on CSV, and where a server gives no answer."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

Q = [10, 20, 30, 40, 50, 60, 70, 80, 90]


def table(path, rows=None, head="time_s,qps,latency_ms,dram_active_pct"):
    if rows is None:
        latencies = [20 + 5 * (q / 100) / (1 - q / 100) for q in Q]
        rows = [
            f"{i},{q},{1000 * s},{0.8 * q}"
            for i, (q, s) in enumerate(zip(Q, latencies, strict=True))
        ]
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def test_the_planted_capacity(said, answered, tmp_path):
    path = table(tmp_path / "load.csv")
    words = ("slo", "fit", "--csv", path, "--objective", "40s", "--headroom", 0.1)
    found = answered(*words)["fit"]
    assert found["queue"]["capacity_qps"] == pytest.approx(100, rel=1e-6)
    assert found["by_latency"]["qps"] == pytest.approx(80, rel=1e-6)
    assert found["by_headroom"] == {"qps": 90, "at_least": True, "low_qps": None, "high_qps": None}
    code, out, _ = said(*words, "-o", tmp_path / "l.svg", "-o", tmp_path / "l.json")
    assert code == 0
    assert "Allowed      80.0 requests/s" in out
    assert "By headroom  at least 90.0 requests/s, the most that was observed" in out
    assert (tmp_path / "l.svg").stat().st_size > 1000
    assert json.loads((tmp_path / "l.json").read_text())["fit"]["qps"]["qps"] == pytest.approx(80)


def test_one_level_is_unknown(said, tmp_path):
    path = table(tmp_path / "load.csv", ["0,10,100,8", "1,10,101,8", "2,10,99,8"])
    code, out, _ = said("slo", "fit", "--csv", path, "--objective", "1s")
    assert code == 0
    assert "Allowed      unknown" in out
    assert "1 distinct levels of load, 8 are needed" in out


def test_dram_activity_on_its_own_clock(answered, tmp_path):
    path = table(
        tmp_path / "load.csv",
        [f"{i * 60},{q},{20 + 5 * (q / 100) / (1 - q / 100)}" for i, q in enumerate(Q)],
        "time_s,qps,latency_s",
    )
    dcgm = tmp_path / "dcgm.csv"
    rows = [f"{t},{0.008 * Q[-(-t // 60)]}" for t in range(0, 481, 5)]
    dcgm.write_text("time_s,dram_active\n" + "\n".join(rows) + "\n")
    found = answered("slo", "fit", "--csv", path, "--dcgm-csv", dcgm, "--headroom", 0.5)["fit"]
    assert found["by_headroom"]["qps"] == pytest.approx(50, rel=1e-6)


@pytest.mark.parametrize(
    ("rows", "head", "said_"),
    [
        (["1,2"], "qps,tokens", "needs the columns qps and latency_s (or latency_ms)"),
        (["0,10,x"], "time_s,qps,latency_s", "line 2, column 'latency_s': 'x' is no number"),
        (["1,10,1", "0,11,1"], "time_s,qps,latency_s", "column time_s does not rise"),
        (["10,1,80"], "qps,latency_s,dram_active", "column dram_active is above 1"),
    ],
)
def test_tables_that_cannot_be_used(said, tmp_path, rows, head, said_):
    path = table(tmp_path / "load.csv", rows, head)
    code, out, error = said("slo", "fit", "--csv", path)
    assert (code, out) == (3, "")
    assert said_ in error


@pytest.mark.parametrize(
    ("words", "said_"),
    [
        ((), "one source is needed"),
        (("--prometheus", "http://x", "--csv", "y"), "one source is needed"),
        (("--prometheus", "http://x", "--dcgm-csv", "y"), "--dcgm-csv goes with --csv"),
        (("--prometheus", "ftp://x"), "'ftp://x' is no address of a server"),
        (("--csv", "x", "--objective", "fast"), "no length of time"),
        (("--csv", "x", "--until", "noon"), "no date and time"),
    ],
)
def test_wrong_usage(said, words, said_):
    code, _, error = said("slo", "fit", *words)
    assert code == 2
    assert said_ in error


@pytest.fixture
def answering():
    """Return a function from (status, body) to the address of a server that answers so."""
    servers = []

    def serve(status, body):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "said_"),
    [
        (200, b"<html>", "the answer is not Prometheus's"),
        (200, b"[]", "the answer is not Prometheus's"),
        (503, b"busy", "HTTP status 503"),
        (400, b'{"status":"error","error":"bad query"}', "bad query"),
        (200, b'{"status":"success","data":["up"]}', "no request counter of vLLM or SGLang"),
    ],
)
def test_answers_that_are_none(said, answering, status, body, said_):
    code, out, error = said("slo", "fit", "--prometheus", answering(status, body))
    assert (code, out) == (3, "")
    assert said_ in error
    assert error.count("\n") == 1


def test_a_server_that_is_gone(said, answering):
    url = "http://127.0.0.1:9"
    code, _, error = said("slo", "fit", "--prometheus", url)
    assert code == 3
    assert f"{url}: no answer" in error
