/* libcuda.so.1 without a GPU: addresses come from a counter. A size of FAIL_BYTES fails with 2. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FAIL_BYTES 0xdead
typedef uint64_t u64;
static _Atomic u64 next = 0x7f0000000000, next_handle = 0x5000;
static _Atomic long calls;
long fake_cuda_calls(void) { return calls; }

static int give(u64 *p, size_t n)
{
    calls++;
    if (!p) return 1;
    if (n == FAIL_BYTES) return 2;
    *p = atomic_fetch_add(&next, (n + 0xfff) & ~(u64)0xfff);
    return 0;
}
static int back(u64 p) /* the last page given comes again, as from a real allocator */
{
    u64 end = p + 0x1000;
    calls++;
    atomic_compare_exchange_strong(&next, &end, p);
    return p == 0xbad000 ? 1 : 0;
}

int cuMemAlloc(unsigned *p, unsigned n) { calls++; *p = n; return 0; } /* the old 32-bit one */
static int no_context;
__attribute__((constructor)) static void settings(void) { no_context = getenv("FAKE_NO_CONTEXT") != NULL; }
int cuCtxGetDevice(int *d) { *d = 3; return no_context ? 201 : 0; }
#ifndef FAKE_OLD
int cuMemAlloc_v2(u64 *p, size_t n) { return give(p, n); }
int cuMemAllocAsync(u64 *p, size_t n, void *s) { (void)s; return give(p, n); }
int cuMemAllocAsync_ptsz(u64 *p, size_t n, void *s) { (void)s; return give(p, n); }
int cuMemAllocFromPoolAsync(u64 *p, size_t n, void *q, void *s) { (void)q; (void)s; return give(p, n); }
int cuMemAllocManaged(u64 *p, size_t n, unsigned f) { (void)f; return give(p, n); }
int cuMemAllocPitch_v2(u64 *p, size_t *pitch, size_t w, size_t h, unsigned e)
{
    (void)e;
    *pitch = (w + 511) & ~(size_t)511;
    return give(p, *pitch * h);
}
int cuMemHostAlloc(void **p, size_t n, unsigned f) { (void)f; return give((u64 *)p, n); }
int cuMemAllocHost_v2(void **p, size_t n) { return give((u64 *)p, n); }
int cuMemFree_v2(u64 p) { return back(p); }
int cuMemFreeAsync(u64 p, void *s) { (void)s; return back(p); }
int cuMemFreeHost(void *p) { return back((u64)(uintptr_t)p); }
int cuMemCreate(u64 *h, size_t n, const void *prop, u64 f)
{
    (void)prop; (void)f; calls++;
    if (n == FAIL_BYTES) return 2;
    *h = next_handle++;
    return 0;
}
int cuMemRelease(u64 h) { (void)h; calls++; return 0; }
int cuMemMap(u64 p, size_t n, size_t o, u64 h, u64 f) { (void)p; (void)n; (void)o; (void)h; (void)f; calls++; return 0; }
int cuMemUnmap(u64 p, size_t n) { (void)p; (void)n; calls++; return 0; }
int cuMemAddressReserve(u64 *p, size_t n, size_t a, u64 at, u64 f) { (void)a; (void)at; (void)f; return give(p, n); }
int cuMemAddressFree(u64 p, size_t n) { (void)p; (void)n; calls++; return 0; }
int cuProfilerStart(void) { calls++; return 0; }

int cuGetProcAddress(const char *, void **, int, u64);
int cuGetProcAddress_v2(const char *, void **, int, u64, void *);
static void *answer(const char *name, int version, u64 flags)
{
#define IS(x) if (!strcmp(name, #x)) return
    IS(cuMemAlloc) (version >= 3020 ? (void *)cuMemAlloc_v2 : (void *)cuMemAlloc);
    IS(cuMemFree) (void *)cuMemFree_v2;
    IS(cuMemAllocAsync) (flags & 2 ? (void *)cuMemAllocAsync_ptsz : (void *)cuMemAllocAsync);
    IS(cuMemFreeAsync) (void *)cuMemFreeAsync;
    IS(cuMemCreate) (void *)cuMemCreate;
    IS(cuMemRelease) (void *)cuMemRelease;
    IS(cuMemMap) (void *)cuMemMap;
    IS(cuMemUnmap) (void *)cuMemUnmap;
    IS(cuMemAddressReserve) (void *)cuMemAddressReserve;
    IS(cuMemAddressFree) (void *)cuMemAddressFree;
    IS(cuMemHostAlloc) (void *)cuMemHostAlloc;
    IS(cuCtxGetDevice) (void *)cuCtxGetDevice;
    IS(cuGetProcAddress) (version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress);
    return NULL;
}
int cuGetProcAddress(const char *name, void **found, int version, u64 flags)
{
    *found = answer(name, version, flags);
    return *found ? 0 : 500;
}
int cuGetProcAddress_v2(const char *name, void **found, int version, u64 flags, void *status)
{
    if (status) *(int *)status = 0;
    return cuGetProcAddress(name, found, version, flags);
}
#endif
