/* Every wrapped symbol, one line each.
 *
 * A line is X(symbol, ORIGIN, parameters, arguments, what to emit...). From it come the exported
 * wrapper, further copies of it for other libraries that define the same symbol (lanes, see
 * resolve.c), its place in the tables, and the marker. The few prototypes are declared here: no
 * CUDA toolkit is needed to build.
 */
#ifndef TRACEKIT_INTERPOSE_H
#define TRACEKIT_INTERPOSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TK_EXPORT __attribute__((visibility("default")))

/* ---- types that pass by value; everything else is a pointer or a number ---- */

struct tk_extent { /* cudaExtent */
    size_t width, height, depth;
};
struct tk_pitched { /* cudaPitchedPtr */
    void *ptr;
    size_t pitch, width, height;
};
struct tk_unique_id { /* ncclUniqueId */
    char internal[128];
};

/* ---- origins ---- */

/* How a symbol is known to the driver's own lookup: the name to ask for, the first CUDA version
 * whose answer has this signature, and which default stream it goes with. */
enum tk_streams { TK_ANY_STREAM, TK_LEGACY_STREAM, TK_THREAD_STREAM };
enum tk_family { TK_RUNTIME_LIBRARY, TK_DRIVER_LIBRARY, TK_NCCL_LIBRARY };
struct tk_origin {
    enum tk_family family;
    const char *lookup;
    int since;
    enum tk_streams streams;
};
#define RUNTIME {TK_RUNTIME_LIBRARY, NULL, 0, TK_ANY_STREAM}
#define NCCL {TK_NCCL_LIBRARY, NULL, 0, TK_ANY_STREAM}
#define DRIVER(lookup, since) {TK_DRIVER_LIBRARY, #lookup, since, TK_ANY_STREAM}
#define DRIVER_LEGACY(lookup, since) {TK_DRIVER_LIBRARY, #lookup, since, TK_LEGACY_STREAM}
#define DRIVER_THREAD(lookup, since) {TK_DRIVER_LIBRARY, #lookup, since, TK_THREAD_STREAM}

/* ---- allocations: fields of struct tk_request, see cuda_alloc.c ---- */

