"""``tracekit size roofline`` as a command."""

from __future__ import annotations

import json

import pytest

WORDS = ("size", "roofline", "--model", "llama-3-8b", "--gpu", "H100")


def test_the_answer_as_json(answered):
    found = answered(*WORDS, "--batch", 16, "--target-ms", 5, "--claim", 1e6)
    step = found["assessment"]["decode"]
    assert found["command"] == "size roofline"
    assert step["weight_bytes"] == 2 * (8030261248 - 128256 * 4096)
    assert step["cache_bytes"] == 131072 * (2048 * 16 + 16)
    assert step["time_s"] == pytest.approx(step["bytes"] / 3350e9)
    assert found["target"]["needed_bytes_per_s"] == pytest.approx(step["bytes"] / 0.005)
    assert found["claim"]["verdict"] == "implausible"


def test_the_answer_as_text(said):
    code, out, error = said(*WORDS, "--batch", 16, "--target-ms", 5, "--claim", 1e6)
    assert (code, error) == (0, "")
    assert "decode   memory   5.76 ms" in out
    assert "1,000,000 tokens/s is implausible: the bound is 2,780 tokens/s" in out
    assert "5.00 ms a token takes 3.86 TB/s a GPU: cannot be met here" in out


def test_a_figure_and_a_file(said, tmp_path):
    code, _, _ = said(*WORDS, "-o", tmp_path / "r.svg", "-o", tmp_path / "r.json")
    assert code == 0
    assert (tmp_path / "r.svg").read_bytes().startswith(b"<svg")
    assert json.loads((tmp_path / "r.json").read_text())["assessment"]["device"] == "H100 SXM5"


def test_a_configuration_by_file_or_folder(answered, tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 100,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    for given in (tmp_path, tmp_path / "config.json"):
        found = answered("size", "roofline", "--model", given, "--gpu", "L4")
        assert found["model"]["n_params"] == 100 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128) + 5 * 64
        assert found["workload"]["dtype"] == "fp16"


def test_measured_beside_predicted(answered, said, fixture_path):
    report = fixture_path("hf_dynamic_cache")
    words = ("size", "roofline", "--model", "llama-3.2-1b", "--gpu", "H200", "--trace", report)
    (one,) = answered(*words)["measured"]
    assert one["step"]["group"] == "decode step=N"
    assert one["bound"]["verdict"] == "slower"
    code, out, _ = said(*words)
    assert code == 0
    assert "Measured next to the bound, per step and GPU" in out


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--gpu", "H900"), 2, "no GPU named 'H900' in the table"),
        (("--gpu", "A100 80 SXM", "--dtype", "fp8"), 2, "A100 80 SXM has no fp8 tensor rate"),
        (("--gpu", "L4", "--model", "gpt-9"), 2, "no built-in model named 'gpt-9'"),
        (("--gpu", "L4", "--model", "gone.json"), 3, "gone.json: model configuration cannot be"),
        (("--gpu", "L4", "--hardware", "gone.toml"), 3, "gone.toml: hardware table cannot be read"),
        (("--gpu", "L4", "-o", "a.xyz"), 2, "-o a.xyz: the suffix chooses the format"),
        (("--gpu", "L4", "-o", "a.csv"), 3, "size roofline has no table for CSV"),
    ],
)
def test_bad_input_is_one_line_and_a_code(said, words, code, text):
    given = words if "--model" in words else ("--model", "llama-3-8b", *words)
    found, out, error = said("size", "roofline", *given)
    assert (found, out) == (code, "")
    assert text in error
    assert error.count("\n") == 1


def test_a_broken_table_is_named(said, tmp_path):
    (tmp_path / "own.toml").write_text("[[device]]\n")
    code, _, error = said(*WORDS, "--hardware", tmp_path / "own.toml")
    assert (code, error) == (3, f"tracekit: {tmp_path}/own.toml: a device has no key\n")
