/* CUDA allocations, frees and driver lookups. Only the outermost call is marked, so an allocation
 * of the runtime is not counted again as the driver's. */
#define _GNU_SOURCE
#include <errno.h>

#include "books.h"
#include "emit.h"
#include "interpose.h"

/* What a line of interpose.h says about a call. Addresses are all ones where there is none. */
struct tk_request {
    enum tk_source source;
    enum tk_space space;
    uint64_t addr, bytes, handle, stream;
    bool has_stream;
    bool elsewhere;   /* the current device says nothing about where this memory is */
    const void *prop; /* cuMemCreate's CUmemAllocationProp */
};

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))
#define OUT(pointer) (ok && (pointer) ? ADDRESS(*(pointer)) : TK_UNKNOWN_U64)
#define STREAM(pointer) .stream = ADDRESS(pointer), .has_stream = true

/* The device that the calling thread works on, or -1. */
static int32_t current_device(void)
{
    static _Atomic(tk_function) get;
    static _Atomic int tries;
    int (*ask)(int *) = (int (*)(int *))atomic_load_explicit(&get, memory_order_acquire);
    if (!ask) {
        if (atomic_fetch_add_explicit(&tries, 1, memory_order_relaxed) >= 8) return TK_UNKNOWN_I32;
        ask = (int (*)(int *))tk_find_loaded("libcuda.so", "cuCtxGetDevice");
        if (!ask) return TK_UNKNOWN_I32;
        atomic_store_explicit(&get, (tk_function)ask, memory_order_release);
    }
    int device = TK_UNKNOWN_I32;
    return ask(&device) == 0 ? device : TK_UNKNOWN_I32;
}

/* CUmemAllocationProp begins with type, requestedHandleTypes, location {type, id}. */
static int32_t located_device(const void *prop)
{
    enum { LOCATION_TYPE = 2, LOCATION_ID = 3, ON_DEVICE = 1 };
    const int *words = prop;
    return words && words[LOCATION_TYPE] == ON_DEVICE ? words[LOCATION_ID] : TK_UNKNOWN_I32;
}

static uint64_t or_unknown(uint64_t value) { return value ? value : TK_UNKNOWN_U64; }

static void allocated(const struct tk_request *call, int rc)
{
    struct tk_block block = {
        .addr = or_unknown(call->addr),
        .bytes = call->bytes,
        .handle = or_unknown(call->handle),
        .stream = call->has_stream ? call->stream : TK_UNKNOWN_U64,
        .space = call->space,
        .source = call->source,
        .device = TK_UNKNOWN_I32,
    };
    struct tk_block under;
    if (call->prop) block.device = located_device(call->prop);
    else if (call->space == TK_MAPPING && tk_block_find(TK_HANDLE, call->handle, &under))
        block.device = under.device;
    else if (rc == 0 && !call->elsewhere) block.device = current_device();
    uint64_t key = call->space == TK_HANDLE ? block.handle : block.addr;
    if (rc == 0 && key != TK_UNKNOWN_U64) tk_block_put(&block);
    TK_EVENT(tk_ALLOC, alloc);
    alloc.source = (uint8_t)block.source;
    alloc.addr = block.addr;
    alloc.bytes = block.bytes;
    alloc.handle = block.handle;
    alloc.stream = block.stream;
    alloc.device = block.device;
    alloc.rc = rc;
    tk_mark(TK_ALLOC, &alloc);
}

/* Takes the block out of the books before the call: afterwards another thread may already have
 * got the same address. An unmapping may cover several mappings in a row. */
static bool taken(const struct tk_request *call, struct tk_block *block)
{
    uint64_t key = call->space == TK_HANDLE ? call->handle : call->addr;
    if (!tk_block_take(call->space, key, block)) return false;
    if (call->space != TK_MAPPING) return true;
    uint64_t at = call->addr + block->bytes, end = call->addr + call->bytes;
    struct tk_block next;
    while (at < end && tk_block_take(TK_MAPPING, at, &next) && next.bytes) at += next.bytes;
    return true;
}

