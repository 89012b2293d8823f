/* Markers out through NVTX: the domain, the text writer, the payload schemas, the settings. */
#define _GNU_SOURCE
#include "emit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include "books.h"
#include "interpose.h"

#ifndef TRACEKIT_VERSION
#define TRACEKIT_VERSION "0"
#endif

_Atomic int tk_state = TK_FRESH;
_Thread_local struct tk_thread tk_thread;

enum { FORM_TEXT = 1, FORM_PAYLOAD = 2 };

static nvtxDomainHandle_t domain;
static int form = FORM_TEXT;
static uint64_t min_bytes = 1 << 20;
static uint64_t period_ms = 10000;
static uint64_t schema_id[TK_EVENT_COUNT];
static nvtxStringHandle_t message[TK_EVENT_COUNT];
static _Atomic bool heart_busy;

/* ---- the tables of markers.h, as data ---- */

enum kind { HEX, U64, I32, U8, SOURCE, OP, DTYPE, REDOP, COMM_EVENT, GROUP_EVENT };

/* Short texts are padded to a fixed size: copying them all is a few moves, and then only the
 * length counts. */
enum { KEY_BYTES = 16, WORD_BYTES = 24 };

struct field {
    char key[KEY_BYTES]; /* with the blank before and the sign after */
    const char *name;
    uint8_t length;
    uint8_t kind;
    uint16_t offset;
};

