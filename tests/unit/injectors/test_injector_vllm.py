"""The vLLM hooks on stand-ins with the signatures of vLLM 0.33."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tracekit_injectors import vllm_plugin, vllm_scheduler, vllm_worker

CONFIG = SimpleNamespace(instance_id="ab12", parallel_config=SimpleNamespace(data_parallel_rank=1))


class Block:
    def __init__(self, number: int) -> None:
        self.block_id = number
        self.is_null = number == 0


NULL = Block(0)


class Blocks:
    def __init__(self, *rows: list[Block]) -> None:
        self.blocks = rows


@pytest.fixture
def manager_class(monkeypatch: pytest.MonkeyPatch) -> type:
    monkeypatch.setattr(vllm_scheduler, "_sequences", iter(range(100)))

    class KVCacheManager:
        """Hands out the blocks that a test put up."""

        def __init__(self, groups: int = 1) -> None:
            self.table: dict[str, tuple[list[Block], ...]] = {}
            self.groups = groups
            self.coordinator = SimpleNamespace(
                get_blocks=lambda name: self.table.get(name, tuple([] for _ in range(groups)))
            )
            self.coming: list[list[int]] | None = None

        def allocate_slots(
            self,
            request: Any,
            num_new_tokens: int,
            num_new_computed_tokens: int = 0,
            new_computed_blocks: Blocks | None = None,
            num_lookahead_tokens: int = 0,
        ) -> Blocks | None:
            if self.coming is None:
                return None
            rows = self.table.setdefault(request.request_id, tuple([] for _ in range(self.groups)))
            if new_computed_blocks is not None:
                for row, reused in zip(rows, new_computed_blocks.blocks, strict=True):
                    row.extend(reused)
            fresh = [[Block(number) for number in row] for row in self.coming]
            for row, new in zip(rows, fresh, strict=True):
                row.extend(new)
            return Blocks(*fresh)

        def free(self, request: Any) -> None:
            self.table.pop(request.request_id, None)

        def pop_blocks_for_free(self, request: Any) -> list[Block]:
            return [b for row in self.table.pop(request.request_id) for b in row]

    module = ModuleType("vllm.v1.core.kv_cache_manager")
    module.KVCacheManager = KVCacheManager
    vllm_scheduler.attach_manager(module)
    return KVCacheManager


def request(name: str) -> SimpleNamespace:
    return SimpleNamespace(request_id=name)


def grow(manager: Any, name: str, *ids: int, reused: Blocks | None = None) -> Any:
    manager.coming = [list(ids)]
    return manager.allocate_slots(request(name), 16, new_computed_blocks=reused)


def test_a_request_from_first_to_last_block(manager_class, tool) -> None:
    manager = manager_class()
    assert grow(manager, "a", 5, 6, 7).blocks[0][0].block_id == 5
    grow(manager, "a")
    grow(manager, "a", 20)
    grow(manager, "b", 9)
    manager.free(request("a"))
    manager.free(request("a"))
    assert tool.texts("KV_TABLE") == [
        "KV_TABLE seq=0 first=0 op=alloc ids=5,6,7",
        "KV_TABLE seq=0 first=3 op=alloc ids=20",
        "KV_TABLE seq=1 first=0 op=alloc ids=9",
        "KV_TABLE seq=0 first=0 op=free ids=5,6,7,20",
    ]


def test_a_shared_prefix_is_shared_not_allocated(manager_class, tool) -> None:
    manager = manager_class()
    grow(manager, "a", 1, 2)
    grow(manager, "b", 3, reused=Blocks(manager.table["a"][0][:2]))
    assert tool.texts("KV_TABLE")[1:] == [
        "KV_TABLE seq=1 first=0 op=share ids=1,2",
        "KV_TABLE seq=1 first=2 op=alloc ids=3",
    ]


def test_a_preempted_request_frees_and_starts_anew(manager_class, tool) -> None:
    manager = manager_class()
    grow(manager, "a", 1, 2)
    manager.pop_blocks_for_free(request("a"))
    grow(manager, "a", 8)
    assert tool.texts("KV_TABLE")[1:] == [
        "KV_TABLE seq=0 first=0 op=free ids=1,2",
        "KV_TABLE seq=1 first=0 op=alloc ids=8",
    ]


def test_no_room_changes_nothing(manager_class, tool) -> None:
    manager = manager_class()
    assert manager.allocate_slots(request("a"), 16) is None
    assert tool.texts("KV_TABLE") == []


def test_a_sliding_window_leaves_blocks_behind(manager_class, tool) -> None:
    manager = manager_class()
    grow(manager, "a", 1, 2, 3)
    manager.table["a"][0][:2] = [NULL, NULL]
    grow(manager, "a", 4)
    manager.free(request("a"))
    assert tool.texts("KV_TABLE")[1:] == [
        "KV_TABLE seq=0 first=0 op=free ids=1,2",
        "KV_TABLE seq=0 first=3 op=alloc ids=4",
        "KV_TABLE seq=0 first=2 op=free ids=3,4",
    ]


def test_null_blocks_are_no_blocks(manager_class, tool) -> None:
    grow(manager_class(), "a", 0, 0, 3, 0, 4)
    assert tool.texts("KV_TABLE") == [
        "KV_TABLE seq=0 first=2 op=alloc ids=3",
        "KV_TABLE seq=0 first=4 op=alloc ids=4",
    ]


def test_groups_are_told_one_by_one(manager_class, tool) -> None:
    manager = manager_class(groups=2)
    manager.coming = [[1, 2], [9]]
    manager.allocate_slots(request("a"), 16)
    assert tool.texts("KV_TABLE") == [
        "KV_TABLE seq=0 first=0 op=alloc ids=1,2 group=0",
        "KV_TABLE seq=0 first=0 op=alloc ids=9 group=1",
    ]


def test_long_tables_are_told_in_pieces(manager_class, tool) -> None:
    grow(manager_class(), "a", *range(1, 1101))
    told = [t.split() for t in tool.texts("KV_TABLE")]
    assert [(t[2], t[4].count(",") + 1) for t in told] == [
        ("first=0", 512),
        ("first=512", 512),
        ("first=1024", 76),
    ]


def test_the_engine_joins_scheduler_and_workers(manager_class, tool) -> None:
    class Scheduler:
        def __init__(self, vllm_config: Any) -> None:
            self.vllm_config = vllm_config
            self.kv_cache_manager = manager_class()

    module = ModuleType("vllm.v1.core.sched.scheduler")
    module.Scheduler = Scheduler
    vllm_scheduler.attach_scheduler(module)
    grow(Scheduler(CONFIG).kv_cache_manager, "a", 4)
    assert tool.texts("KV_TABLE") == ["KV_TABLE seq=0 first=0 op=alloc ids=4 engine=ab12-1"]
    assert vllm_worker.engine_name(SimpleNamespace()) is None


def test_another_version_costs_one_line_and_no_request(
    manager_class, tool, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = manager_class()
    del manager.coordinator
    assert grow(manager, "a", 1) is not None
    assert grow(manager, "a", 2) is not None
    assert capsys.readouterr().err.count("vLLM block-table markers: off") == 1


@pytest.fixture
def runner_class(monkeypatch: pytest.MonkeyPatch) -> type:
    monkeypatch.setattr(vllm_worker, "_steps", iter(range(100)))

    class GPUModelRunner:
        def __init__(self, caches: dict[str, Any]) -> None:
            layers = {name: SimpleNamespace(kv_cache=cache) for name, cache in caches.items()}
            self.vllm_config = SimpleNamespace(
                **vars(CONFIG), compilation_config=SimpleNamespace(static_forward_context=layers)
            )

        def initialize_kv_cache(self, kv_cache_config: Any, is_profiling: bool = False) -> None:
            self.kv_cache_config = kv_cache_config

        def execute_model(self, scheduler_output: Any, dummy_run: bool = False) -> str:
            return "output"

    module = ModuleType("vllm.v1.worker.gpu_model_runner")
    module.GPUModelRunner = GPUModelRunner
    vllm_worker.attach(module)
    return GPUModelRunner


def cache_config(*names: str, blocks: int = 10) -> SimpleNamespace:
    spec = SimpleNamespace(block_size=16, num_kv_heads=8, head_size=128)
    group = SimpleNamespace(layer_names=list(names), kv_cache_spec=spec)
    return SimpleNamespace(num_blocks=blocks, kv_cache_groups=[group])


def test_pools_from_the_tensors_own_strides(runner_class, tensor, tool) -> None:
    name = "model.layers.3.self_attn.attn"
    runner = runner_class({name: tensor((2, 10, 16, 8, 128), 0x100000)})
    runner.initialize_kv_cache(cache_config(name, "model.layers.4.self_attn.attn"))
    tail = "blocks=10 block_bytes=32768 block_tokens=16 token_pitch=2048 row_bytes=256"
    tail += " head_pitch=256 device=0 engine=ab12-1"
    assert tool.texts("KV_POOL") == [
        f"KV_POOL layer=3 kind=k addr=0x100000 bytes=327680 stride=32768 {tail}",
        f"KV_POOL layer=3 kind=v addr=0x150000 bytes=327680 stride=32768 {tail}",
    ]


def test_one_tensor_a_virtual_engine_as_older_versions_have_it(runner_class, tensor, tool) -> None:
    runner = runner_class({"layers.0.attn": [tensor((10, 16, 8, 128), 0x1000)]})
    runner.initialize_kv_cache(cache_config("layers.0.attn"))
    assert [t.split()[1:4] for t in tool.texts("KV_POOL")] == [
        ["layer=0", "kind=kv", "addr=0x1000"]
    ]


def test_a_profiling_run_tells_nothing(runner_class, tensor, tool) -> None:
    runner = runner_class({"layers.0.attn": tensor((10, 16, 8, 128), 0x1000)})
    runner.initialize_kv_cache(cache_config("layers.0.attn"), is_profiling=True)
    assert tool.texts("KV_POOL") == []


@pytest.mark.parametrize(
    ("scheduled", "phase"),
    [({"a": 1, "b": 1}, "decode"), ({"a": 7}, "prefill"), ({"a": 1, "b": 9}, "mixed")],
)
def test_steps_with_their_phase(runner_class, tool, scheduled: dict[str, int], phase: str) -> None:
    output = SimpleNamespace(
        num_scheduled_tokens=scheduled, total_num_scheduled_tokens=sum(scheduled.values())
    )
    runner = runner_class({})
    assert runner.execute_model(output) == "output"
    assert runner.execute_model(output, dummy_run=True) == "output"
    wanted = f"STEP step=0 phase={phase} n_seq={len(scheduled)} n_tok={sum(scheduled.values())}"
    assert tool.texts("STEP") == [wanted]
    assert tool.events[-1] == ("pop", "")


def test_an_empty_step_is_no_step(runner_class, tool) -> None:
    output = SimpleNamespace(num_scheduled_tokens={}, total_num_scheduled_tokens=0)
    runner_class({}).execute_model(output)
    assert tool.texts("STEP") == []


@pytest.mark.parametrize("variable", ["NVTX_INJECTION64_PATH", "TRACEKIT_SIDECAR", None])
def test_the_plugin_is_inert_unless_somebody_listens(
    variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tracekit_injectors.install as install_module

    calls: list[int] = []
    monkeypatch.setattr(install_module, "install", lambda: calls.append(1))
    for name in ("NVTX_INJECTION64_PATH", "TRACEKIT_SIDECAR"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "/some/where")
    vllm_plugin.register()
    vllm_plugin.register()
    assert len(calls) == (2 if variable else 0)
