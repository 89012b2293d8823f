/* The wire format tk1, as this library writes it.
 *
 * tracekit/model/markers.py states the same tables for readers; a test parses this file and
 * compares the two, so keep one entry a line and every number explicit.
 *
 * Text form:     an NVTX message `EVENT key=value ...`, keys in the order given here.
 * Payload form:  an NVTX extended payload with the schema `tracekit.<event>`, one field a key.
 * A value that is not known is all ones in the payload and left out of the text: absence is
 * unknown, never zero.
 */
#ifndef TRACEKIT_MARKERS_H
#define TRACEKIT_MARKERS_H

#include <stdint.h>

#define TK_DOMAIN "tracekit"
#define TK_GRAMMAR "tk1"

/* Categories: X(number, name). */
#define TK_CATEGORIES(X) \
    X(1, kv)             \
    X(2, alloc)          \
    X(3, coll)           \
    X(4, step)           \
    X(5, moe)            \
    X(6, meta)

/* Who allocated or freed: the symbol without its version or stream suffix. X(number, name). */
#define TK_SOURCES(X)            \
    X(1, cudaMalloc)             \
    X(2, cudaMallocAsync)        \
    X(3, cudaMallocFromPoolAsync) \
    X(4, cudaMallocManaged)      \
    X(5, cudaMallocPitch)        \
    X(6, cudaMalloc3D)           \
    X(7, cudaMallocHost)         \
    X(8, cudaHostAlloc)          \
    X(9, cudaFree)               \
    X(10, cudaFreeAsync)         \
    X(11, cudaFreeHost)          \
    X(20, cuMemAlloc)            \
    X(21, cuMemAllocAsync)       \
    X(22, cuMemAllocFromPoolAsync) \
    X(23, cuMemAllocManaged)     \
    X(24, cuMemAllocPitch)       \
    X(25, cuMemAllocHost)        \
    X(26, cuMemHostAlloc)        \
    X(27, cuMemFree)             \
    X(28, cuMemFreeAsync)        \
    X(29, cuMemFreeHost)         \
    X(30, cuMemCreate)           \
    X(31, cuMemRelease)          \
    X(32, cuMemMap)              \
    X(33, cuMemUnmap)            \
    X(34, cuMemAddressReserve)   \
    X(35, cuMemAddressFree)

/* Collective operations. X(number, name). */
#define TK_OPS(X)       \
    X(1, AllReduce)     \
    X(2, AllGather)     \
    X(3, ReduceScatter) \
    X(4, Broadcast)     \
    X(5, Bcast)         \
    X(6, Reduce)        \
    X(7, AlltoAll)      \
    X(8, Gather)        \
    X(9, Scatter)       \
    X(10, Send)         \
    X(11, Recv)

/* Element types, numbered as NCCL does. X(number, name, bytes). */
#define TK_DTYPES(X)      \
    X(0, int8, 1)         \
    X(1, uint8, 1)        \
    X(2, int32, 4)        \
    X(3, uint32, 4)       \
    X(4, int64, 8)        \
    X(5, uint64, 8)       \
    X(6, float16, 2)      \
    X(7, float32, 4)      \
    X(8, float64, 8)      \
    X(9, bfloat16, 2)     \
    X(10, float8e4m3, 1)  \
    X(11, float8e5m2, 1)

/* Reductions, numbered as NCCL does; any operator that the program made itself is `custom`. */
#define TK_REDOPS(X) \
    X(0, sum)        \
    X(1, prod)       \
    X(2, max)        \
    X(3, min)        \
    X(4, avg)        \
    X(5, custom)

/* What happened to a communicator. X(number, name). */
#define TK_COMM_EVENTS(X) \
    X(1, init)            \
    X(2, split)           \
    X(3, destroy)         \
    X(4, abort)           \
    X(5, finalize)

/* Which end of a group call. X(number, name). */
#define TK_GROUP_EVENTS(X) \
    X(1, start)            \
    X(2, end)

/* Keys of an event, in the order of writing: K(name, kind). Kinds: HEX u64 written with 0x,
 * U64 and I32 decimal, U8 decimal, and u8 words from the tables above. */
#define TK_KEYS_SYNC(K) \
    K(mono_ns, U64)

#define TK_KEYS_ALLOC(K) \
    K(source, SOURCE)    \
    K(addr, HEX)         \
    K(bytes, U64)        \
    K(handle, HEX)       \
    K(stream, HEX)       \
    K(device, I32)       \
    K(rc, I32)           \
    K(again, U8)