#define FIELD(type, name, kind) \
    {" " #name "=", #name, sizeof " " #name "=" - 1, kind, offsetof(struct type, name)},
#define K(name, kind) FIELD(tk_SYNC, name, kind)
static const struct field fields_SYNC[] = {TK_KEYS_SYNC(K)};
#undef K
#define K(name, kind) FIELD(tk_ALLOC, name, kind)
static const struct field fields_ALLOC[] = {TK_KEYS_ALLOC(K)};
#undef K
#define K(name, kind) FIELD(tk_FREE, name, kind)
static const struct field fields_FREE[] = {TK_KEYS_FREE(K)};
#undef K
#define K(name, kind) FIELD(tk_COLL, name, kind)
static const struct field fields_COLL[] = {TK_KEYS_COLL(K)};
#undef K
#define K(name, kind) FIELD(tk_COLL_FAILED, name, kind)
static const struct field fields_COLL_FAILED[] = {TK_KEYS_COLL_FAILED(K)};
#undef K
#define K(name, kind) FIELD(tk_COMM, name, kind)
static const struct field fields_COMM[] = {TK_KEYS_COMM(K)};
#undef K
#define K(name, kind) FIELD(tk_GROUP, name, kind)
static const struct field fields_GROUP[] = {TK_KEYS_GROUP(K)};
#undef K

struct event {
    const char *name, *schema, *message;
    const struct field *fields;
    uint8_t length, count, category;
    uint16_t size;
};

static const struct event events[TK_EVENT_COUNT] = {
#define X(event, name, category)                                                        \
    {#event, "tracekit." #name, "tk." #name, fields_##event, sizeof #event - 1,         \
     sizeof fields_##event / sizeof *fields_##event, TK_CATEGORY_##category, sizeof(struct tk_##event)},
    TK_EVENTS(X)
#undef X
};

struct word {
    char text[WORD_BYTES];
    uint8_t length;
};

#define X(number, name, ...) [number] = {#name, sizeof #name - 1},
static const struct word sources[] = {TK_SOURCES(X)};
static const struct word ops[] = {TK_OPS(X)};
static const struct word dtypes[] = {TK_DTYPES(X)};
static const struct word redops[] = {TK_REDOPS(X)};
static const struct word comm_events[] = {TK_COMM_EVENTS(X)};
static const struct word group_events[] = {TK_GROUP_EVENTS(X)};
#undef X

/* The word for a number; NULL if it has none. */
static const struct word *word(enum kind kind, uint8_t number)
{
#define PICK(table) (number < sizeof table / sizeof *table && table[number].length ? &table[number] : NULL)
    switch (kind) {
    case SOURCE: return PICK(sources);
    case OP: return PICK(ops);
    case DTYPE: return PICK(dtypes);
    case REDOP: return PICK(redops);
    case COMM_EVENT: return PICK(comm_events);
    case GROUP_EVENT: return PICK(group_events);
    default: return NULL;
    }
#undef PICK
}

/* ---- text ---- */

enum { TEXT_BYTES = 512 }; /* COLL with every value at its widest is 313, and a padded copy more */

static char *put_text(char *at, const char *text, size_t length)
{
    memcpy(at, text, length);
    return at + length;
}

static char *put_decimal(char *at, uint64_t value)
{
    char digits[20];
    int n = 0;
    do digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n) *at++ = digits[--n];
    return at;
}

static char *put_signed(char *at, int64_t value)
{
    if (value < 0) *at++ = '-';
    return put_decimal(at, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

static char *put_hex(char *at, uint64_t value)
{
    int nibbles = value ? (67 - __builtin_clzll(value)) / 4 : 1;
    *at++ = '0';
    *at++ = 'x';
    while (nibbles--) *at++ = "0123456789abcdef"[(value >> (4 * nibbles)) & 15];
    return at;
}

static char *put_key(char *at, const struct field *field)
{
    memcpy(at, field->key, KEY_BYTES);
    return at + field->length;
}

static char *put_word(char *at, const struct word *word)
{
    memcpy(at, word->text, WORD_BYTES);
    return at + word->length;
}

static char *put_field(char *at, const struct field *field, const char *fields)
{
    const char *from = fields + field->offset;
    if (field->kind == HEX || field->kind == U64) {
        uint64_t value;
        memcpy(&value, from, sizeof value);
        if (value == TK_UNKNOWN_U64) return at;
        at = put_key(at, field);
        return field->kind == HEX ? put_hex(at, value) : put_decimal(at, value);
    }
    if (field->kind == I32) {
        int32_t value;
        memcpy(&value, from, sizeof value);
        return value == TK_UNKNOWN_I32 ? at : put_signed(put_key(at, field), value);
    }
    uint8_t value = *(const uint8_t *)from;
    if (value == TK_UNKNOWN_U8) return at;
    const struct word *name = word(field->kind, value);
    at = put_key(at, field);
    return name ? put_word(at, name) : put_decimal(at, value);
}

static void put_event(char *text, const struct event *event, const void *fields)
{
    char *at = put_text(text, event->name, event->length);
    for (int i = 0; i < event->count; i++) at = put_field(at, &event->fields[i], fields);
    *at = 0;
}

/* ---- NVTX ---- */

static nvtxEventAttributes_t attributes(uint32_t category)
{
    nvtxEventAttributes_t a;
    memset(&a, 0, sizeof a);
    a.version = NVTX_VERSION;
    a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    a.category = category;
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    return a;
}

/* Sends one event, as a mark or as the start of a range. */
static void send(enum tk_event id, const void *fields, bool push)
{
    const struct event *event = &events[id];
    int saved = errno;
    char text[TEXT_BYTES];
    nvtxEventAttributes_t a = attributes(event->category);
    nvtxPayloadData_t payload = {schema_id[id], event->size, fields};
    if (schema_id[id]) {
        a.payloadType = (int32_t)NVTX_PAYLOAD_TYPE_EXT;
        a.reserved0 = 1; /* how many payloads */
        a.payload.ullValue = (uint64_t)(uintptr_t)&payload;
    }
    if ((form & FORM_TEXT) || !schema_id[id]) {
        put_event(text, event, fields);
        a.message.ascii = text;
    } else if (message[id]) {
        a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
        a.message.registered = message[id];
    } else {
        a.message.ascii = event->message;
    }
    tk_thread.emitting++;
    if (push) nvtxDomainRangePushEx(domain, &a);
    else nvtxDomainMarkEx(domain, &a);
    tk_thread.emitting--;
    errno = saved;
}

void tk_mark(enum tk_event event, const void *fields)
{
    if (atomic_load_explicit(&tk_state, memory_order_acquire) == TK_READY)
        send(event, fields, false);
}

bool tk_push(enum tk_event event, const void *fields)
{
    if (atomic_load_explicit(&tk_state, memory_order_acquire) != TK_READY) return false;
    send(event, fields, true);
    return true;
}

void tk_pop(void)
{
    int saved = errno;
    tk_thread.emitting++;
    nvtxDomainRangePop(domain);
    tk_thread.emitting--;
    errno = saved;
}

void tk_meta(bool again)
{
    static const char *const forms[] = {"", "text", "payload", "both"};
    int saved = errno;
    char text[TEXT_BYTES], *at = text;
    nvtxEventAttributes_t a = attributes(TK_CATEGORY_meta);
#define PUT(literal) at = put_text(at, literal, sizeof literal - 1)
    PUT("META version=" TRACEKIT_VERSION " grammar=" TK_GRAMMAR " pid=");
    at = put_decimal(at, (uint64_t)getpid());
    PUT(" markers=");
    at = put_text(at, forms[form], strlen(forms[form]));
    PUT(" dlsym=");
    at = put_decimal(at, (uint64_t)tk_dlsym_hooked());
    PUT(" min_bytes=");
    at = put_decimal(at, min_bytes);
    PUT(" again=");
    at = put_decimal(at, again);
#undef PUT
    *at = 0;
    a.message.ascii = text;
    tk_thread.emitting++;
    nvtxDomainMarkEx(domain, &a);
    tk_thread.emitting--;
    errno = saved;
}

void tk_sync(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    TK_EVENT(tk_SYNC, sync);
    sync.mono_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    tk_mark(TK_SYNC, &sync);
}

uint64_t tk_min_bytes(void) { return min_bytes; }

/* ---- start and stop ---- */

static uint64_t number_setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    char *end = NULL;
    if (!text || *text < '0' || *text > '9') return otherwise;
    unsigned long long value = strtoull(text, &end, 10);
    return *end ? otherwise : value;
}

static void read_settings(void)
{
    const char *markers = getenv("TRACEKIT_MARKERS");
    if (markers && !strcmp(markers, "payload")) form = FORM_PAYLOAD;
    else if (markers && !strcmp(markers, "both")) form = FORM_TEXT | FORM_PAYLOAD;
    min_bytes = number_setting("TRACEKIT_MIN_BYTES", min_bytes);
    period_ms = number_setting("TRACEKIT_PERIOD_MS", period_ms);
}

static void register_schema(enum tk_event id)
{
    static const uint8_t types[] = {
        [HEX] = NVTX_PAYLOAD_ENTRY_TYPE_UINT64, [U64] = NVTX_PAYLOAD_ENTRY_TYPE_UINT64,
        [I32] = NVTX_PAYLOAD_ENTRY_TYPE_INT32,  [U8] = NVTX_PAYLOAD_ENTRY_TYPE_UINT8,
    };
    const struct event *event = &events[id];
    nvtxPayloadSchemaEntry_t entries[16];
    nvtxPayloadSchemaAttr_t schema;
    memset(entries, 0, sizeof entries);
    memset(&schema, 0, sizeof schema);
    for (int i = 0; i < event->count; i++) {
        entries[i].type = types[event->fields[i].kind < U8 ? event->fields[i].kind : U8];
        entries[i].name = event->fields[i].name;
        entries[i].offset = event->fields[i].offset;
    }
    schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
    schema.name = event->schema;
    schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
    schema.entries = entries;
    schema.numEntries = event->count;
    schema.payloadStaticSize = event->size;
    schema_id[id] = nvtxPayloadSchemaRegister(domain, &schema);
    message[id] = nvtxDomainRegisterStringA(domain, event->message);
}

/* Capture tools lose what came before they record, and a program that replays graphs makes no call
 * that we could ride on: a thread of our own emits the state again and again. */
static void *heartbeat(void *unused)
{
    const struct timespec period = {(time_t)(period_ms / 1000),
                                    (long)(period_ms % 1000) * 1000000};
    for (;;) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &period, NULL);
        atomic_store(&heart_busy, true);
        if (atomic_load(&tk_state) == TK_READY) tk_retell();
        atomic_store(&heart_busy, false);
        if (atomic_load(&tk_state) != TK_READY) return unused;
    }
}

