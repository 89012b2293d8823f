/* Calls bound by the loader (and, with a static runtime, inside the program). argv[1] is the case. */
#define _GNU_SOURCE
#include "cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); exit(9); } } while (0)
#define IS(name) (!strcmp(which, name))

static void runtime(void)
{
    void *p, *q;
    struct pitched d;
    size_t pitch;
    CHECK(cudaMalloc(&p, 4096) == 0);
    CHECK(cudaMallocAsync(&q, 8192, (void *)0x77) == 0);
    CHECK(cudaFreeAsync(q, (void *)0x77) == 0);
    CHECK(cudaFree(p) == 0);
    CHECK(cudaMallocPitch(&p, &pitch, 100, 3) == 0 && pitch == 512);
    CHECK(cudaMalloc3D(&d, (struct extent){100, 2, 5}) == 0);
    CHECK(cudaHostAlloc(&p, 64, 0) == 0);
    CHECK(cudaMallocFromPoolAsync(&p, 128, (void *)1, NULL) == 0);
}

#ifdef STATIC_RUNTIME
int main(void) { runtime(); return 0; }
#else

static void untracked(void)
{
    void *p;
    CHECK(cudaFree(NULL) == 0);
    CHECK(cudaFree((void *)0x123000) == 0);  /* never seen */
    CHECK(cudaFree((void *)0xbad000) == 1);  /* the real code comes back */
    CHECK(cudaMalloc(NULL, 4096) == 1);
    CHECK(cudaMalloc(&p, 0xdead) == 2);
    CHECK(cudaMalloc(&p, 4096) == 0);
    CHECK(cudaFree(p) == 0 && cudaFree(p) == 0); /* double */
}

static void expandable(void)
{
    const int prop[8] = {1, 0, 1, 5}; /* pinned, no handle type, located on device 5 */
    const size_t page = 20 << 20;
    u64 base, h[3];
    CHECK(cuMemAddressReserve(&base, 64 * page, 0, 0, 0) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(cuMemCreate(&h[i], page, prop, 0) == 0);
        CHECK(cuMemMap(base + i * page, page, 0, h[i], 0) == 0);
    }
    CHECK(cuMemUnmap(base + page, page) == 0);
    CHECK(cuMemRelease(h[1]) == 0);
}

static void vmm_range(void) /* one unmap over two mappings; then their ends are unknown */
{
    u64 base, h;
    CHECK(cuMemAddressReserve(&base, 1 << 22, 0, 0, 0) == 0);
    CHECK(cuMemCreate(&h, 1 << 21, NULL, 0) == 0);
    CHECK(cuMemMap(base, 1 << 20, 0, h, 0) == 0);
    CHECK(cuMemMap(base + (1 << 20), 1 << 20, 1 << 20, h, 0) == 0);
    CHECK(cuMemUnmap(base, 1 << 21) == 0);
    CHECK(cuMemUnmap(base + (1 << 20), 1 << 20) == 0);
    CHECK(cuMemRelease(h) == 0 && cuMemAddressFree(base, 1 << 22) == 0);
}

static void caching(void) /* three segments hold 500 tensors */
{
    char *segment[3];
    for (int i = 0; i < 3; i++) CHECK(cudaMalloc((void **)&segment[i], 20 << 20) == 0);
    for (int i = 0; i < 500; i++) CHECK(segment[i % 3] + i * 1024);
}

static void keeps_errno(void)
{
    void *p, *c = fake_comm(2, 0, 0);
    for (int i = 0; i < 3; i++) {
        errno = 5;
        CHECK(cudaMalloc(&p, 4096) == 0 && errno == 5);
        CHECK(ncclAllReduce(0, 0, 4, 7, 0, c, 0) == 0 && errno == 5);
        CHECK(cudaFree(p) == 0 && errno == 5);
        CHECK(ncclGroupStart() == 0 && errno == 5);
        CHECK(ncclGroupEnd() == 0 && errno == 5);
    }
}

static void collectives(void)
{
    void *c, *d, *all[2], *st = (void *)0x99;
    struct id id = {{0}};
    CHECK(ncclCommInitRank(&c, 4, id, 1) == 0);
    ncclAllReduce(0, 0, 1000, 9, 0, c, st);
    ncclAllGather(0, 0, 1000, 7, c, st);
    ncclReduceScatter(0, 0, 1000, 6, 2, c, st);
    ncclBroadcast(0, 0, 1000, 1, 3, c, st);
    ncclBcast(0, 1000, 8, 3, c, st);
    ncclReduce(0, 0, 1000, 4, 4, 2, c, st);
    ncclAlltoAll(0, 0, 1000, 2, c, st);
    ncclGather(0, 0, 1000, 10, 0, c, st);
    ncclScatter(0, 0, 1000, 11, 0, c, st);
    ncclSend(0, 1000, 7, 2, c, st);
    ncclRecv(0, 1000, 7, 3, c, st);
    ncclAllReduce(0, 0, 7, 99, 12, c, st); /* unknown type, the program's own reduction */
    CHECK(ncclCommSplit(c, 0, 1, &d, NULL) == 0);
    CHECK(ncclCommFinalize(d) == 0 && ncclCommDestroy(d) == 0);
    CHECK(ncclCommInitAll(all, 2, (int[]){6, 7}) == 0);
    CHECK(ncclCommAbort(all[0]) == 0);
    id.internal[0] = 'x';
    CHECK(ncclCommInitRank(&d, 4, id, 1) == 4);
    ncclAllReduce(0, 0, 1, 0, 3, fake_comm(8, 5, 2), st); /* made before anybody looked */
    CHECK(ncclCommDestroy(c) == 0);
}

