/* From a filled event to NVTX. */
#ifndef TRACEKIT_EMIT_H
#define TRACEKIT_EMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "markers.h"

/* Whether a tool listens. STARTING lasts while the first caller finds out: other threads then
 * keep the books but say nothing, and the first caller re-emits for them. OFF is final. */
enum tk_state { TK_FRESH, TK_STARTING, TK_OFF, TK_READY };
extern _Atomic int tk_state;

/* Per thread: nesting of wrapped calls (only the outermost is marked), NCCL group depth, and
 * whether the tool is running on behalf of a marker (what it calls is not the program's). */
struct tk_thread {
    int cuda, nccl, group, emitting;
};
extern _Thread_local struct tk_thread tk_thread;

void tk_start(void);

/* True if calls are worth looking at. Without a tool: one load and one branch. */
static inline bool tk_watching(void)
{
    int state = atomic_load_explicit(&tk_state, memory_order_acquire);
    if (__builtin_expect(state == TK_OFF, 1)) return false;
    if (__builtin_expect(state == TK_FRESH, 0)) tk_start();
    return atomic_load_explicit(&tk_state, memory_order_acquire) != TK_OFF && !tk_thread.emitting;
}

/* An event starts with every field unknown. */
#define TK_EVENT(type, variable, ...)     \
    struct type variable;                 \
    memset(&variable, 0xff, sizeof variable)

void tk_mark(enum tk_event event, const void *fields);
bool tk_push(enum tk_event event, const void *fields);
void tk_pop(void);
void tk_meta(bool again);
void tk_sync(void);
uint64_t tk_min_bytes(void);

#endif