static void freed(const struct tk_request *call, int rc, bool known, const struct tk_block *block)
{
    if (rc != 0 && known) tk_block_put(block);
    TK_EVENT(tk_FREE, event);
    event.source = (uint8_t)call->source;
    event.addr = or_unknown(call->addr);
    event.bytes = call->bytes ? call->bytes : known ? block->bytes : TK_UNKNOWN_U64;
    event.handle = call->handle ? call->handle : known ? block->handle : TK_UNKNOWN_U64;
    event.stream = call->has_stream ? call->stream : TK_UNKNOWN_U64;
    event.device = known ? block->device : TK_UNKNOWN_I32;
    event.rc = rc;
    if (!known && !tk_blocks_lost()) event.known = 0;
    tk_mark(TK_FREE, &event);
}

#define X(symbol, origin, parameters, arguments, ...)                                             \
    TK_WRAPPERS(symbol, TK_NO_CUDA_SYMBOL, parameters, arguments)                                 \
    static int symbol##_on TK_PREPEND(symbol##_function *real, parameters)                        \
    {                                                                                             \
        if (!tk_watching()) return real arguments;                                                \
        TK_NEST(tk_thread.cuda);                                                                  \
        if (nested) return real arguments;                                                        \
        const int rc = real arguments, saved = errno;                                             \
        const bool ok = rc == 0;                                                                  \
        (void)ok;                                                                                 \
        const struct tk_request call = {__VA_ARGS__};                                             \
        allocated(&call, rc);                                                                     \
        errno = saved;                                                                            \
        return rc;                                                                                \
    }
TK_ALLOC_SYMBOLS(X)
#undef X

/* Freeing NULL does nothing and is not recorded. */
#define X(symbol, origin, parameters, arguments, ...)                                             \
    TK_WRAPPERS(symbol, TK_NO_CUDA_SYMBOL, parameters, arguments)                                 \
    static int symbol##_on TK_PREPEND(symbol##_function *real, parameters)                        \
    {                                                                                             \
        if (!tk_watching()) return real arguments;                                                \
        TK_NEST(tk_thread.cuda);                                                                  \
        const struct tk_request call = {__VA_ARGS__};                                             \
        if (nested || !(call.addr | call.handle)) return real arguments;                          \
        struct tk_block block;                                                                    \
        const bool known = taken(&call, &block);                                                  \
        const int rc = real arguments, saved = errno;                                             \
        freed(&call, rc, known, &block);                                                          \
        errno = saved;                                                                            \
        return rc;                                                                                \
    }
TK_FREE_SYMBOLS(X)
#undef X

/* A found function is handed out as our wrapper around it. */
#define X(symbol, origin, parameters, arguments, name, found, version, thread_stream)             \
    TK_WRAPPERS(symbol, TK_NO_CUDA_SYMBOL, parameters, arguments)                                 \
    static int symbol##_on TK_PREPEND(symbol##_function *real, parameters)                        \
    {                                                                                             \
        const int rc = real arguments, saved = errno;                                             \
        if (rc == 0 && name && found && *found)                                                   \
            *found = (void *)tk_bind_lookup(name, (tk_function)*found, version, thread_stream);   \
        errno = saved;                                                                            \
        return rc;                                                                                \
    }
TK_LOOKUP_SYMBOLS(X)
#undef X

/* A capture range begins here and knows nothing of what came before. */
#define X(symbol, ...)                                                                            \
    TK_WRAPPERS_VOID(symbol, TK_NO_CUDA_SYMBOL)                                                   \
    static int symbol##_on(symbol##_function *real)                                               \
    {                                                                                             \
        if (!tk_watching()) return real();                                                        \
        TK_NEST(tk_thread.cuda);                                                                  \
        const int rc = real(), saved = errno;                                                     \
        if (!nested && atomic_load(&tk_state) == TK_READY) tk_retell();                           \
        errno = saved;                                                                            \
        return rc;                                                                                \
    }
TK_PROFILER_SYMBOLS(X)
#undef X
