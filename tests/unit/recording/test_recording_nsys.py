from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.recording.conftest import FORBIDDEN, NO_GPU, OLD_HELP, TWO_GPUS
from tracekit.errors import TracekitError, UsageError
from tracekit.recording import nsys as nsys_module
from tracekit.recording import options
from tracekit.recording.nsys import Nsys, ask, candidates, find, importer_candidates
from tracekit.recording.options import Metrics, metric_options, profile_options

MakeNsys = Callable[..., Path]


def opened(path: Path) -> Nsys:
    found = find(str(path))
    assert found is not None
    return found


def test_a_path_is_asked_for_its_version(make_nsys: MakeNsys) -> None:
    found = opened(make_nsys(version="2022.4.2.1-df9881f"))
    assert found.version == (2022, 4, 2, 1)
    assert found.version_text == "2022.4.2.1"
    assert "include-blobs" in found.export_options


def test_a_path_that_is_no_nsys(tmp_path: Path) -> None:
    (tmp_path / "nsys").write_text("#!/bin/sh\necho hello\n")
    (tmp_path / "nsys").chmod(0o755)
    for path in ("nsys", "absent"):
        with pytest.raises(UsageError, match="no nsys that answers"):
            find(str(tmp_path / path))


def test_settings_without_an_nsys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_module, "candidates", lambda: iter(()))
    assert find("never") is None
    assert find("auto") is None
    with pytest.raises(TracekitError, match="not on this machine; install Nsight Systems"):
        find("always")


def test_the_one_on_the_path_comes_first(
    make_nsys: MakeNsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_nsys()
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    assert next(candidates()) == program
    found = find("auto")
    assert found is not None
    assert found.path == program


def test_a_silent_candidate_is_passed_over(
    make_nsys: MakeNsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = make_nsys()
    monkeypatch.setattr(nsys_module, "candidates", lambda: iter((tmp_path / "absent", good)))
    found = find("auto")
    assert found is not None
    assert found.path == good


def test_asking_what_cannot_be_started() -> None:
    assert ask(["/no/such/program"])[0] == 127
    assert ask(["sleep", "60"], timeout_s=0.01) == (124, "no answer")
    assert ask(["sh", "-c", "echo a; echo b >&2; exit 3"]) == (3, "a\nb\n")


def test_the_importer_beside_a_link_and_beside_the_program(tmp_path: Path) -> None:
    # Debian: bin/nsys -> ../target/nsys -> elsewhere; the importer stands beside bin only.
    package, real = tmp_path / "lib" / "nsight-systems", tmp_path / "lib" / "x86" / "nsight-systems"
    (package / "bin").mkdir(parents=True)
    (real / "target").mkdir(parents=True)
    (real / "target" / "nsys").touch()
    (package / "target").symlink_to("../x86/nsight-systems/target")
    (package / "bin" / "nsys").symlink_to("../target/nsys")
    outside = tmp_path / "nsys"
    outside.symlink_to(package / "bin" / "nsys")
    host = package / "host-linux-x64"
    host.mkdir()
    assert host / "QdstrmImporter" in list(importer_candidates(outside))
    copy = real / "linux-desktop-glibc_2_11_3-x64"
    copy.mkdir()
    assert copy / "QdstrmImporter" in list(importer_candidates(outside))


def test_options_of_a_version_that_has_them_all(make_nsys: MakeNsys) -> None:
    assert profile_options(opened(make_nsys())) == [
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        "--cuda-memory-usage=true",
        "--force-overwrite=true",
    ]


def test_an_option_that_this_version_lacks_is_left_out(make_nsys: MakeNsys) -> None:
    lacking = OLD_HELP.replace("\t--cuda-graph-trace=\n", "")
    assert "--cuda-graph-trace=node" not in profile_options(opened(make_nsys(help_text=lacking)))


def test_a_help_that_cannot_be_read_is_taken_for_the_newest(make_nsys: MakeNsys) -> None:
    assert len(profile_options(opened(make_nsys(help_text="?")))) == 6


@pytest.mark.parametrize(
    ("help_text", "spelling"), [(None, "gpu-metrics-devices"), (OLD_HELP, "gpu-metrics-device")]
)
def test_both_spellings_of_the_devices(
    make_nsys: MakeNsys, help_text: str | None, spelling: str
) -> None:
    more = {"help_text": help_text} if help_text else {}
    nsys = opened(make_nsys(devices=TWO_GPUS, **more))
    wanted = [f"--{spelling}=all", "--gpu-metrics-frequency=20000"]
    assert metric_options(nsys, Metrics()) == (wanted, "")
    one = metric_options(nsys, Metrics(device=1, frequency_hz=1000))
    assert one == ([f"--{spelling}=1", "--gpu-metrics-frequency=1000"], "")
    assert metric_options(nsys, Metrics(device=7)) == ([], "nsys has no GPU 7")


def test_without_a_gpu_there_are_no_counters_and_a_reason(make_nsys: MakeNsys) -> None:
    nsys = opened(make_nsys(devices=NO_GPU))
    reason = "NVIDIA GPUs not found, feature is not available"
    assert metric_options(nsys, Metrics()) == ([], reason)
    with pytest.raises(UsageError, match=reason):
        metric_options(nsys, Metrics("gh100"))
    assert metric_options(nsys, Metrics("none")) == ([], "not requested")


def test_no_permission(make_nsys: MakeNsys) -> None:
    found, reason = metric_options(opened(make_nsys(devices=FORBIDDEN)), Metrics())
    assert found == []
    assert "NVreg_RestrictProfilingToAdminUsers=0" in reason


def test_an_nsys_without_counters(make_nsys: MakeNsys) -> None:
    lacking = OLD_HELP.replace("\t--gpu-metrics-device=\n", "")
    found = metric_options(opened(make_nsys(help_text=lacking)), Metrics())
    assert found == ([], "this nsys cannot sample GPU metrics")


def test_a_set_goes_by_name_or_by_number(
    make_nsys: MakeNsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "_chip", lambda: "gh100")
    nsys = opened(make_nsys(devices=TWO_GPUS))
    for choice in ("l2", "gh100-ct"):
        found, _ = metric_options(nsys, Metrics(choice))
        assert found[1:] == ["--gpu-metrics-set=gh100-ct", "--gpu-metrics-frequency=100000"]
    with pytest.raises(UsageError, match="it has: gh100, gh100-ct, tu10x"):
        metric_options(nsys, Metrics("zz100"))


def test_a_set_goes_by_number_in_older_versions(
    make_nsys: MakeNsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "_chip", lambda: "gh100")
    nsys = opened(make_nsys(devices=TWO_GPUS, help_text=OLD_HELP))
    assert metric_options(nsys, Metrics("gh100"))[0][1:] == [
        "--gpu-metrics-set=4",
        "--gpu-metrics-frequency=20000",
    ]
    assert metric_options(nsys, Metrics("l2", frequency_hz=5000))[0][1:] == [
        "--gpu-metrics-set=5",
        "--gpu-metrics-frequency=5000",
    ]
