"""The hooks in the real frameworks, on the CPU (extra ``test-frameworks``; vLLM by hand).

Each program runs in a process of its own, as a user's would: what it prints is the truth, what
the sidecar holds is compared with it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tracekit.model.markers import Marker, parse

HAS_TRANSFORMERS = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
HAS_VLLM = HAS_TRANSFORMERS and importlib.util.find_spec("vllm") is not None
needs_transformers = pytest.mark.skipif(
    not HAS_TRANSFORMERS, reason="torch and transformers are not installed: extra test-frameworks"
)
needs_vllm = pytest.mark.skipif(not HAS_VLLM, reason="vLLM is not installed")
DECODE = Path(__file__).parents[2] / "fixtures" / "run" / "recording" / "decode.py"

MODEL = """
import json, sys, torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache
torch.manual_seed(0)
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=3,
                     num_attention_heads=4, num_key_value_heads=2, vocab_size=200,
                     **(dict(sliding_window=4) if "sliding" in sys.argv else {}))
model = LlamaForCausalLM(config).eval()
ids = torch.randint(0, 200, (2, 7))
"""
GENERATE = (
    MODEL
    + """
with torch.no_grad():
    plain = model(ids, use_cache=False).logits
    cached = model(ids, past_key_values=DynamicCache(), use_cache=True).logits
    answer = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=5,
                            min_new_tokens=5, do_sample=False, pad_token_id=0)
print(json.dumps({"answer": answer.tolist(), "sum": cached.double().sum().item(),
                  "near": bool(torch.allclose(plain, cached, atol=1e-4))}))
"""
)
STATIC = (
    MODEL
    + """
cache = StaticCache(config=config, max_cache_len=16)
held = []
with torch.no_grad():
    token = ids
    for _ in range(3):
        token = model(token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
        held.append([[layer.keys.data_ptr(), layer.keys.nbytes] for layer in cache.layers])
print(json.dumps({"held": held}))
"""
)
COMPILED = (
    MODEL
    + """
fast = torch.compile(model, backend="eager", fullgraph=True)
with torch.no_grad():
    out = fast(ids, past_key_values=DynamicCache(), use_cache=True).logits
    same = model(ids, past_key_values=DynamicCache(), use_cache=True).logits
print(json.dumps({"same": bool(torch.equal(out, same))}))
"""
)
MOE = """
import json, torch
from transformers import MixtralConfig, MixtralForCausalLM
torch.manual_seed(0)
config = MixtralConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, vocab_size=50,
                       num_local_experts=4, num_experts_per_tok=2)
model = MixtralForCausalLM(config).eval()
counts = []
for layer in model.model.layers:
    layer.mlp.gate.register_forward_hook(
        lambda _m, _a, out: counts.append(torch.bincount(out[-1].flatten(), minlength=4).tolist()))
with torch.no_grad():
    model(torch.randint(0, 50, (2, 9)))
