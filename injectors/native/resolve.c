/* Where the real functions are.
 *
 * A symbol can have several real functions in one process: two NCCL versions, a runtime that Python
 * loaded privately next to a linked one. Each real function gets its own copy of the wrapper, a lane,
 * so a call always reaches the library that the caller meant. Lane 0 is the exported wrapper, for
 * callers bound by the loader: it looks up the real function by where it was called from. Lanes 1
 * to 3 are handed out by dlsym and the driver's lookups. When the lanes are used up the real
 * function is handed out as it is: unseen, but right.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <limits.h>
#include <string.h>

#include "dlsym.h"
#include "interpose.h"

_Atomic(tk_function) tk_real[TK_SYMBOL_COUNT][TK_LANES];
struct tk_site tk_sites[TK_SYMBOL_COUNT][TK_SITES];

/* The wrapped names, with their origins, and the library of each family. */
static const struct {
    const char *name;
    struct tk_origin origin;
} symbols[TK_SYMBOL_COUNT] = {
#define X(symbol, origin, ...) {#symbol, origin},
    TK_ALL_SYMBOLS(X)
#undef X
};
static const tk_function *const wrappers[TK_SYMBOL_COUNT] = {
#define X(symbol, ...) tk_wrappers_##symbol,
    TK_ALL_SYMBOLS(X)
#undef X
};
static const char *const libraries[] = {"libcudart.so", "libcuda.so", "libnccl.so"};

/* CUDA majors whose signatures are known. A later driver may answer with another one. */
enum { KNOWN_BEFORE = 14000 };

static bool is_wrapper(enum tk_symbol symbol, tk_function function)
{
    for (int lane = 0; lane < TK_LANES; lane++)
        if (wrappers[symbol][lane] == function) return true;
    return false;
}

int tk_symbol_named(const char *name)
{
    if (!((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'c'))) return -1;
    for (int symbol = 0; symbol < TK_SYMBOL_COUNT; symbol++)
        if (!strcmp(symbols[symbol].name, name)) return symbol;
    return -1;
}

/* ---- finding ---- */

struct search {
    const char *prefix;
    char path[PATH_MAX];
    int skip;
};

static int match_library(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    const char *base = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    if (!base || strncmp(base, search->prefix, strlen(search->prefix))) return 0;
    if (search->skip-- > 0 || strlen(info->dlpi_name) >= sizeof search->path) return 0;
    strcpy(search->path, info->dlpi_name);
    return 1;
}

static tk_function find_in(const char *path, const char *name)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return NULL;
    tk_function found = (tk_function)tk_real_dlsym(library, name);
    dlclose(library); /* gives back the reference only: it was loaded before */
    return found;
}

/* Finds a name in the loaded libraries whose file name begins so, also those loaded privately. */
tk_function tk_find_loaded(const char *library, const char *name)
{
    struct search search = {.prefix = library};
    for (int nth = 0; nth < 16; nth++) {
        search.skip = nth;
        if (!dl_iterate_phdr(match_library, &search)) return NULL;
        tk_function found = find_in(search.path, name);
        if (found) return found;
    }
    return NULL;
}

/* Finds a name in the library that a function lies in. */
tk_function tk_find_beside(tk_function function, const char *name)
{
    Dl_info info;
    if (!dladdr((void *)function, &info) || !info.dli_fname) return NULL;
    return find_in(info.dli_fname, name);
}

static bool lies_in(tk_function function, const char *library)
{
    Dl_info info;
    if (!dladdr((void *)function, &info) || !info.dli_fname) return false;
    const char *slash = strrchr(info.dli_fname, '/');
    return !strncmp(slash ? slash + 1 : info.dli_fname, library, strlen(library));
}

/* The real function for a caller that the loader bound to us: what it would have bound instead.
 * That is the next one in the global scope, unless both that one and the one among the caller's
 * own dependencies are the library itself (two majors of the runtime: symbol versions would show
 * them apart); a wrapper of somebody else in the global scope keeps its turn. A library that was
 * opened privately is in no scope that RTLD_NEXT sees: the caller's dependencies, else any. */
static tk_function search_real(enum tk_symbol symbol, void *caller)
{
    const char *name = symbols[symbol].name;
    const char *library = libraries[symbols[symbol].origin.family];
    tk_function next = (tk_function)tk_real_dlsym(RTLD_NEXT, name), own = NULL;
    if (!next || lies_in(next, library)) {
        own = tk_find_beside((tk_function)caller, name);
        if (own && (is_wrapper(symbol, own) || (next && !lies_in(own, library)))) own = NULL;
    }
    tk_function found = own ? own : next ? next : tk_find_loaded(library, name);
    dlerror(); /* failed tries are not the program's errors */
    return found;
}

/* Searches, and remembers the answer for this place in the caller's code. Places that do not fit
 * are searched for again each time: slow, but right. */
tk_function tk_find_real(enum tk_symbol symbol, void *caller)
{
    static char claimed;
    const int saved = errno;
    tk_function found = search_real(symbol, caller);
    struct tk_site *site = tk_first_site(symbol, caller);
    for (int i = 0; found && i < TK_SITES; i++, site = tk_next_site(symbol, site)) {
        void *nobody = NULL;
        if (!atomic_compare_exchange_strong(&site->caller, &nobody, (void *)&claimed)) continue;
        atomic_store_explicit(&site->real, found, memory_order_relaxed);
        atomic_store_explicit(&site->caller, caller, memory_order_release);
        break;
    }
    errno = saved;
    return found;
}

bool tk_exists(enum tk_symbol symbol, void *caller)
{
    return search_real(symbol, caller) != NULL;
}

bool tk_is_exported(enum tk_symbol symbol, tk_function function)
{
    return wrappers[symbol][0] == function;
}

/* ---- binding ---- */

tk_function tk_bind(enum tk_symbol symbol, tk_function real)
{
    if (is_wrapper(symbol, real)) return real;
    for (int lane = 1; lane < TK_LANES; lane++) {
        tk_function bound = NULL;
        if (atomic_compare_exchange_strong(&tk_real[symbol][lane], &bound, real) || bound == real)
            return wrappers[symbol][lane];
    }
    return real;
}

/* Whether a driver lookup of this name, version and stream answers with this symbol. */
static bool answers(const struct tk_origin *origin, const char *name, int version, bool thread_stream)
{
    if (!origin->lookup || strcmp(origin->lookup, name)) return false;
    if (origin->streams == TK_LEGACY_STREAM && thread_stream) return false;
    if (origin->streams == TK_THREAD_STREAM && !thread_stream) return false;
    return !version || version >= origin->since;
}

tk_function tk_bind_lookup(const char *name, tk_function found, int version, bool thread_stream)
{
    int best = -1, matches = 0;
    for (int symbol = 0; symbol < TK_SYMBOL_COUNT; symbol++) {
        const struct tk_origin *origin = &symbols[symbol].origin;
        if (!answers(origin, name, version, thread_stream)) continue;
        matches++;
        if (best < 0 || origin->since > symbols[best].origin.since) best = symbol;
    }
    if (best < 0 || (!version && matches > 1)) return found; /* which signature is not certain */
    if (version >= KNOWN_BEFORE && !is_wrapper((enum tk_symbol)best, found) &&
        tk_find_beside(found, symbols[best].name) != found)
        return found;
    return tk_bind((enum tk_symbol)best, found);
}
