"""The NVTX client against a small tool written in C, as the protocol has it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
from tracekit_injectors import nvtx
from tracekit_injectors.nvtx import connect

TOOL = r"""
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef void (*Function)(void);
typedef const void *(*GetExport)(uint32_t);
typedef struct { uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color;
  int32_t payload_type, reserved; uint64_t payload; int32_t message_type; const char *message; } A;
typedef struct { size_t size; int (*table)(int, Function ***, unsigned *); } Callbacks;
typedef struct { size_t size; uint32_t version, r; void (*set)(uint32_t); } Version;
static char log_text[65536];
static void say(const char *a, int n, const char *b) {
  size_t used = strlen(log_text);
  snprintf(log_text + used, sizeof log_text - used, "%s %d %s\n", a, n, b);
}
static int mark(void *d, const A *a) {
  say("mark", (int)a->category * 100 + (int)(intptr_t)d, a->message);
  return 0;
}
static int push(void *d, const A *a) {
  int good = a->size == 48 && a->version == 3 && a->message_type == 1;
  say(good ? "push" : "bad", (int)a->category, a->message);
  return 0;
}
static int pop(void *d) { say("pop", (int)(intptr_t)d, ""); return 0; }
static void *create(const char *n) { say("domain", 0, n); return (void *)7; }
static void category(void *d, uint32_t c, const char *n) { say("category", (int)c, n); }
const char *told(void) { return log_text; }
#ifndef ANSWER
#define ANSWER 1
#endif
int InitializeInjectionNvtx2(GetExport get) {
  const Callbacks *c = get(1); const Version *v = get(3); Function **t; unsigned n;
  if (!c || !v || get(77) || v->version != 3) return 0;
  v->set(3);
  if (c->table(99, &t, &n) || !c->table(1, &t, &n) || n != 16) return 0;
  if (!c->table(5, &t, &n) || n != 16) return 0;
  *t[1] = (Function)mark; *t[4] = (Function)push; *t[5] = (Function)pop;
  *t[8] = (Function)category; *t[12] = (Function)create;
  return ANSWER;
}
"""


def test_marks_and_ranges_arrive(compiled: Callable[[str, str], Path]) -> None:
    path = compiled("libtool.so", TOOL)
    tool = connect("tracekit", {"kv": 1, "step": 4}, str(path))
    assert tool is not None
    tool.push(4, "STEP step=1")
    tool.mark(1, "KV_FREE layer=0")
    tool.mark(1, "not ascii: \u00e9")
    tool.pop()
    told = ctypes.CDLL(str(path)).told
    told.restype = ctypes.c_char_p
    assert told().decode().splitlines() == [
        "domain 0 tracekit",
        "category 1 kv",
        "category 4 step",
        "push 4 STEP step=1",
        "mark 107 KV_FREE layer=0",
        "mark 107 not ascii: ?",
        "pop 7 ",
    ]


def test_slot_numbers_are_those_of_the_public_headers() -> None:
    # NvtxCallbackIdCore2: a wrong number would call another function with these arguments.
    core2 = [
        *("DomainMarkEx", "DomainRangeStartEx", "DomainRangeEnd", "DomainRangePushEx"),
        *("DomainRangePop", "DomainResourceCreate", "DomainResourceDestroy"),
        *("DomainNameCategoryA", "DomainNameCategoryW", "DomainRegisterStringA"),
        *("DomainRegisterStringW", "DomainCreateA", "DomainCreateW", "DomainDestroy"),
        "Initialize",
    ]
    numbers = {name: number for number, name in enumerate(core2, start=1)}
    assert numbers["DomainMarkEx"] == nvtx._MARK_EX
    assert numbers["DomainRangePushEx"] == nvtx._PUSH_EX
    assert numbers["DomainRangePop"] == nvtx._POP
    assert numbers["DomainNameCategoryA"] == nvtx._NAME_CATEGORY
    assert numbers["DomainCreateA"] == nvtx._DOMAIN_CREATE
    assert {1: 16, 2: 9, 3: 15, 4: 7, 5: len(core2) + 1, 6: 7} == nvtx._SLOTS


def test_a_tool_that_declines_is_no_tool(compiled: Callable[[str, str], Path]) -> None:
    path = compiled("libdeclines.so", "#define ANSWER 0\n" + TOOL)
    assert connect("tracekit", {}, str(path)) is None


def test_a_tool_that_takes_no_marks_is_no_tool(compiled: Callable[[str, str], Path]) -> None:
    source = "int InitializeInjectionNvtx2(void *get) { return 1; }"
    assert connect("tracekit", {}, str(compiled("libdeaf.so", source))) is None


def test_a_library_without_the_entry_is_no_tool(compiled: Callable[[str, str], Path]) -> None:
    assert connect("tracekit", {}, str(compiled("libother.so", "int x;"))) is None


def test_no_library_is_no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    assert connect("tracekit", {}) is None
    assert connect("tracekit", {}, str(tmp_path / "gone.so")) is None
