/* A stand-in for a profiler: writes every NVTX event that it is told to $LISTENER_LOG, one line
 * each, or only counts them ($LISTENER_COUNT) and writes the totals at exit. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

struct domain { char name[64]; };
struct schema { char name[64]; };
static struct domain domains[16];
static const char *strings[64];
static _Atomic int n_domains, n_schemas = 1, n_strings;
static int out = -1;
static int counting;
static _Atomic long pushes, pops, marks, allocs, frees, bad;
static _Atomic long depth_errors;
static _Thread_local int depth;

static void line(const char *text, int n)
{
    if (!counting && write(out, text, (size_t)n) != n) abort();
}

static int payload_hex(char *at, const nvtxEventAttributes_t *a)
{
    if (a->payloadType != (int32_t)NVTX_PAYLOAD_TYPE_EXT) return sprintf(at, "-");
    const nvtxPayloadData_t *p = (const nvtxPayloadData_t *)(uintptr_t)a->payload.ullValue;
    int n = sprintf(at, "%lu:", (unsigned long)p->schemaId);
    for (size_t i = 0; i < p->size; i++)
        n += sprintf(at + n, "%02x", ((const unsigned char *)p->payload)[i]);
    return n;
}

static const char *text_of(const nvtxEventAttributes_t *a)
{
    if (a->messageType == NVTX_MESSAGE_TYPE_REGISTERED)
        return strings[(uintptr_t)a->message.registered - 1];
    return a->messageType == NVTX_MESSAGE_TYPE_ASCII ? a->message.ascii : "?";
}

static void event(const char *what, nvtxDomainHandle_t d, const nvtxEventAttributes_t *a)
{
    char buffer[2048];
    int n = sprintf(buffer, "%s\t%ld\t%s\t%u\t", what, syscall(SYS_gettid),
                    d ? ((struct domain *)d)->name : "", a->category);
    n += payload_hex(buffer + n, a);
    n += sprintf(buffer + n, "\t%s\n", text_of(a));
    line(buffer, n);
    errno = 77; /* a tool that is careless with errno */
}

static void on_mark(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a)
{
    if (!counting) { event("mark", d, a); return; }
    const char *text = text_of(a);
    marks++;
    if (!strncmp(text, "ALLOC source=cudaMalloc addr=0x", 31)) allocs++;
    else if (!strncmp(text, "FREE source=cudaFree addr=0x", 28) && strstr(text, " bytes=4096 ")) frees++;
    else if (strncmp(text, "META ", 5) && strncmp(text, "SYNC ", 5) && strncmp(text, "COMM ", 5)) bad++;
}

static int on_push(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a)
{
    if (counting) pushes++;
    else event("push", d, a);
    return depth++;
}

static int on_pop(nvtxDomainHandle_t d)
{
    char buffer[128];
    if (counting) pops++;
    else line(buffer, sprintf(buffer, "pop\t%ld\t%s\n", syscall(SYS_gettid),
                              d ? ((struct domain *)d)->name : ""));
    if (--depth < 0) depth_errors++;
    return depth;
}

static nvtxDomainHandle_t on_domain(const char *name)
{
    struct domain *d = &domains[n_domains++];
    char buffer[128];
    if (getenv("LISTENER_DEAF")) return NULL;
    if (getenv("LISTENER_SLOW")) usleep(50000); /* a tool that takes its time to start */
    strncpy(d->name, name, sizeof d->name - 1);
    line(buffer, sprintf(buffer, "domain\t%s\n", name));
    return (nvtxDomainHandle_t)d;
}

static nvtxStringHandle_t on_string(nvtxDomainHandle_t d, const char *text)
{
    (void)d;
    strings[n_strings] = strdup(text);
    return (nvtxStringHandle_t)(uintptr_t)++n_strings;
}

static uint64_t on_schema(nvtxDomainHandle_t d, const nvtxPayloadSchemaAttr_t *a)
{
    char buffer[2048];
    uint64_t id = (uint64_t)n_schemas++;
    int n = sprintf(buffer, "schema\t%lu\t%s\t%zu\t", (unsigned long)id, a->name, a->payloadStaticSize);
    (void)d;
    for (size_t i = 0; i < a->numEntries; i++)
        n += sprintf(buffer + n, "%s%s:%lu:%lu", i ? "," : "", a->entries[i].name,
                     (unsigned long)a->entries[i].type, (unsigned long)a->entries[i].offset);
    buffer[n++] = '\n';
    line(buffer, n);
    return id;
}

static void totals(void)
{
    char buffer[512];
    counting = 0;
    line(buffer, sprintf(buffer, "totals\tallocs=%ld frees=%ld pushes=%ld pops=%ld bad=%ld depth_errors=%ld\n",
                         allocs, frees, pushes, pops, bad, depth_errors));
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned n;
    const char *log = getenv("LISTENER_LOG");
    if (!callbacks || !log || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &n)) return 0;
    if (out < 0) {
        out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        counting = getenv("LISTENER_COUNT") != NULL;
        if (counting) atexit(totals);
    }
    *table[NVTX_CBID_CORE2_DomainMarkEx] = (NvtxFunctionPointer)on_mark;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)on_push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)on_pop;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)on_domain;
    *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)on_string;
    return 1;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module)
{
    if (getenv("LISTENER_NO_PAYLOAD")) return 0;
    module->segments[0].functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] = (intptr_t)on_schema;
    return 1;
}