static void start_heartbeat(void)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    if (!period_ms || pthread_attr_init(&attr)) return;
    sigfillset(&all);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's signals are not for our thread */
    if (!pthread_create(&thread, &attr, heartbeat, NULL)) pthread_setname_np(thread, "tracekit");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
}

/* Before the tool's library is torn down: say nothing more, and let the heartbeat finish. */
static void stop_at_exit(void)
{
    atomic_store(&tk_state, TK_OFF);
    for (int i = 0; i < 100000 && atomic_load(&heart_busy); i++) sched_yield();
}

/* CUDA does not survive a fork and the tool's locks may be held by threads that are gone: a child
 * forked after the first wrapped call only passes calls through. One forked before starts anew. */
static void stop_in_child(void)
{
    tk_thread.cuda = tk_thread.nccl = tk_thread.emitting = 0;
    atomic_store(&heart_busy, false);
    if (atomic_load(&tk_state) != TK_FRESH) atomic_store(&tk_state, TK_OFF);
}

void tk_start(void)
{
    int fresh = TK_FRESH, saved = errno;
    if (!atomic_compare_exchange_strong(&tk_state, &fresh, TK_STARTING)) return;
    tk_thread.emitting++;
    pthread_atfork(NULL, NULL, stop_in_child);
    domain = nvtxDomainCreateA(TK_DOMAIN);
    if (domain) {
        read_settings();
#define X(number, name) nvtxDomainNameCategoryA(domain, number, #name);
        TK_CATEGORIES(X)
#undef X
        for (int id = 0; (form & FORM_PAYLOAD) && id < TK_EVENT_COUNT; id++)
            register_schema((enum tk_event)id);
        atexit(stop_at_exit);
    }
    tk_thread.emitting--;
    atomic_store_explicit(&tk_state, domain ? TK_READY : TK_OFF, memory_order_release);
    if (domain) {
        tk_tell(false);
        start_heartbeat();
    }
    errno = saved;
}