#define TK_ALLOC_SYMBOLS(X)                                                                        \
    X(cudaMalloc, RUNTIME, (void **ptr, size_t size), (ptr, size),                                 \
      .source = TK_SOURCE_cudaMalloc, .addr = OUT(ptr), .bytes = size)                             \
    X(cudaMallocAsync, RUNTIME, (void **ptr, size_t size, void *stream), (ptr, size, stream),      \
      .source = TK_SOURCE_cudaMallocAsync, .addr = OUT(ptr), .bytes = size, STREAM(stream))        \
    X(cudaMallocAsync_ptsz, RUNTIME, (void **ptr, size_t size, void *stream), (ptr, size, stream), \
      .source = TK_SOURCE_cudaMallocAsync, .addr = OUT(ptr), .bytes = size, STREAM(stream))        \
    X(cudaMallocFromPoolAsync, RUNTIME, (void **ptr, size_t size, void *pool, void *stream),       \
      (ptr, size, pool, stream), .source = TK_SOURCE_cudaMallocFromPoolAsync, .addr = OUT(ptr),    \
      .bytes = size, STREAM(stream), .elsewhere = true)                                            \
    X(cudaMallocFromPoolAsync_ptsz, RUNTIME, (void **ptr, size_t size, void *pool, void *stream),  \
      (ptr, size, pool, stream), .source = TK_SOURCE_cudaMallocFromPoolAsync, .addr = OUT(ptr),    \
      .bytes = size, STREAM(stream), .elsewhere = true)                                            \
    X(cudaMallocManaged, RUNTIME, (void **ptr, size_t size, unsigned flags), (ptr, size, flags),   \
      .source = TK_SOURCE_cudaMallocManaged, .addr = OUT(ptr), .bytes = size, .elsewhere = true)   \
    X(cudaMallocPitch, RUNTIME, (void **ptr, size_t *pitch, size_t width, size_t height),          \
      (ptr, pitch, width, height), .source = TK_SOURCE_cudaMallocPitch, .addr = OUT(ptr),          \
      .bytes = (ok && pitch ? *pitch : width) * height)                                            \
    X(cudaMalloc3D, RUNTIME, (struct tk_pitched *ptr, struct tk_extent extent), (ptr, extent),     \
      .source = TK_SOURCE_cudaMalloc3D, .addr = ok && ptr ? ADDRESS(ptr->ptr) : TK_UNKNOWN_U64,    \
      .bytes = (ok && ptr ? ptr->pitch : extent.width) * extent.height * extent.depth)             \
    X(cudaMallocHost, RUNTIME, (void **ptr, size_t size), (ptr, size),                             \
      .source = TK_SOURCE_cudaMallocHost, .addr = OUT(ptr), .bytes = size, .elsewhere = true)      \
    X(cudaHostAlloc, RUNTIME, (void **ptr, size_t size, unsigned flags), (ptr, size, flags),       \
      .source = TK_SOURCE_cudaHostAlloc, .addr = OUT(ptr), .bytes = size, .elsewhere = true)       \
    X(cuMemAlloc_v2, DRIVER(cuMemAlloc, 3020), (uint64_t *ptr, size_t size), (ptr, size),          \
      .source = TK_SOURCE_cuMemAlloc, .addr = OUT(ptr), .bytes = size)                             \
    X(cuMemAllocAsync, DRIVER_LEGACY(cuMemAllocAsync, 11020),                                      \
      (uint64_t *ptr, size_t size, void *stream), (ptr, size, stream),                             \
      .source = TK_SOURCE_cuMemAllocAsync, .addr = OUT(ptr), .bytes = size, STREAM(stream))        \
    X(cuMemAllocAsync_ptsz, DRIVER_THREAD(cuMemAllocAsync, 11020),                                 \
      (uint64_t *ptr, size_t size, void *stream), (ptr, size, stream),                             \
      .source = TK_SOURCE_cuMemAllocAsync, .addr = OUT(ptr), .bytes = size, STREAM(stream))        \
    X(cuMemAllocFromPoolAsync, DRIVER_LEGACY(cuMemAllocFromPoolAsync, 11020),                      \
      (uint64_t *ptr, size_t size, void *pool, void *stream), (ptr, size, pool, stream),           \
      .source = TK_SOURCE_cuMemAllocFromPoolAsync, .addr = OUT(ptr), .bytes = size,                \
      STREAM(stream), .elsewhere = true)                                                           \
    X(cuMemAllocFromPoolAsync_ptsz, DRIVER_THREAD(cuMemAllocFromPoolAsync, 11020),                 \
      (uint64_t *ptr, size_t size, void *pool, void *stream), (ptr, size, pool, stream),           \
      .source = TK_SOURCE_cuMemAllocFromPoolAsync, .addr = OUT(ptr), .bytes = size,                \
      STREAM(stream), .elsewhere = true)                                                           \
    X(cuMemAllocManaged, DRIVER(cuMemAllocManaged, 6000),                                          \
      (uint64_t *ptr, size_t size, unsigned flags), (ptr, size, flags),                            \
      .source = TK_SOURCE_cuMemAllocManaged, .addr = OUT(ptr), .bytes = size, .elsewhere = true)   \
    X(cuMemAllocPitch_v2, DRIVER(cuMemAllocPitch, 3020),                                           \
      (uint64_t *ptr, size_t *pitch, size_t width, size_t height, unsigned element),               \
      (ptr, pitch, width, height, element), .source = TK_SOURCE_cuMemAllocPitch,                   \
      .addr = OUT(ptr), .bytes = (ok && pitch ? *pitch : width) * height)                          \
    X(cuMemAllocHost_v2, DRIVER(cuMemAllocHost, 3020), (void **ptr, size_t size), (ptr, size),     \
      .source = TK_SOURCE_cuMemAllocHost, .addr = OUT(ptr), .bytes = size, .elsewhere = true)      \
    X(cuMemHostAlloc, DRIVER(cuMemHostAlloc, 2020), (void **ptr, size_t size, unsigned flags),     \
      (ptr, size, flags), .source = TK_SOURCE_cuMemHostAlloc, .addr = OUT(ptr), .bytes = size,     \
      .elsewhere = true)                                                                           \
    X(cuMemCreate, DRIVER(cuMemCreate, 10020),                                                     \
      (uint64_t *handle, size_t size, const void *prop, uint64_t flags),                           \
      (handle, size, prop, flags), .source = TK_SOURCE_cuMemCreate, .space = TK_HANDLE,            \
      .handle = OUT(handle), .bytes = size, .prop = prop, .elsewhere = true)                       \
    X(cuMemMap, DRIVER(cuMemMap, 10020),                                                           \
      (uint64_t ptr, size_t size, size_t offset, uint64_t handle, uint64_t flags),                 \
      (ptr, size, offset, handle, flags), .source = TK_SOURCE_cuMemMap, .space = TK_MAPPING,       \
      .addr = ptr, .bytes = size, .handle = handle, .elsewhere = true)                             \
    X(cuMemAddressReserve, DRIVER(cuMemAddressReserve, 10020),                                     \
      (uint64_t *ptr, size_t size, size_t alignment, uint64_t addr, uint64_t flags),               \
      (ptr, size, alignment, addr, flags), .source = TK_SOURCE_cuMemAddressReserve,                \
      .space = TK_RESERVATION, .addr = OUT(ptr), .bytes = size, .elsewhere = true)

