from __future__ import annotations

import pytest
from tracekit_injectors import patching


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patching, "_off", set())


class Base:
    def work(self, number: int, *, twice: bool = False) -> int:
        """Do it."""
        return number * (2 if twice else 1)

    def fail(self) -> None:
        raise KeyError


def fresh_class() -> type:
    return type("Fresh", (Base,), {"work": lambda self, n: n + 1, "fail": Base.fail})


def test_after_sees_result_and_arguments_and_changes_nothing() -> None:
    owner, seen = fresh_class(), []
    assert patching.after(owner, "work", "test", lambda *call: seen.append(call))
    thing = owner()
    assert thing.work(4) == 5
    assert seen == [(5, (thing, 4), {})]
    assert Base().work(4, twice=True) == 8


def test_patching_twice_looks_once() -> None:
    owner, seen = fresh_class(), []
    for _ in range(2):
        patching.after(owner, "work", "test", lambda *call: seen.append(call))
    owner().work(1)
    assert len(seen) == 1


def test_a_function_that_is_not_there() -> None:
    assert not patching.after(fresh_class(), "absent", "test", print)
    assert not patching.around(None, "absent", "test", print, print)


def test_the_wrapped_function_looks_like_itself() -> None:
    owner = type("Fresh", (), {"work": Base.work})
    patching.after(owner, "work", "test", lambda *_: None)
    assert owner.work.__doc__ == "Do it."
    assert owner.work.__name__ == "work"


def test_a_surprise_switches_one_feature_off_with_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    owner, calls = fresh_class(), []

    def look(*_: object) -> None:
        calls.append(1)
        raise AttributeError

    patching.after(owner, "work", "block tables", look)
    assert [owner().work(n) for n in range(3)] == [1, 2, 3]
    assert calls == [1]
    said = capsys.readouterr().err
    assert (
        said
        == "tracekit: block tables: off, since this version is not known (AttributeError in look)\n"
    )


def test_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_QUIET", "1")
    owner = fresh_class()
    patching.after(owner, "work", "test", lambda *_: [][0])
    assert owner().work(1) == 2
    assert capsys.readouterr().err == ""


def test_exceptions_of_the_function_pass_and_ranges_end() -> None:
    owner, ended = fresh_class(), []
    patching.around(owner, "fail", "test", lambda *_: "token", ended.append)
    with pytest.raises(KeyError):
        owner().fail()
    assert ended == ["token"]


def test_a_beginning_that_declines_is_not_ended() -> None:
    owner, ended = fresh_class(), []
    patching.around(owner, "work", "test", lambda *_: None, ended.append)
    assert owner().work(1) == 2
    assert ended == []


def test_the_compilers_tracer_sees_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patching, "_compiling_function", lambda: lambda: True)
    owner, seen = fresh_class(), []
    patching.after(owner, "work", "test", lambda *call: seen.append(call))
    patching.around(owner, "fail", "test", lambda *call: seen.append(call), seen.append)
    assert owner().work(1) == 2
    with pytest.raises(KeyError):
        owner().fail()
    assert seen == []
