/* Small libraries, picked by a macro. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef CHAIN_TOP /* asks for the next one after itself, also from its constructor */
int chain_who(void);
static int (*next_)(void);
__attribute__((constructor)) static void early(void) { next_ = (int (*)(void))dlsym(RTLD_NEXT, "chain_who"); }
int chain_who(void)
{
    int (*again)(void) = (int (*)(void))dlsym(RTLD_NEXT, "chain_who");
    int (*first)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "chain_who");
    return next_ && again == next_ && first ? 1 + next_() : 0;
}
#endif
#ifdef CHAIN_BASE
int chain_who(void) { return 2; }
#endif

#ifdef PRIVATE_USER /* linked to its libraries, and opened privately: they are in nobody's global scope */
#include "cuda.h"
void go(void)
{
    void *p;
    if (cudaMalloc(&p, 4096) || ncclAllReduce(NULL, NULL, 256, 7, 0, fake_comm(2, 1, 0), NULL)) abort();
}
#endif

#ifdef RUNTIME_USER /* linked to one runtime, which has its own version in its file name */
#include "cuda.h"
long fake_cudart_calls(void);
void go(void)
{
    void *p;
    if (cudaMalloc(&p, 4096)) abort();
}
#endif

#ifdef EARLY_USER /* calls from its constructor */
#include "cuda.h"
static void *p;
__attribute__((constructor)) static void early(void) { if (cudaMalloc(&p, 12345)) abort(); }
void go(void) {}
#endif

#ifdef NEIGHBOUR_USER /* finds its neighbour through its own $ORIGIN */
void go(void) { if (!dlopen("libneighbour.so", RTLD_NOW)) { fprintf(stderr, "%s\n", dlerror()); abort(); } }
#endif
#ifdef NEIGHBOUR
int neighbour;
#endif

#ifdef OTHER_PRELOAD /* another tool that wraps cudaMalloc */
int cudaMalloc(void **p, size_t n)
{
    static int (*real)(void **, size_t);
    if (!real) real = (int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc");
    fputs("other saw cudaMalloc\n", stderr);
    return real(p, n);
}
#endif