#define TK_FREE_SYMBOLS(X)                                                                         \
    X(cudaFree, RUNTIME, (void *ptr), (ptr), .source = TK_SOURCE_cudaFree, .addr = ADDRESS(ptr))   \
    X(cudaFreeAsync, RUNTIME, (void *ptr, void *stream), (ptr, stream),                            \
      .source = TK_SOURCE_cudaFreeAsync, .addr = ADDRESS(ptr), STREAM(stream))                     \
    X(cudaFreeAsync_ptsz, RUNTIME, (void *ptr, void *stream), (ptr, stream),                       \
      .source = TK_SOURCE_cudaFreeAsync, .addr = ADDRESS(ptr), STREAM(stream))                     \
    X(cudaFreeHost, RUNTIME, (void *ptr), (ptr),                                                   \
      .source = TK_SOURCE_cudaFreeHost, .addr = ADDRESS(ptr))                                      \
    X(cuMemFree_v2, DRIVER(cuMemFree, 3020), (uint64_t ptr), (ptr),                                \
      .source = TK_SOURCE_cuMemFree, .addr = ptr)                                                  \
    X(cuMemFreeAsync, DRIVER_LEGACY(cuMemFreeAsync, 11020), (uint64_t ptr, void *stream),          \
      (ptr, stream), .source = TK_SOURCE_cuMemFreeAsync, .addr = ptr, STREAM(stream))              \
    X(cuMemFreeAsync_ptsz, DRIVER_THREAD(cuMemFreeAsync, 11020), (uint64_t ptr, void *stream),     \
      (ptr, stream), .source = TK_SOURCE_cuMemFreeAsync, .addr = ptr, STREAM(stream))              \
    X(cuMemFreeHost, DRIVER(cuMemFreeHost, 2000), (void *ptr), (ptr),                              \
      .source = TK_SOURCE_cuMemFreeHost, .addr = ADDRESS(ptr))                                     \
    X(cuMemRelease, DRIVER(cuMemRelease, 10020), (uint64_t handle), (handle),                      \
      .source = TK_SOURCE_cuMemRelease, .space = TK_HANDLE, .handle = handle)                      \
    X(cuMemUnmap, DRIVER(cuMemUnmap, 10020), (uint64_t ptr, size_t size), (ptr, size),             \
      .source = TK_SOURCE_cuMemUnmap, .space = TK_MAPPING, .addr = ptr, .bytes = size)             \
    X(cuMemAddressFree, DRIVER(cuMemAddressFree, 10020), (uint64_t ptr, size_t size), (ptr, size), \
      .source = TK_SOURCE_cuMemAddressFree, .space = TK_RESERVATION, .addr = ptr, .bytes = size)

/* ---- the driver's lookups: asked name, answer, CUDA version (0 unknown), default stream ---- */

#define TK_LOOKUP_SYMBOLS(X)                                                                       \
    X(cuGetProcAddress, DRIVER(cuGetProcAddress, 11030),                                           \
      (const char *symbol, void **found, int version, uint64_t flags),                             \
      (symbol, found, version, flags), symbol, found, version, (flags & 2) != 0)                   \
    X(cuGetProcAddress_v2, DRIVER(cuGetProcAddress, 12000),                                        \
      (const char *symbol, void **found, int version, uint64_t flags, void *status),               \
      (symbol, found, version, flags, status), symbol, found, version, (flags & 2) != 0)           \
    X(cudaGetDriverEntryPoint, RUNTIME,                                                            \
      (const char *symbol, void **found, uint64_t flags, void *status),                            \
      (symbol, found, flags, status), symbol, found, 0, (flags & 2) != 0)                          \
    X(cudaGetDriverEntryPoint_ptsz, RUNTIME,                                                       \
      (const char *symbol, void **found, uint64_t flags, void *status),                            \
      (symbol, found, flags, status), symbol, found, 0, (flags & 1) == 0)                          \
    X(cudaGetDriverEntryPointByVersion, RUNTIME,                                                   \
      (const char *symbol, void **found, unsigned version, uint64_t flags, void *status),          \
      (symbol, found, version, flags, status), symbol, found, (int)version, (flags & 2) != 0)      \
    X(cudaGetDriverEntryPointByVersion_ptsz, RUNTIME,                                              \
      (const char *symbol, void **found, unsigned version, uint64_t flags, void *status),          \
      (symbol, found, version, flags, status), symbol, found, (int)version, (flags & 1) == 0)

