/* libnccl.so.2 without a GPU. A count of FAIL_COUNT fails with 4. Emits its own NVTX, as NCCL does. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <nvtx3/nvToolsExt.h>

#define FAIL_COUNT 13
#ifndef FAKE_TAG
#define FAKE_TAG 22809
#endif
struct id { char internal[128]; };
struct comm { int nranks, rank, device; };
static _Atomic long calls;
static _Thread_local int depth;
long fake_nccl_calls(void) { return calls; }
int ncclGetVersion(int *v) { *v = FAKE_TAG; return 0; }
int ncclCommCount(const struct comm *c, int *n) { *n = c->nranks; return 0; }
int ncclCommUserRank(const struct comm *c, int *n) { *n = c->rank; return 0; }
int ncclCommCuDevice(const struct comm *c, int *n) { *n = c->device; return 0; }
struct comm *fake_comm(int nranks, int rank, int device) /* made behind everybody's back */
{
    struct comm *c = malloc(sizeof *c);
    *c = (struct comm){nranks, rank, device};
    return c;
}
static int made(struct comm **c, int nranks, int rank, int device)
{
    calls++;
    *c = fake_comm(nranks, rank, device);
    return 0;
}
int ncclCommInitRank(struct comm **c, int n, struct id id, int rank) { return id.internal[0] == 'x' ? 4 : made(c, n, rank, rank); }
int ncclCommInitRankConfig(struct comm **c, int n, struct id id, int rank, void *config) { (void)config; return ncclCommInitRank(c, n, id, rank); }
int ncclCommInitAll(struct comm **c, int n, const int *devices)
{
    for (int i = 0; i < n; i++) made(&c[i], n, i, devices ? devices[i] : i);
    return 0;
}
int ncclCommSplit(struct comm *c, int color, int key, struct comm **m, void *config) { (void)config; (void)color; return made(m, c->nranks / 2, key, c->device); }
int ncclCommFinalize(struct comm *c) { (void)c; calls++; return 0; }
int ncclCommDestroy(struct comm *c) { calls++; free(c); return 0; }
int ncclCommAbort(struct comm *c) { calls++; free(c); return 0; }
int ncclGroupStart(void) { calls++; depth++; return 0; }
int ncclGroupEnd(void)
{
    calls++;
    if (!depth) return 5;
    depth--;
    return 0;
}

static nvtxDomainHandle_t domain;
static int own_nvtx, cancel;
__attribute__((constructor)) static void settings(void)
{
    own_nvtx = getenv("FAKE_NCCL_NVTX") != NULL;
    cancel = getenv("FAKE_NCCL_CANCEL") != NULL;
}
static int collective(const char *name, size_t count)
{
    calls++;
    if (own_nvtx) {
        if (!domain) domain = nvtxDomainCreateA("NCCL");
        nvtxEventAttributes_t a = {0};
        a.version = NVTX_VERSION;
        a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
        a.messageType = NVTX_MESSAGE_TYPE_ASCII;
        a.message.ascii = name;
        nvtxDomainRangePushEx(domain, &a);
        nvtxDomainRangePop(domain);
    }
    if (cancel) pthread_exit(NULL);
    return count == FAIL_COUNT ? 4 : 0;
}
#define P const void *s, void *r, size_t n, int t
#define IGNORE (void)s; (void)r; (void)t; (void)c; (void)st;
int ncclAllReduce(P, int op, struct comm *c, void *st) { IGNORE (void)op; return collective("ncclAllReduce", n); }
int ncclAllGather(P, struct comm *c, void *st) { IGNORE return collective("ncclAllGather", n); }
int ncclReduceScatter(P, int op, struct comm *c, void *st) { IGNORE (void)op; return collective("ncclReduceScatter", n); }
int ncclBroadcast(P, int root, struct comm *c, void *st) { IGNORE (void)root; return collective("ncclBroadcast", n); }
int ncclBcast(void *b, size_t n, int t, int root, struct comm *c, void *st) { return ncclBroadcast(b, b, n, t, root, c, st); }
int ncclReduce(P, int op, int root, struct comm *c, void *st) { IGNORE (void)op; (void)root; return collective("ncclReduce", n); }
int ncclAlltoAll(P, struct comm *c, void *st) { IGNORE return collective("ncclAlltoAll", n); }
int ncclGather(P, int root, struct comm *c, void *st) { IGNORE (void)root; return collective("ncclGather", n); }
int ncclScatter(P, int root, struct comm *c, void *st) { IGNORE (void)root; return collective("ncclScatter", n); }
int ncclSend(const void *s, size_t n, int t, int peer, struct comm *c, void *st) { (void)s; (void)t; (void)peer; (void)c; (void)st; return collective("ncclSend", n); }
int ncclRecv(void *r, size_t n, int t, int peer, struct comm *c, void *st) { (void)r; (void)t; (void)peer; (void)c; (void)st; return collective("ncclRecv", n); }