print(json.dumps({"counts": counts}))
"""
VLLM = """
import json, torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request
init_none_hash(sha256)
spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=1, dtype=torch.float32)
config = KVCacheConfig(num_blocks=11, kv_cache_tensors=[],
                       kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
manager = KVCacheManager(config, max_model_len=8192, scheduler_block_size=16, hash_block_size=16)
truth = []
def admit(name, tokens):
    sampling = SamplingParams(max_tokens=17)
    sampling.update_from_generation_config({}, 100)
    request = Request(request_id=name, prompt_token_ids=tokens, sampling_params=sampling,
                      pooling_params=None, block_hasher=get_request_block_hasher(16, sha256))
    computed, hit, *_ = manager.get_computed_blocks(request)
    manager.allocate_slots(request, len(tokens) - hit, hit, computed)
    request.num_computed_tokens = len(tokens)
    shared = [block.block_id for block in computed.blocks[0]]
    truth.append([shared, manager.get_block_ids(name)[0]])
    return request
common = list(range(32))
a, b = admit("a", common + [7] * 20), admit("b", common + [9] * 4)
manager.allocate_slots(a, 16)
truth.append(manager.get_block_ids("a")[0])
manager.free(b)
c = admit("c", [3] * 40)
manager.free(a)
print(json.dumps(truth))
"""


def run(code: str, folder: Path, *arguments: str, **variables: str) -> tuple[Any, list[Marker]]:
    """Run a program with hooks; return what it printed last and what its sidecar holds."""
    program = folder / "program.py"
    program.write_text(code)
    words = [sys.executable, "-m", "tracekit", "run", "--nsys", "never", "-f", "-o", "out"]
    done = subprocess.run(
        [*words, "--", sys.executable, "-W", "ignore", str(program), *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        text=True,
        capture_output=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "off, since this version is not known" not in done.stderr
    path = folder / "out.markers.jsonl"
    lines = path.read_text().splitlines()[1:] if path.exists() else []
    found = [parse(json.loads(line)["text"]) for line in lines]
    return json.loads(done.stdout.splitlines()[-1]), [m for m in found if m is not None]


def of(found: list[Marker], event: str) -> list[dict[str, Any]]:
    return [dict(marker.values) for marker in found if marker.event == event]


@needs_transformers
def test_a_dynamic_cache_tells_the_chain_that_the_program_prints(tmp_path: Path) -> None:
    printed, found = run(DECODE.read_text(), tmp_path, "--steps", "3", "--hidden", "64")
    chain = sorted(map(tuple, printed["chain"]))
    keys = ("layer", "kind", "addr", "bytes", "seq_len")
    assert sorted(tuple(v[k] for k in keys) for v in of(found, "KV_REALLOC")) == chain
    assert len(of(found, "STEP")) == 4
    assert len(of(found, "LAYER")) == 16


@needs_transformers
def test_hooks_change_no_result(tmp_path: Path) -> None:
    hooked, found = run(GENERATE, tmp_path)
    assert len(of(found, "KV_REALLOC")) > 0
    program = [sys.executable, "-W", "ignore", str(tmp_path / "program.py")]
    plain = subprocess.run(program, text=True, capture_output=True, check=True).stdout
    assert json.loads(plain.splitlines()[-1]) == hooked
    assert hooked["near"]


@needs_transformers
def test_a_static_cache_stays_and_fills(tmp_path: Path) -> None:
    printed, found = run(STATIC, tmp_path)
    addresses = [[addr for addr, _ in layers] for layers in printed["held"]]
    assert addresses[0] == addresses[1] == addresses[2]
    keys = [v for v in of(found, "KV_BLOCK") if v["kind"] == "k"]
    allocated = [v["addr"] for v in keys if v["op"] == "alloc"]
    assert allocated == addresses[0]
    size = printed["held"][0][0][1]
    assert [v["used"] for v in keys if v["layer"] == 1] == [size * n // 16 for n in (7, 8, 9)]
    assert of(found, "KV_REALLOC") == []


@needs_transformers
def test_a_compiled_model_is_traced_as_without_hooks(tmp_path: Path) -> None:
    printed, found = run(COMPILED, tmp_path)
    assert printed == {"same": True}
    assert len(of(found, "KV_REALLOC")) == 6


@needs_transformers
def test_expert_counts_when_asked_for(tmp_path: Path) -> None:
    printed, found = run(MOE, tmp_path, TRACEKIT_MOE="1")
    routes = of(found, "MOE_ROUTE")
    assert [list(v["counts"]) for v in routes] == printed["counts"]
    assert [(v["layer"], v["step"], v["k"]) for v in routes] == [(0, 0, 2), (1, 0, 2)]
    _, silent = run(MOE, tmp_path)
    assert of(silent, "MOE_ROUTE") == []


@needs_vllm
def test_vllms_own_block_manager(tmp_path: Path) -> None:
    ((_, first), (shared, second), grown, (_, third)), found = run(VLLM, tmp_path)
    told = [(v["seq"], v["first"], v["op"], list(v["ids"])) for v in of(found, "KV_TABLE")]
    assert shared == first[:2]
    assert told == [
        (0, 0, "alloc", first),
        (1, 0, "share", shared),
        (1, 2, "alloc", second[2:]),
        (0, len(first), "alloc", grown[len(first) :]),
        (1, 0, "free", second),
        (2, 0, "alloc", third),
        (0, 0, "free", grown),
    ]