/* ---- recording starts ---- */

#define TK_PROFILER_SYMBOLS(X)                \
    X(cudaProfilerStart, RUNTIME, (void), ()) \
    X(cuProfilerStart, DRIVER(cuProfilerStart, 4000), (void), ())

/* ---- NCCL: fields of struct tk_collective and struct tk_membership, see nccl_calls.c ---- */

#define TK_COLL_SYMBOLS(X)                                                                         \
    X(ncclAllReduce, NCCL,                                                                         \
      (const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream),   \
      (send, recv, count, dtype, op, comm, stream), .op = TK_OP_AllReduce, .redop = op,            \
      .root = -1, .peer = -1)                                                                      \
    X(ncclAllGather, NCCL,                                                                         \
      (const void *send, void *recv, size_t count, int dtype, void *comm, void *stream),           \
      (send, recv, count, dtype, comm, stream), .op = TK_OP_AllGather, .redop = -1, .root = -1,    \
      .peer = -1, .times_ranks = true)                                                             \
    X(ncclReduceScatter, NCCL,                                                                     \
      (const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream),   \
      (send, recv, count, dtype, op, comm, stream), .op = TK_OP_ReduceScatter, .redop = op,        \
      .root = -1, .peer = -1, .times_ranks = true)                                                 \
    X(ncclBroadcast, NCCL,                                                                         \
      (const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream), \
      (send, recv, count, dtype, root, comm, stream), .op = TK_OP_Broadcast, .redop = -1,          \
      .root = root, .peer = -1)                                                                    \
    X(ncclBcast, NCCL,                                                                             \
      (void *buffer, size_t count, int dtype, int root, void *comm, void *stream),                 \
      (buffer, count, dtype, root, comm, stream), .op = TK_OP_Bcast, .redop = -1, .root = root,    \
      .peer = -1)                                                                                  \
    X(ncclReduce, NCCL,                                                                            \
      (const void *send, void *recv, size_t count, int dtype, int op, int root, void *comm,        \
       void *stream),                                                                              \
      (send, recv, count, dtype, op, root, comm, stream), .op = TK_OP_Reduce, .redop = op,         \
      .root = root, .peer = -1)                                                                    \
    X(ncclAlltoAll, NCCL,                                                                          \
      (const void *send, void *recv, size_t count, int dtype, void *comm, void *stream),           \
      (send, recv, count, dtype, comm, stream), .op = TK_OP_AlltoAll, .redop = -1, .root = -1,     \
      .peer = -1, .times_ranks = true)                                                             \
    X(ncclGather, NCCL,                                                                            \
      (const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream), \
      (send, recv, count, dtype, root, comm, stream), .op = TK_OP_Gather, .redop = -1,             \
      .root = root, .peer = -1, .times_ranks = true)                                               \
    X(ncclScatter, NCCL,                                                                           \
      (const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream), \
      (send, recv, count, dtype, root, comm, stream), .op = TK_OP_Scatter, .redop = -1,            \
      .root = root, .peer = -1, .times_ranks = true)                                               \
    X(ncclSend, NCCL,                                                                              \
      (const void *send, size_t count, int dtype, int peer, void *comm, void *stream),             \
      (send, count, dtype, peer, comm, stream), .op = TK_OP_Send, .redop = -1, .root = -1,         \
      .peer = peer, .p2p = true)                                                                   \
    X(ncclRecv, NCCL, (void *recv, size_t count, int dtype, int peer, void *comm, void *stream),   \
      (recv, count, dtype, peer, comm, stream), .op = TK_OP_Recv, .redop = -1, .root = -1,         \
      .peer = peer, .p2p = true)

