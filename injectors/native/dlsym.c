/* dlsym, so that functions taken by name are wrapped too.
 *
 * The C library finds out who asks by the return address, and RTLD_NEXT and RTLD_DEFAULT depend on
 * it: a hook written in C that calls on answers for the wrong library, and calls itself for ever
 * when the compiler makes no tail call. So the hook is assembly: it asks `tk_pick`, and unless that
 * decides, jumps to the real dlsym with stack and registers as they came.
 *
 * Sanitizers look up their interceptors before they are ready: this file is built without them and
 * calls nothing that they intercept before the name is known to be one of ours.
 */
#define _GNU_SOURCE
#include "dlsym.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "interpose.h"

#define HIDDEN __attribute__((visibility("hidden")))

static void *no_dlsym(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

/* Calls may come before our constructor: constructors of other libraries run in any order. */
static void *first_dlsym(void *handle, const char *name);
HIDDEN tk_dlsym_function *tk_real_dlsym = first_dlsym;

static void find_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    const int saved = errno;
    tk_dlsym_function *found = NULL;
    for (unsigned i = 0; i < sizeof versions / sizeof *versions && !found; i++)
        found = (tk_dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    dlerror(); /* failed tries are not the program's errors */
    __atomic_store_n(&tk_real_dlsym, found ? found : no_dlsym, __ATOMIC_RELEASE);
    errno = saved;
}

static void *first_dlsym(void *handle, const char *name)
{
    find_dlsym();
    return tk_real_dlsym(handle, name);
}

__attribute__((constructor)) static void find_dlsym_early(void)
{
    if (tk_real_dlsym == first_dlsym) find_dlsym();
}

#if defined(__x86_64__)

int tk_dlsym_hooked(void)
{
    const char *setting = getenv("TRACEKIT_DLSYM");
    return !(setting && setting[0] == '0' && !setting[1]);
}

struct answer {
    void *found;
    long decided;
};
HIDDEN struct answer tk_pick(void *handle, const char *name, void *caller);

/* Decides what only we can answer: a name of ours in a library (our wrapper around it), and a name
 * of ours that nobody but we define (not there: a program without CUDA must not find it). */
struct answer tk_pick(void *handle, const char *name, void *caller)
{
    const struct answer ask_the_real = {NULL, 0}, absent = {NULL, 1};
    if (tk_real_dlsym == first_dlsym) find_dlsym();
    const int symbol = name ? tk_symbol_named(name) : -1;
    if (symbol < 0 || !tk_dlsym_hooked()) return ask_the_real;
    tk_function found = NULL;
    if (handle != RTLD_DEFAULT && handle != RTLD_NEXT) {
        found = (tk_function)tk_real_dlsym(handle, name);
        if (!found) return ask_the_real;
        found = tk_bind((enum tk_symbol)symbol, found);
    }
    if ((!found || tk_is_exported((enum tk_symbol)symbol, found)) &&
        !tk_exists((enum tk_symbol)symbol, caller)) {
        tk_real_dlsym(RTLD_NEXT, name); /* fails, and leaves the error that dlerror returns */
        return absent;
    }
    return found ? (struct answer){(void *)found, 1} : ask_the_real;
}

__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    mov (%rsp), %rdx\n"
        "    push %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    push %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    sub $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call tk_pick\n"
        "    add $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    pop %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    pop %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    test %rdx, %rdx\n"
        "    jne 1f\n"
        "    jmp *tk_real_dlsym(%rip)\n"
        "1:  ret\n"
        "    .cfi_endproc\n"
        ".size dlsym, . - dlsym\n");

#else /* other processors: not hooked; our own calls go to the C library */

int tk_dlsym_hooked(void) { return 0; }

#endif
