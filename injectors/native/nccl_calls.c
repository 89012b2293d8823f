/* NCCL: a range around every collective, marks for groups and communicators. */
#define _GNU_SOURCE
#include <errno.h>

#include "books.h"
#include "emit.h"
#include "interpose.h"

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };

struct tk_collective {
    enum tk_op op;
    int redop, root, peer; /* -1: this collective has none */
    bool times_ranks;      /* count is one rank's share of the message */
    bool p2p;
};

struct tk_membership {
    enum tk_comm_event event;
    void *comm;  /* the communicator that ends */
    void **made; /* or where the new ones are written */
    int count, nranks, rank;
    bool all;           /* made[i] is rank i, on devices[i] or on device i */
    const int *devices;
};

static uint32_t dtype_bytes(int dtype)
{
    static const uint8_t size[] = {
#define X(number, name, bytes) [number] = bytes,
        TK_DTYPES(X)
#undef X
    };
    return dtype >= 0 && (size_t)dtype < sizeof size ? size[dtype] : 0;
}

static int32_t ask(tk_function function, const char *name, void *comm)
{
    int (*get)(void *, int *) = (int (*)(void *, int *))tk_find_beside(function, name);
    int value = TK_UNKNOWN_I32;
    return get && get(comm, &value) == NCCL_SUCCESS ? value : TK_UNKNOWN_I32;
}

/* Asks the communicator itself, through the library that its call goes to. Inside a group it may
 * not be ready to answer. */
static struct tk_comm asked(tk_function function, void *comm)
{
    struct tk_comm is = {TK_UNKNOWN_I32, TK_UNKNOWN_I32, TK_UNKNOWN_I32};
    if (!comm || tk_thread.group) return is;
    is.nranks = ask(function, "ncclCommCount", comm);
    if (is.nranks == TK_UNKNOWN_I32) return is;
    is.rank = ask(function, "ncclCommUserRank", comm);
    is.device = ask(function, "ncclCommCuDevice", comm);
    return is;
}

static struct tk_comm known_comm(tk_function function, void *comm)
{
    const uint64_t key = (uint64_t)(uintptr_t)comm;
    struct tk_comm is;
    const bool entered = tk_comm_find(key, &is);
    if (entered && is.nranks != TK_UNKNOWN_I32) return is;
    is = asked(function, comm);
    if (!entered) tk_comm_put(key, is);
    else if (is.nranks != TK_UNKNOWN_I32) tk_comm_learn(key, is);
    return is;
}

/* ---- collectives ---- */

struct range {
    uint64_t comm, seq;
    bool open;
};

static void close_range(struct range *range)
{
    if (range->open) tk_pop();
    range->open = false;
}

static struct range open_range(const struct tk_collective *call, tk_function function, void *comm,
                               size_t count, int dtype, void *stream)
{
    const struct tk_comm is = known_comm(function, comm);
    const uint64_t size = dtype_bytes(dtype);
    TK_EVENT(tk_COLL, coll);
    coll.op = (uint8_t)call->op;
    coll.comm = (uint64_t)(uintptr_t)comm;
    coll.seq = tk_comm_next(coll.comm, call->p2p);
    if (size && (!call->times_ranks || is.nranks > 0))
        coll.bytes = count * size * (call->times_ranks ? (uint64_t)is.nranks : 1);
    coll.count = count;
    coll.dtype = (uint8_t)dtype;
    if (call->redop >= 0)
        coll.redop = call->redop < TK_REDOP_custom ? (uint8_t)call->redop : TK_REDOP_custom;
    coll.nranks = is.nranks;
    coll.rank = is.rank;
    coll.peer = call->peer;
    coll.root = call->root;
    coll.stream = (uint64_t)(uintptr_t)stream;
    coll.depth = tk_thread.group;
    return (struct range){coll.comm, coll.seq, tk_push(TK_COLL, &coll)};
}

static void tell_failure(const struct range *range, int rc)
{
    if (rc == NCCL_SUCCESS || rc == NCCL_IN_PROGRESS) return;
    TK_EVENT(tk_COLL_FAILED, failed);
    failed.comm = range->comm;
    failed.seq = range->seq;
    failed.rc = rc;
    tk_mark(TK_COLL_FAILED, &failed);
}

#define X(symbol, origin, parameters, arguments, ...)                                             \
    TK_WRAPPERS(symbol, TK_NO_NCCL_SYMBOL, parameters, arguments)                                 \
    static int symbol##_on TK_PREPEND(symbol##_function *real, parameters)                        \
    {                                                                                             \
        if (!tk_watching()) return real arguments;                                                \
        TK_NEST(tk_thread.nccl);                                                                  \
        if (nested) return real arguments;                                                        \
        const struct tk_collective call = {__VA_ARGS__};                                          \
        const int before = errno;                                                                 \
        __attribute__((cleanup(close_range))) struct range range =                                \
            open_range(&call, (tk_function)real, comm, count, dtype, stream);                     \
        errno = before;                                                                           \
        const int rc = real arguments, saved = errno;                                             \
        close_range(&range);                                                                      \
        tell_failure(&range, rc);                                                                 \
        errno = saved;                                                                            \
        return rc;                                                                                \
    }