#define TK_GROUP_SYMBOLS(X)                          \
    X(ncclGroupStart, NCCL, (void), (), TK_GROUP_start) \
    X(ncclGroupEnd, NCCL, (void), (), TK_GROUP_end)

#define TK_COMM_SYMBOLS(X)                                                                         \
    X(ncclCommInitRank, NCCL, (void **comm, int nranks, struct tk_unique_id id, int rank),         \
      (comm, nranks, id, rank), .event = TK_COMM_init, .made = comm, .count = 1,                   \
      .nranks = nranks, .rank = rank)                                                              \
    X(ncclCommInitRankConfig, NCCL,                                                                \
      (void **comm, int nranks, struct tk_unique_id id, int rank, void *config),                   \
      (comm, nranks, id, rank, config), .event = TK_COMM_init, .made = comm, .count = 1,           \
      .nranks = nranks, .rank = rank)                                                              \
    X(ncclCommInitAll, NCCL, (void **comms, int count, const int *devices),                        \
      (comms, count, devices), .event = TK_COMM_init, .made = comms, .count = count,               \
      .nranks = count, .all = true, .devices = devices)                                            \
    X(ncclCommSplit, NCCL, (void *comm, int color, int key, void **made, void *config),            \
      (comm, color, key, made, config), .event = TK_COMM_split, .made = made, .count = 1,          \
      .nranks = -1, .rank = -1)                                                                    \
    X(ncclCommFinalize, NCCL, (void *comm), (comm), .event = TK_COMM_finalize, .comm = comm)       \
    X(ncclCommDestroy, NCCL, (void *comm), (comm), .event = TK_COMM_destroy, .comm = comm)         \
    X(ncclCommAbort, NCCL, (void *comm), (comm), .event = TK_COMM_abort, .comm = comm)

#define TK_ALL_SYMBOLS(X)  \
    TK_ALLOC_SYMBOLS(X)    \
    TK_FREE_SYMBOLS(X)     \
    TK_LOOKUP_SYMBOLS(X)   \
    TK_PROFILER_SYMBOLS(X) \
    TK_COLL_SYMBOLS(X)     \
    TK_GROUP_SYMBOLS(X)    \
    TK_COMM_SYMBOLS(X)

/* ---- what a line becomes ---- */

enum tk_symbol {
#define X(symbol, ...) TK_SYMBOL_##symbol,
    TK_ALL_SYMBOLS(X)
#undef X
    TK_SYMBOL_COUNT
};

/* What a missing real function answers: the family's own "no such symbol". */
enum { TK_NO_CUDA_SYMBOL = 302, TK_NO_NCCL_SYMBOL = 2 };

enum { TK_LANES = 4, TK_SITES = 32 };
typedef void (*tk_function)(void);
extern _Atomic(tk_function) tk_real[TK_SYMBOL_COUNT][TK_LANES]; /* [0] is not used: see tk_site */

/* A place in the program that calls the exported wrapper, and the real function for it. */
struct tk_site {
    void *_Atomic caller;
    _Atomic(tk_function) real;
};
extern struct tk_site tk_sites[TK_SYMBOL_COUNT][TK_SITES];

/* The wrapper of each symbol for each lane; lane 0 is the exported one. */
#define X(symbol, ...) extern const tk_function tk_wrappers_##symbol[TK_LANES];
TK_ALL_SYMBOLS(X)
#undef X

tk_function tk_find_real(enum tk_symbol symbol, void *caller);
bool tk_exists(enum tk_symbol symbol, void *caller);
bool tk_is_exported(enum tk_symbol symbol, tk_function function);
tk_function tk_find_loaded(const char *library, const char *name);
tk_function tk_find_beside(tk_function function, const char *name);
tk_function tk_bind(enum tk_symbol symbol, tk_function real);
tk_function tk_bind_lookup(const char *name, tk_function found, int version, bool thread_stream);
int tk_symbol_named(const char *name);
int tk_dlsym_hooked(void);

static inline tk_function tk_lane_real(enum tk_symbol symbol, int lane)
{
    return atomic_load_explicit(&tk_real[symbol][lane], memory_order_acquire);
}

static inline struct tk_site *tk_first_site(enum tk_symbol symbol, void *caller)
{
    const uint64_t spread = (uint64_t)(uintptr_t)caller * UINT64_C(0x9E3779B97F4A7C15);
    return &tk_sites[symbol][(spread >> 40) % TK_SITES];
}

