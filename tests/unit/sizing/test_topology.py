"""Topology: the matrix as printed, ranks far from their GPU, the slowest path."""

from __future__ import annotations

import pytest

from tracekit.errors import InputError
from tracekit.model.finding import Level
from tracekit.sizing.machines import sources as source
from tracekit.sizing.machines.topology import (
    Machine,
    Placement,
    Rank,
    findings,
    parse_cpus,
    parse_matrix,
    path_classes,
    with_nodes,
)

HEAD = "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"
MATRIX = f"""{HEAD}
GPU0\t X \tNV18\tSYS\tSYS\tPXB\t0-3,8-11\t0\t\tN/A
GPU1\tNV18\t X \tSYS\tSYS\tSYS\t0-3,8-11\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNV18\tSYS\t4-7,12-15\t1\t\tN/A
GPU3\tSYS\tSYS\tNV18\t X \tSYS\t4-7,12-15\t1\t\tN/A
NIC0\tPXB\tSYS\tSYS\tSYS\t X

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def rank(name, gpu, cpus):
    return Rank(name=name, gpu=gpu, cpus=parse_cpus(cpus))


def test_the_matrix_as_nvidia_smi_prints_it():
    found = parse_matrix(MATRIX)
    assert list(found.gpus) == [0, 1, 2, 3]
    assert found.gpus[2] == Placement(gpu=2, numa=1, cpus=parse_cpus("4-7,12-15"))
    assert found.paths[0, 1] == "NV18"
    assert path_classes(found, [0, 1, 2, 3]) == {
        "NV18": ((0, 1), (2, 3)),
        "SYS": ((0, 2), (0, 3), (1, 2), (1, 3)),
    }


def test_a_copy_that_lost_its_tabs():
    found = parse_matrix(MATRIX.replace("\t", "    "))
    assert found.gpus[2].numa == 1
    assert found.paths[1, 3] == "SYS"


def test_one_gpu_that_states_nothing():
    found = parse_matrix("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tN/A\tN/A\n")
    assert found.gpus == {0: Placement(gpu=0, numa=None)}
    assert found.paths == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no matrix"),
        ("GPU0 GPU1\n", "no matrix"),
        (MATRIX.replace("GPU3\tSYS\tSYS\tNV18", "XXX\tSYS\tSYS\tNV18"), "incomplete"),
    ],
)
def test_what_is_no_matrix(text, said):
    with pytest.raises(InputError, match=said):
        parse_matrix(text)


def test_ranks_are_judged_by_the_node_of_their_gpu():
    ranks = [
        rank("0", 0, "0-3"),
        rank("1", 1, "4-7"),
        rank("2", 2, "0-15"),
        rank("3", 3, ""),
        rank("4", None, "1"),
    ]
    found = findings(parse_matrix(MATRIX), ranks)
    said = {one.title: (one.level, one.subjects) for one in found}
    assert said["rank 1 run only on CPUs of another NUMA node than their GPU's"] == (
        Level.WARN,
        ("1",),
    )
    levels = [(one.level, one.subjects) for one in found[:4]]
    assert levels == [
        (Level.WARN, ("1",)),
        (Level.UNKNOWN, ("2",)),
        (Level.UNKNOWN, ("3", "4")),
        (Level.OK, ("0",)),
    ]
    assert "numactl" in found[0].advice


def test_with_one_node_every_rank_is_near():
    one = with_nodes(parse_matrix(MATRIX), {}, {0: parse_cpus("0-15")})
    (near,) = findings(one, [rank("0", 0, "12")])
    assert near.level is Level.OK


def test_sysfs_comes_before_the_matrix():
    nodes = {0: parse_cpus("0-3,8-11"), 1: parse_cpus("4-7,12-15")}
    swapped = with_nodes(parse_matrix(MATRIX), {0: 1}, nodes)
    (far, *_) = findings(swapped, [rank("0", 0, "0-3")])
    assert far.level is Level.WARN


def test_without_ranks_their_place_is_unknown():
    place, path = findings(parse_matrix(MATRIX), [])
    assert (place.level, place.title) == (Level.UNKNOWN, "where ranks run is unknown")
    assert path.level is Level.WARN
    assert path.subjects == ("GPU0-GPU2", "GPU0-GPU3", "GPU1-GPU2", "GPU1-GPU3")
    assert "slowest link" in path.advice


@pytest.mark.parametrize(
    ("path", "level"),
    [("NV18", Level.OK), ("PIX", Level.OK), ("SYS", Level.WARN), ("PHB", Level.WARN)],
)
def test_the_path_between_two_gpus(path, level):
    gpus = {i: Placement(gpu=i, numa=0) for i in (0, 1)}
    *_, found = findings(Machine(gpus=gpus, paths={(0, 1): path}), [])
    assert found.level is level


def test_only_gpus_in_use_count():
    found = findings(parse_matrix(MATRIX), [rank("0", 0, "0"), rank("1", 1, "1")])
    assert found[-1].title == "every pair of GPUs is linked by NVLink (NV18)"


@pytest.mark.parametrize(("text", "n"), [("", 0), ("3", 1), ("0-15,32-47\n", 32)])
def test_lists_of_cpus(text, n):
    assert len(parse_cpus(text)) == n


@pytest.mark.parametrize("text", ["a", "3-", "1;2"])
def test_what_is_no_list_of_cpus(text):
    with pytest.raises(InputError, match="no list of CPUs"):
        parse_cpus(text)


def test_bus_addresses_as_sysfs_spells_them():
    text = "0, 00000000:1B:00.0\n1, 0000:5D:00.0\n"
    assert source.bus_ids(text) == {0: "0000:1b:00.0", 1: "0000:5d:00.0"}
    with pytest.raises(InputError, match="no index and bus address"):
        source.bus_ids("0, somewhere\n")


def machine_files(folder):
    """A saved /sys, GPU list and matrix of a machine with two nodes."""
    for bus, node in (("0000:1b:00.0", "0"), ("0000:5d:00.0", "0"), ("0000:9d:00.0", "1")):
        device = folder / "sys/bus/pci/devices" / bus
        device.mkdir(parents=True)
        (device / "numa_node").write_text(node + "\n")
    unknown = folder / "sys/bus/pci/devices/0000:dd:00.0"
    unknown.mkdir()
    (unknown / "numa_node").write_text("-1\n")
    for node, cpus in ((0, "0-3,8-11"), (1, "4-7,12-15")):
        place = folder / f"sys/devices/system/node/node{node}"
        place.mkdir(parents=True)
        (place / "cpulist").write_text(cpus + "\n")
    buses = ("1B", "5D", "9D", "DD")
    lines = [f"{i}, 00000000:{bus}:00.0" for i, bus in enumerate(buses)]
    (folder / "gpus.csv").write_text("\n".join(["index, pci.bus_id", *lines]) + "\n")
    (folder / "topo.txt").write_text(MATRIX)
    (folder / "ranks.csv").write_text("rank,gpu,cpus\n0,0,0-3;8-11\n1,2,0-3\n")
    return folder


def test_a_saved_machine(tmp_path):
    folder = machine_files(tmp_path)
    buses = source.saved_bus_ids(folder / "gpus.csv")
    assert source.numa_of(buses, folder / "sys") == {0: 0, 1: 0, 2: 1}
    assert source.nodes(folder / "sys")[1] == parse_cpus("4-7,12-15")


def test_processes_and_the_cpus_that_they_may_use(tmp_path):
    (tmp_path / "41").mkdir()
    (tmp_path / "41/status").write_text("Name:\tpython\nCpus_allowed_list:\t0-3\n")
    text = "41, 00000000:1B:00.0\n42, 00000000:5D:00.0\n[N/A], [N/A]\n"
    found = source.processes(text, {0: "0000:1b:00.0"}, tmp_path)
    assert found == [
        Rank(name="pid 41", gpu=0, cpus=parse_cpus("0-3")),
        Rank(name="pid 42", gpu=None, cpus=frozenset()),
    ]


def test_the_command_on_what_was_saved(said, answered, tmp_path):
    folder = machine_files(tmp_path)
    words = (
        *("topo", "--matrix", folder / "topo.txt", "--gpus", folder / "gpus.csv"),
        *("--sysfs", folder / "sys", "--ranks", folder / "ranks.csv"),
    )
    code, out, _ = said(*words, "-o", tmp_path / "t.svg")
    assert code == 0
    assert "WARN  rank 1 run only on CPUs of another NUMA node" in out
    assert (tmp_path / "t.svg").stat().st_size > 1000
    found = answered(*words)
    assert [g["numa"] for g in found["gpus"]] == [0, 0, 1, 1]
    assert found["paths"]["NV18"] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--matrix", "gone.txt"), 3, "gone.txt: matrix cannot be read"),
        (("--matrix", "gone.txt", "--sysfs", "/sys"), 2, "--gpus and --sysfs go together"),
    ],
)
def test_input_that_cannot_be_used(said, words, code, text):
    found, out, error = said("topo", *words)
    assert (found, out) == (code, "")
    assert text in error


def test_a_machine_without_nvidia_smi(said, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, error = said("topo")
    assert code == 3
    assert error == (
        "tracekit: there is no nvidia-smi here; save its output where the GPUs are: see --matrix\n"
    )


def test_the_running_machine(said, monkeypatch, tmp_path):
    """A stand-in prints what nvidia-smi would."""
    (tmp_path / "topo.txt").write_text(MATRIX)
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"""#!/bin/sh
case "$1" in
  topo) exec /bin/cat {tmp_path}/topo.txt ;;
  --query-gpu=*) echo "0, 00000000:FE:00.0" ;;
  --query-compute-apps=*) echo "1, 00000000:FE:00.0" ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, _ = said("topo")
    assert code == 0
    assert "4 pair(s) of GPUs" not in out  # Only the one GPU in use counts.
    assert "GPU3" in out
    program.write_text("#!/bin/sh\necho driver mismatch\nexit 9\n")
    code, _, error = said("topo")
    assert (code, error) == (3, "tracekit: nvidia-smi failed: driver mismatch\n")
