/* libcudart.so.12, also linked statically: like the real one it takes the driver by name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t u64;
typedef int (*lookup_t)(const char *, void **, int, u64, void *);
static lookup_t lookup;
static void *driver(const char *name)
{
    void *found = NULL;
    if (!lookup) lookup = (lookup_t)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    return lookup && !lookup(name, &found, 12040, 0, NULL) ? found : NULL;
}
static int (*alloc_)(u64 *, size_t);
static int (*free_)(u64);
static long calls;
long fake_cudart_calls(void) { return calls; }
int cudaMalloc(void **p, size_t n)
{
    calls++;
    if (!alloc_) alloc_ = (int (*)(u64 *, size_t))driver("cuMemAlloc");
    return alloc_((u64 *)p, n);
}
int cudaFree(void *p)
{
    if (!free_) free_ = (int (*)(u64))driver("cuMemFree");
    return p ? free_((u64)(uintptr_t)p) : 0;
}
int cudaMallocAsync(void **p, size_t n, void *s)
{
    return ((int (*)(u64 *, size_t, void *))driver("cuMemAllocAsync"))((u64 *)p, n, s);
}
int cudaFreeAsync(void *p, void *s)
{
    return ((int (*)(u64, void *))driver("cuMemFreeAsync"))((u64)(uintptr_t)p, s);
}
int cudaMallocFromPoolAsync(void **p, size_t n, void *pool, void *s) { (void)pool; return cudaMallocAsync(p, n, s); }
int cudaHostAlloc(void **p, size_t n, unsigned f)
{
    return ((int (*)(void **, size_t, unsigned))driver("cuMemHostAlloc"))(p, n, f);
}
struct extent { size_t w, h, d; };
struct pitched { void *p; size_t pitch, x, y; };
int cudaMalloc3D(struct pitched *p, struct extent e)
{
    p->pitch = (e.w + 511) & ~(size_t)511;
    return cudaMalloc(&p->p, p->pitch * e.h * e.d);
}
int cudaMallocPitch(void **p, size_t *pitch, size_t w, size_t h)
{
    *pitch = (w + 511) & ~(size_t)511;
    return cudaMalloc(p, *pitch * h);
}
int cudaGetDriverEntryPoint(const char *name, void **found, u64 flags, void *status)
{
    (void)flags; (void)status;
    return (*found = driver(name)) ? 0 : 500;
}
int cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned version, u64 flags, void *status)
{
    (void)status; (void)flags;
    driver(name);
    return lookup(name, found, (int)version, flags, NULL);
}
int cudaProfilerStart(void)
{
    int (*start)(void) = (int (*)(void))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuProfilerStart");
    return start();
}