#define TK_KEYS_FREE(K) \
    K(source, SOURCE)   \
    K(addr, HEX)        \
    K(bytes, U64)       \
    K(handle, HEX)      \
    K(stream, HEX)      \
    K(device, I32)      \
    K(rc, I32)          \
    K(known, U8)

#define TK_KEYS_COLL(K) \
    K(op, OP)           \
    K(comm, HEX)        \
    K(seq, U64)         \
    K(bytes, U64)       \
    K(count, U64)       \
    K(dtype, DTYPE)     \
    K(redop, REDOP)     \
    K(nranks, I32)      \
    K(rank, I32)        \
    K(peer, I32)        \
    K(root, I32)        \
    K(stream, HEX)      \
    K(depth, I32)

#define TK_KEYS_COLL_FAILED(K) \
    K(comm, HEX)               \
    K(seq, U64)                \
    K(rc, I32)

#define TK_KEYS_COMM(K)  \
    K(event, COMM_EVENT) \
    K(comm, HEX)         \
    K(nranks, I32)       \
    K(rank, I32)         \
    K(device, I32)       \
    K(rc, I32)           \
    K(again, U8)

#define TK_KEYS_GROUP(K)  \
    K(event, GROUP_EVENT) \
    K(depth, I32)         \
    K(rc, I32)

/* Events with fixed fields: X(EVENT, name, category). The payload schema is `tracekit.<name>`, the
 * message that goes with a payload `tk.<name>`. COLL is a push/pop range, the others are marks.
 * META is text in every form, since its version is a string:
 * META version= grammar= pid= markers= dlsym= min_bytes= again= (category meta). */
#define TK_EVENTS(X)                  \
    X(SYNC, sync, meta)               \
    X(ALLOC, alloc, alloc)            \
    X(FREE, free, alloc)              \
    X(COLL, coll, coll)               \
    X(COLL_FAILED, coll_failed, coll) \
    X(COMM, comm, coll)               \
    X(GROUP, group, coll)

enum tk_category {
#define X(number, name) TK_CATEGORY_##name = number,
    TK_CATEGORIES(X)
#undef X
};
enum tk_source {
#define X(number, name) TK_SOURCE_##name = number,
    TK_SOURCES(X)
#undef X
};
enum tk_op {
#define X(number, name) TK_OP_##name = number,
    TK_OPS(X)
#undef X
};
enum tk_redop {
#define X(number, name) TK_REDOP_##name = number,
    TK_REDOPS(X)
#undef X
};
enum tk_comm_event {
#define X(number, name) TK_COMM_##name = number,
    TK_COMM_EVENTS(X)
#undef X
};
enum tk_group_event {
#define X(number, name) TK_GROUP_##name = number,
    TK_GROUP_EVENTS(X)
#undef X
};
enum tk_event {
#define X(event, name, category) TK_##event,
    TK_EVENTS(X)
#undef X
    TK_EVENT_COUNT
};

#define TK_CTYPE_HEX uint64_t
#define TK_CTYPE_U64 uint64_t
#define TK_CTYPE_I32 int32_t
#define TK_CTYPE_U8 uint8_t
#define TK_CTYPE_SOURCE uint8_t
#define TK_CTYPE_OP uint8_t
#define TK_CTYPE_DTYPE uint8_t
#define TK_CTYPE_REDOP uint8_t
#define TK_CTYPE_COMM_EVENT uint8_t
#define TK_CTYPE_GROUP_EVENT uint8_t

/* The payload of each event: natural alignment, little endian, fields in the order of the keys. */
#define K(name, kind) TK_CTYPE_##kind name;
struct tk_SYNC { TK_KEYS_SYNC(K) };
struct tk_ALLOC { TK_KEYS_ALLOC(K) };
struct tk_FREE { TK_KEYS_FREE(K) };
struct tk_COLL { TK_KEYS_COLL(K) };
struct tk_COLL_FAILED { TK_KEYS_COLL_FAILED(K) };
struct tk_COMM { TK_KEYS_COMM(K) };
struct tk_GROUP { TK_KEYS_GROUP(K) };
#undef K

#define TK_UNKNOWN_U64 UINT64_MAX
#define TK_UNKNOWN_I32 (-1)
#define TK_UNKNOWN_U8 UINT8_MAX

#endif
