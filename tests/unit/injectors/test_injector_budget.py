from __future__ import annotations

from tracekit_injectors.budget import Budget

WINDOW = 500_000_000
MARKER = 10_000


def window(budget: Budget, end: int, *, kv: int, layer: int = 0, step: int = WINDOW) -> str | None:
    for _ in range(kv // MARKER):
        budget.spend("kv", MARKER)
    for _ in range(layer // MARKER):
        budget.spend("step", MARKER)
    budget.step(step)
    return budget.overrun(end)


def test_worked_example_of_the_allowance() -> None:
    # 1 % of an 11.3 ms step at 2 us a marker is 56 markers.
    budget = Budget(0.01, 0)
    assert int(0.01 * 11_300 / 2) == 56
    steps = WINDOW // 11_300_000 + 1
    for _ in range(steps):
        budget.spend("kv", 56 * 2_000)
        budget.step(11_300_000)
    assert budget.overrun(WINDOW + 11_300_000) is None


def test_two_windows_in_a_row_move_the_dearest_category() -> None:
    budget = Budget(0.01, 0)
    assert window(budget, WINDOW, kv=WINDOW // 50) is None
    assert window(budget, 2 * WINDOW, kv=WINDOW // 50) == "kv"


def test_a_busy_machine_is_not_blamed_on_the_markers() -> None:
    budget = Budget(0.01, 0)
    for end in (WINDOW, 2 * WINDOW):
        budget.spend("kv", 90_000_000)
        assert budget.overrun(end) is None


def test_one_dear_window_is_forgiven() -> None:
    budget = Budget(0.01, 0)
    assert window(budget, WINDOW, kv=WINDOW // 50) is None
    assert window(budget, 2 * WINDOW, kv=0) is None
    assert window(budget, 3 * WINDOW, kv=WINDOW // 50) is None


def test_idle_time_between_steps_hides_nothing() -> None:
    budget = Budget(0.01, 0)
    busy = WINDOW // 100
    assert window(budget, WINDOW, kv=busy // 50, step=busy) is None
    assert window(budget, 2 * WINDOW, kv=busy // 50, step=busy) == "kv"


def test_steps_and_layers_never_move() -> None:
    budget = Budget(0.01, 0)
    assert window(budget, WINDOW, kv=0, layer=WINDOW // 10) is None
    assert window(budget, 2 * WINDOW, kv=0, layer=WINDOW // 10) is None


def test_before_the_window_ends_nothing_is_decided() -> None:
    budget = Budget(0.01, 0)
    assert window(budget, WINDOW - 1, kv=WINDOW) is None
    assert budget.window_end_ns == WINDOW