static void groups(void)
{
    void *c = fake_comm(2, 0, 0);
    CHECK(ncclGroupEnd() == 5); /* without a start */
    CHECK(ncclGroupStart() == 0 && ncclGroupStart() == 0);
    CHECK(ncclAllReduce(0, 0, 4, 7, 0, c, 0) == 0);
    CHECK(ncclGroupEnd() == 0);
    CHECK(ncclAllReduce(0, 0, 13, 7, 0, c, 0) == 4); /* fails */
    CHECK(ncclGroupEnd() == 0 && ncclGroupEnd() == 5);
    CHECK(ncclAllReduce(0, 0, 4, 7, 0, c, 0) == 0);
}

static void ten(void)
{
    void *c = fake_comm(2, 0, 0);
    for (int i = 0; i < 10; i++) CHECK(ncclAllReduce(0, 0, 4, 7, 0, c, 0) == 0);
}

static void *cancelled(void *c)
{
    ncclAllReduce(0, 0, 4, 7, 0, c, 0); /* the fake ends the thread inside */
    return NULL;
}

enum { THREADS = 8, CALLS = 100000 };
static void *hammer(void *c)
{
    void *p;
    for (int i = 0; i < CALLS / 4; i++) {
        CHECK(cudaMalloc(&p, 4096) == 0);
        CHECK(ncclAllReduce(0, 0, 4, 7, 0, c, 0) == 0);
        CHECK(cudaFree(p) == 0);
        CHECK(ncclAllReduce(0, 0, 13, 7, 0, c, 0) == 4);
    }
    return NULL;
}
static _Atomic int stop;
static void *churn(void *unused)
{
    void *p;
    while (!stop) CHECK(cudaMalloc(&p, 4096) == 0 && cudaFree(p) == 0);
    return unused;
}

static pthread_barrier_t gate;
static void *starts(void *unused)
{
    void *p;
    pthread_barrier_wait(&gate);
    CHECK(cudaMalloc(&p, 4096) == 0);
    pthread_barrier_wait(&gate);
    CHECK(cudaFree(p) == 0);
    return unused;
}

static void race(void) /* everybody's first call at once */
{
    pthread_t t[THREADS];
    pthread_barrier_init(&gate, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&t[i], NULL, starts, NULL));
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
}

static void threads(void)
{
    pthread_t t[THREADS];
    void *p;
    CHECK(cudaMalloc(&p, 4096) == 0 && cudaFree(p) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&t[i], NULL, hammer, fake_comm(2, 0, 0)));
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
}

static void forks(void)
{
    pthread_t t[THREADS];
    void *p;
    CHECK(cudaMalloc(&p, 4096) == 0 && cudaFree(p) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&t[i], NULL, churn, NULL));
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) {
            for (int k = 0; k < 100; k++) CHECK(cudaMalloc(&p, 4096) == 0 && cudaFree(p) == 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
}

static void forked_first(void) /* nothing wrapped was called yet: the child is a fresh process */
{
    void *p;
    pid_t child = fork();
    CHECK(cudaMalloc(&p, child ? 1 : 2) == 0);
    if (!child) exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void state(void)
{
    void *p, *small, *gone, *c;
    struct id id = {{0}};
    CHECK(cudaMalloc(&p, 4 << 20) == 0);
    CHECK(cudaMalloc(&small, 100) == 0);
    CHECK(cudaMalloc(&gone, 4 << 20) == 0 && cudaFree(gone) == 0);
    CHECK(ncclCommInitRank(&c, 4, id, 1) == 0);
    CHECK(cudaProfilerStart() == 0);
}

static void beats(const char *log) /* until the state was told four times */
{
    void *p;
    int told = 0;
    CHECK(cudaMalloc(&p, 4 << 20) == 0);
    while (told < 4) {
        char text[1 << 16], *at = text;
        usleep(1000);
        FILE *f = fopen(log, "r");
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        for (told = 0; (at = strstr(at, "SYNC mono_ns")); at++) told++;
    }
}

static void costs(const char *calls)
{
    struct timespec a, b;
    void *p;
    long n = atol(calls);
    CHECK(cudaMalloc(&p, 4096) == 0);
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (long i = 0; i < n; i++) cudaFree(NULL);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%.2f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / (double)n);
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    pthread_t t;
    if (IS("runtime")) runtime();
    else if (IS("untracked")) untracked();
    else if (IS("expandable")) expandable();
    else if (IS("vmm_range")) vmm_range();
    else if (IS("caching")) caching();
    else if (IS("errno")) keeps_errno();
    else if (IS("collectives")) collectives();
    else if (IS("groups")) groups();
    else if (IS("ten")) ten();
    else if (IS("cancel")) CHECK(!pthread_create(&t, NULL, cancelled, fake_comm(2, 0, 0)) && !pthread_join(t, NULL));
    else if (IS("race")) race();
    else if (IS("threads")) threads();
    else if (IS("forks")) forks();
    else if (IS("forked_first")) forked_first();
    else if (IS("state")) state();
    else if (IS("beats")) beats(argv[2]);
    else if (IS("costs")) costs(argv[2]);
    else return 8;
    printf("calls %ld\n", fake_cuda_calls());
    return 0;
}
#endif
