/* Functions taken by name: nothing here is linked to CUDA or NCCL. argv[1] is the case. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, dlerror()); exit(9); } } while (0)
#define IS(name) (!strcmp(which, name))
typedef int alloc_t(u64 *, size_t);
typedef int async_t(u64 *, size_t, void *);
typedef int free_t(u64);
typedef int lookup1_t(const char *, void **, int, u64);
typedef int lookup2_t(const char *, void **, int, u64, void *);
typedef int reduce_t(const void *, void *, size_t, int, int, void *, void *);
typedef void *make_t(int, int, int);
typedef long calls_t(void);

static void *open_lib(const char *name) { void *h = dlopen(name, RTLD_NOW | RTLD_LOCAL); CHECK(h); return h; }

static void by_handle(void)
{
    void *h = open_lib("libcuda.so.1");
    alloc_t *alloc = (alloc_t *)dlsym(h, "cuMemAlloc_v2");
    u64 p;
    CHECK(alloc && alloc(&p, 4096) == 0);
    CHECK(((free_t *)dlsym(h, "cuMemFree_v2"))(p) == 0);
}

static void by_lookup(const char *version)
{
    void *h = open_lib("libcuda.so.1"), *f = NULL, *again = NULL, *query = NULL;
    u64 p;
    int cuda = atoi(version);
    if (cuda >= 12000) {
        lookup2_t *get = (lookup2_t *)dlsym(h, "cuGetProcAddress_v2");
        CHECK(get("cuGetProcAddress", &query, cuda, 0, NULL) == 0);
        get = (lookup2_t *)query;
        CHECK(get("cuMemAlloc", &f, cuda, 0, NULL) == 0);
        CHECK(get("cuMemAlloc", &again, cuda, 0, NULL) == 0 && again == f);
        CHECK(get("cuNoSuchThing", &again, cuda, 0, NULL) == 500 && !again);
        CHECK(((alloc_t *)f)(&p, 4096) == 0);
        CHECK(get("cuMemAllocAsync", &f, cuda, 2, NULL) == 0);
        CHECK(((async_t *)f)(&p, 8192, (void *)2) == 0);
        CHECK(get("cuCtxGetDevice", &f, cuda, 0, NULL) == 0 && f == dlsym(h, "cuCtxGetDevice"));
    } else {
        lookup1_t *get = (lookup1_t *)dlsym(h, "cuGetProcAddress");
        CHECK(get("cuMemAlloc", &f, cuda, 0) == 0);
        CHECK(((alloc_t *)f)(&p, 4096) == 0);
    }
}

static void old_signature(void) /* asked for CUDA 3.1's cuMemAlloc: another signature, passed on */
{
    void *h = open_lib("libcuda.so.1"), *f = NULL;
    unsigned p = 0;
    lookup2_t *get = (lookup2_t *)dlsym(h, "cuGetProcAddress_v2");
    CHECK(get("cuMemAlloc", &f, 3010, 0, NULL) == 0 && f == dlsym(h, "cuMemAlloc"));
    CHECK(((int (*)(unsigned *, unsigned))f)(&p, 77) == 0 && p == 77);
}

static void old_driver(void) /* a driver without the newer names */
{
    void *h = open_lib("libcuda.so.1");
    CHECK(!dlsym(h, "cuMemAlloc_v2") && strstr(dlerror(), "cuMemAlloc_v2"));
    CHECK(!dlsym(h, "cuGetProcAddress_v2") && dlerror());
    CHECK(dlsym(h, "cuMemAlloc") && !dlerror());
}

static void entry_point(void)
{
    void *h = open_lib("libcudart.so.12"), *f = NULL;
    u64 p;
    CHECK(((int (*)(const char *, void **, u64, void *))dlsym(h, "cudaGetDriverEntryPoint"))("cuMemCreate", &f, 0, NULL) == 0);
    CHECK(((int (*)(u64 *, size_t, const void *, u64))f)(&p, 2 << 20, NULL, 0) == 0);
    CHECK(((int (*)(const char *, void **, unsigned, u64, void *))dlsym(h, "cudaGetDriverEntryPointByVersion"))("cuMemAddressReserve", &f, 12000, 0, NULL) == 0);
    CHECK(((int (*)(u64 *, size_t, size_t, u64, u64))f)(&p, 64 << 20, 0, 0, 0) == 0);
}