TK_COLL_SYMBOLS(X)
#undef X

/* ---- groups ---- */

/* Depth follows NCCL's own: a start that fails opens nothing, an end closes the innermost group
 * whatever it returns, and an end without a start leaves it at 0. */
static void group_called(enum tk_group_event event, int rc)
{
    if (event == TK_GROUP_start) tk_thread.group += rc == NCCL_SUCCESS;
    else if (tk_thread.group > 0) tk_thread.group--;
    TK_EVENT(tk_GROUP, group);
    group.event = (uint8_t)event;
    group.depth = tk_thread.group;
    group.rc = rc;
    tk_mark(TK_GROUP, &group);
}

#define X(symbol, origin, parameters, arguments, event)                                           \
    TK_WRAPPERS_VOID(symbol, TK_NO_NCCL_SYMBOL)                                                   \
    static int symbol##_on(symbol##_function *real)                                               \
    {                                                                                             \
        if (!tk_watching()) return real();                                                        \
        TK_NEST(tk_thread.nccl);                                                                  \
        if (nested) return real();                                                                \
        const int rc = real(), saved = errno;                                                     \
        group_called(event, rc);                                                                  \
        errno = saved;                                                                            \
        return rc;                                                                                \
    }
TK_GROUP_SYMBOLS(X)
#undef X

/* ---- communicators ---- */

static void tell_comm(enum tk_comm_event event, void *comm, struct tk_comm is, int rc)
{
    TK_EVENT(tk_COMM, mark);
    mark.event = (uint8_t)event;
    if (comm) mark.comm = (uint64_t)(uintptr_t)comm;
    mark.nranks = is.nranks;
    mark.rank = is.rank;
    mark.device = is.device;
    mark.rc = rc;
    tk_mark(TK_COMM, &mark);
}

/* A communicator that ends leaves the books before the call: its address may be the next one's. */
static bool ending(const struct tk_membership *call, struct tk_comm *is)
{
    const uint64_t key = (uint64_t)(uintptr_t)call->comm;
    is->nranks = is->rank = is->device = TK_UNKNOWN_I32;
    if (!call->comm) return false;
    return call->event == TK_COMM_finalize ? tk_comm_find(key, is) : tk_comm_take(key, is);
}

static void comm_made(const struct tk_membership *call, tk_function function, int i, int rc)
{
    void *comm = call->made && (rc == NCCL_SUCCESS || rc == NCCL_IN_PROGRESS) ? call->made[i] : NULL;
    struct tk_comm is = {call->nranks, call->all ? i : call->rank, TK_UNKNOWN_I32};
    if (call->all) is.device = call->devices ? call->devices[i] : i;
    else if (rc == NCCL_SUCCESS && is.nranks == TK_UNKNOWN_I32) is = asked(function, comm);
    else if (rc == NCCL_SUCCESS && comm && !tk_thread.group)
        is.device = ask(function, "ncclCommCuDevice", comm);
    if (comm) tk_comm_put((uint64_t)(uintptr_t)comm, is);
    tell_comm(call->event, comm, is, rc);
}

static void comm_called(const struct tk_membership *call, tk_function function, int rc,
                        bool known, struct tk_comm was)
{
    if (call->count) {
        for (int i = 0; i < call->count; i++) comm_made(call, function, i, rc);
        return;
    }
    if (known && rc != NCCL_SUCCESS && rc != NCCL_IN_PROGRESS && call->event != TK_COMM_finalize)
        tk_comm_put((uint64_t)(uintptr_t)call->comm, was);
    tell_comm(call->event, call->comm, was, rc);
}

#define X(symbol, origin, parameters, arguments, ...)                                             \
    TK_WRAPPERS(symbol, TK_NO_NCCL_SYMBOL, parameters, arguments)                                 \
    static int symbol##_on TK_PREPEND(symbol##_function *real, parameters)                        \
    {                                                                                             \
        if (!tk_watching()) return real arguments;                                                \
        TK_NEST(tk_thread.nccl);                                                                  \
        if (nested) return real arguments;                                                        \
        const struct tk_membership call = {__VA_ARGS__};                                          \
        struct tk_comm was;                                                                       \
        const bool known = ending(&call, &was);                                                   \
        const int rc = real arguments, saved = errno;                                             \
        comm_called(&call, (tk_function)real, rc, known, was);                                    \
        errno = saved;                                                                            \
        return rc;                                                                                \
    }
TK_COMM_SYMBOLS(X)
#undef X