static inline struct tk_site *tk_next_site(enum tk_symbol symbol, struct tk_site *site)
{
    return site + 1 < tk_sites[symbol] + TK_SITES ? site + 1 : tk_sites[symbol];
}

/* The real function for a caller of the exported wrapper. Sites are filled once, never changed. */
static inline tk_function tk_site_real(enum tk_symbol symbol, void *caller)
{
    struct tk_site *site = tk_first_site(symbol, caller);
    for (int i = 0; i < TK_SITES; i++, site = tk_next_site(symbol, site)) {
        void *seen = atomic_load_explicit(&site->caller, memory_order_acquire);
        if (__builtin_expect(seen == caller, 1))
            return atomic_load_explicit(&site->real, memory_order_relaxed);
        if (!seen) break;
    }
    return tk_find_real(symbol, caller);
}

#define TK_PREPEND(first, list) TK_PREPEND_(first, TK_UNWRAP list)
#define TK_PREPEND_(...) TK_PREPEND__(__VA_ARGS__)
#define TK_PREPEND__(first, ...) (first, __VA_ARGS__)
#define TK_UNWRAP(...) __VA_ARGS__

/* Declares SYMBOL_on(real, parameters...), which the file defines, and the wrappers around it. */
#define TK_WRAPPERS(symbol, missing, parameters, arguments)                                       \
    typedef int symbol##_function parameters;                                                     \
    static int symbol##_on TK_PREPEND(symbol##_function *real, parameters);                       \
    TK_EXPORT int symbol parameters;                                                              \
    int symbol parameters                                                                         \
    {                                                                                             \
        tk_function real = tk_site_real(TK_SYMBOL_##symbol, __builtin_return_address(0));         \
        if (__builtin_expect(!real, 0)) return missing;                                           \
        return symbol##_on TK_PREPEND((symbol##_function *)real, arguments);                      \
    }                                                                                             \
    TK_LANE(symbol, 1, parameters, arguments)                                                     \
    TK_LANE(symbol, 2, parameters, arguments)                                                     \
    TK_LANE(symbol, 3, parameters, arguments)                                                     \
    const tk_function tk_wrappers_##symbol[TK_LANES] = {                                          \
        (tk_function)symbol, (tk_function)symbol##_lane1, (tk_function)symbol##_lane2,            \
        (tk_function)symbol##_lane3};

#define TK_LANE(symbol, lane, parameters, arguments)                                              \
    static int symbol##_lane##lane parameters                                                     \
    {                                                                                             \
        tk_function real = tk_lane_real(TK_SYMBOL_##symbol, lane);                                \
        return symbol##_on TK_PREPEND((symbol##_function *)real, arguments);                      \
    }

/* The same for functions without parameters, which C cannot prepend to. */
#define TK_WRAPPERS_VOID(symbol, missing)                                                         \
    typedef int symbol##_function(void);                                                          \
    static int symbol##_on(symbol##_function *real);                                              \
    TK_EXPORT int symbol(void);                                                                   \
    int symbol(void)                                                                              \
    {                                                                                             \
        tk_function real = tk_site_real(TK_SYMBOL_##symbol, __builtin_return_address(0));         \
        if (__builtin_expect(!real, 0)) return missing;                                           \
        return symbol##_on((symbol##_function *)real);                                            \
    }                                                                                             \
    TK_LANE_VOID(symbol, 1)                                                                       \
    TK_LANE_VOID(symbol, 2)                                                                       \
    TK_LANE_VOID(symbol, 3)                                                                       \
    const tk_function tk_wrappers_##symbol[TK_LANES] = {                                          \
        (tk_function)symbol, (tk_function)symbol##_lane1, (tk_function)symbol##_lane2,            \
        (tk_function)symbol##_lane3};

#define TK_LANE_VOID(symbol, lane)                                                                \
    static int symbol##_lane##lane(void)                                                          \
    {                                                                                             \
        return symbol##_on((symbol##_function *)tk_lane_real(TK_SYMBOL_##symbol, lane));          \
    }

/* Counts a nested wrapped call; leaves on every way out of the block, unwinding included. */
static inline void tk_leave(int **depth) { --**depth; }
#define TK_NEST(counter) \
    __attribute__((cleanup(tk_leave))) int *nest = &(counter); \
    bool nested = (*nest)++ > 0

#endif