static void absent(void) /* no CUDA anywhere: as without us */
{
    CHECK(!dlsym(RTLD_DEFAULT, "cudaMalloc") && strstr(dlerror(), "cudaMalloc"));
    CHECK(!dlsym(dlopen(NULL, RTLD_NOW), "ncclAllReduce") && dlerror());
    CHECK(!dlsym(RTLD_NEXT, "cuMemAlloc_v2") && dlerror());
    CHECK(!dlerror());
    CHECK(dlsym(RTLD_DEFAULT, "printf") && !dlerror());
    CHECK(dlsym(RTLD_NEXT, "malloc") && !dlerror());
    CHECK(dlsym(RTLD_DEFAULT, "dlsym"));
    CHECK(!dlsym(RTLD_DEFAULT, "no_such_name") && strstr(dlerror(), "no_such_name"));
}

static void next(const char *library) /* a library whose own RTLD_NEXT must not be ours */
{
    void *h = open_lib(library);
    int (*who)(void) = (int (*)(void))dlsym(h, "chain_who");
    CHECK(who && who() == 3); /* its own is 1, ours would be asked from elsewhere, next's is 2 */
}

static void defaults(void) /* visible to all: found by RTLD_DEFAULT, and marked */
{
    void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    alloc_t *alloc = (alloc_t *)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    u64 p;
    CHECK(h && alloc && alloc(&p, 4096) == 0);
    alloc_t *same = (alloc_t *)dlsym(dlopen(NULL, RTLD_NOW), "cuMemAlloc_v2");
    CHECK(same && same(&p, 8192) == 0);
}

static void two_nccls(const char *one, const char *two) /* each caller reaches its own library */
{
    void *h[2] = {open_lib(one), open_lib(two)};
    for (int i = 0; i < 2; i++) {
        int version = 0;
        void *c = ((make_t *)dlsym(h[i], "fake_comm"))(2 + i, 1, 0);
        reduce_t *reduce = (reduce_t *)dlsym(h[i], "ncclAllReduce");
        CHECK(reduce && reduce(NULL, NULL, 256, 7, 0, c, NULL) == 0);
        ((int (*)(int *))dlsym(h[i], "ncclGetVersion"))(&version);
        printf("%d %ld\n", version, ((calls_t *)dlsym(h[i], "fake_nccl_calls"))());
    }
}

static void two_runtimes(int argc, char **argv) /* linked, not asked for by name */
{
    if (argc > 6) CHECK(dlopen(argv[6], RTLD_NOW | RTLD_GLOBAL));
    void *user[2] = {open_lib(argv[2]), open_lib(argv[3])};
    for (int round = 0; round < 3; round++)
        for (int i = 0; i <= round; i++) ((void (*)(void))dlsym(user[i % 2], "go"))();
    for (int i = 0; i < 2; i++)
        printf("%ld\n", ((calls_t *)dlsym(open_lib(argv[4 + i]), "fake_cudart_calls"))());
}

static void many(int argc, char **argv) /* more libraries than lanes: unseen, but right */
{
    for (int i = 2; i < argc; i++) {
        void *h = open_lib(argv[i]);
        void *c = ((make_t *)dlsym(h, "fake_comm"))(2, 1, 0);
        CHECK(((reduce_t *)dlsym(h, "ncclAllReduce"))(NULL, NULL, 256, 7, 0, c, NULL) == 0);
        CHECK(((calls_t *)dlsym(h, "fake_nccl_calls"))() == 1);
    }
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    if (IS("by_handle")) by_handle();
    else if (IS("by_lookup")) by_lookup(argv[2]);
    else if (IS("old_signature")) old_signature();
    else if (IS("old_driver")) old_driver();
    else if (IS("entry_point")) entry_point();
    else if (IS("absent")) absent();
    else if (IS("next")) next(argv[2]);
    else if (IS("open")) ((void (*)(void))dlsym(open_lib(argv[2]), "go"))();
    else if (IS("defaults")) defaults();
    else if (IS("two_nccls")) two_nccls(argv[2], argv[3]);
    else if (IS("two_runtimes")) two_runtimes(argc, argv);
    else if (IS("many")) many(argc, argv);
    else return 8;
    puts("done");
    return 0;
}
