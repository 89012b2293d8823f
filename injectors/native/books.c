#define _GNU_SOURCE
#include "books.h"

#include <stdatomic.h>
#include <stddef.h>

#include "emit.h"

/* Open addressing over a fixed window of slots. A key is claimed with one compare-and-swap and
 * published after its words, so a reader that sees the key sees them; a slot given back is reused
 * but never becomes empty, so a search may stop at the first empty slot. When a window is full the
 * block is not entered: nobody waits, nothing is allocated. */
enum { WORDS = 4, WINDOW = 64, BLOCKS = 1 << 18, COMMS = 1 << 10 };

#define EMPTY UINT64_C(0)
#define GIVEN_BACK UINT64_C(1)
#define CLAIMED UINT64_C(2)

struct entry {
    _Atomic uint64_t word[WORDS];
};
struct table {
    _Atomic uint64_t *key;
    struct entry *entry;
    uint32_t slots;
};

static _Atomic uint64_t block_keys[BLOCKS], comm_keys[COMMS];
static struct entry block_entries[BLOCKS], comm_entries[COMMS];
static const struct table blocks = {block_keys, block_entries, BLOCKS};
static const struct table comms = {comm_keys, comm_entries, COMMS};
static _Atomic bool lost;

static uint32_t first_slot(const struct table *table, uint64_t key)
{
    return (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 40) & (table->slots - 1);
}

static struct entry *find(const struct table *table, uint64_t key, uint32_t *slot)
{
    uint32_t at = first_slot(table, key);
    for (int i = 0; i < WINDOW; i++, at = (at + 1) & (table->slots - 1)) {
        uint64_t seen = atomic_load_explicit(&table->key[at], memory_order_acquire);
        if (seen == EMPTY) return NULL;
        if (seen != key) continue;
        if (slot) *slot = at;
        return &table->entry[at];
    }
    return NULL;
}

static void write_words(struct entry *entry, const uint64_t *words)
{
    for (int w = 0; w < WORDS; w++)
        atomic_store_explicit(&entry->word[w], words[w], memory_order_relaxed);
}

static bool put(const struct table *table, uint64_t key, const uint64_t *words)
{
    struct entry *known = find(table, key, NULL);
    if (known) { /* its end was not seen: the new block is what is true now */
        write_words(known, words);
        return true;
    }
    uint32_t at = first_slot(table, key);
    for (int i = 0; i < WINDOW; i++, at = (at + 1) & (table->slots - 1)) {
        uint64_t seen = atomic_load_explicit(&table->key[at], memory_order_relaxed);
        if (seen != EMPTY && seen != GIVEN_BACK) continue;
        if (!atomic_compare_exchange_strong(&table->key[at], &seen, CLAIMED)) continue;
        write_words(&table->entry[at], words);
        atomic_store_explicit(&table->key[at], key, memory_order_release);
        return true;
    }
    return false;
}

static bool read_words(const struct table *table, uint32_t at, uint64_t key, uint64_t *words)
{
    for (int w = 0; w < WORDS; w++)
        words[w] = atomic_load_explicit(&table->entry[at].word[w], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&table->key[at], memory_order_relaxed) == key;
}

static bool take(const struct table *table, uint64_t key, uint64_t *words)
{
    uint32_t at;
    if (!find(table, key, &at) || !read_words(table, at, key, words)) return false;
    return atomic_compare_exchange_strong(&table->key[at], &key, GIVEN_BACK);
}

/* ---- blocks: words are bytes, handle, stream, and space, source and device packed ---- */

/* 0 if the key cannot be kept (the two top bits make room for the space). */
static uint64_t block_key(enum tk_space space, uint64_t key)
{
    uint64_t packed = key << 2 | (uint64_t)space;
    return key >> 62 || packed <= CLAIMED ? 0 : packed;
}

static void pack(const struct tk_block *block, uint64_t *words)
{
    words[0] = block->bytes;
    words[1] = block->handle;
    words[2] = block->stream;
    words[3] = (uint64_t)block->source << 32 | (uint32_t)block->device;
}

static void unpack(uint64_t key, const uint64_t *words, struct tk_block *block)
{
    block->space = (enum tk_space)(key & 3);
    block->addr = block->space == TK_HANDLE ? TK_UNKNOWN_U64 : key >> 2;
    block->bytes = words[0];
    block->handle = words[1];
    block->stream = words[2];
    block->source = (enum tk_source)(words[3] >> 32);
    block->device = (int32_t)(uint32_t)words[3];
}

void tk_block_put(const struct tk_block *block)
{
    uint64_t key = block_key(block->space, block->space == TK_HANDLE ? block->handle : block->addr);
    uint64_t words[WORDS];
    pack(block, words);
    if (!key || !put(&blocks, key, words)) atomic_store_explicit(&lost, true, memory_order_relaxed);
}

bool tk_block_take(enum tk_space space, uint64_t key, struct tk_block *block)
{
    uint64_t words[WORDS], packed = block_key(space, key);
    if (!packed || !take(&blocks, packed, words)) return false;
    unpack(packed, words, block);
    return true;
}

bool tk_block_find(enum tk_space space, uint64_t key, struct tk_block *block)
{
    uint64_t words[WORDS], packed = block_key(space, key);
    uint32_t at;
    if (!packed || !find(&blocks, packed, &at) || !read_words(&blocks, at, packed, words))
        return false;
    unpack(packed, words, block);
    return true;
}

bool tk_blocks_lost(void) { return atomic_load_explicit(&lost, memory_order_relaxed); }

/* ---- communicators: words are nranks and rank, device, seq, p2p_seq ---- */

static struct tk_comm comm_of(const uint64_t *words)
{
    struct tk_comm is = {(int32_t)(words[0] >> 32), (int32_t)(uint32_t)words[0],
                         (int32_t)(uint32_t)words[1]};
    return is;
}

void tk_comm_put(uint64_t comm, struct tk_comm is)
{
    const uint64_t words[WORDS] = {(uint64_t)(uint32_t)is.nranks << 32 | (uint32_t)is.rank,
                                   (uint32_t)is.device, 0, 0};
    if (comm > CLAIMED) put(&comms, comm, words);
}

void tk_comm_learn(uint64_t comm, struct tk_comm is)
{
    struct entry *entry = comm > CLAIMED ? find(&comms, comm, NULL) : NULL;
    if (!entry) return;
    atomic_store_explicit(&entry->word[0], (uint64_t)(uint32_t)is.nranks << 32 | (uint32_t)is.rank,
                          memory_order_relaxed);
    atomic_store_explicit(&entry->word[1], (uint32_t)is.device, memory_order_relaxed);
}

bool tk_comm_find(uint64_t comm, struct tk_comm *is)
{
    uint64_t words[WORDS];
    uint32_t at;
    if (comm <= CLAIMED || !find(&comms, comm, &at) || !read_words(&comms, at, comm, words))
        return false;
    *is = comm_of(words);
    return true;
}

bool tk_comm_take(uint64_t comm, struct tk_comm *is)
{
    uint64_t words[WORDS];
    if (comm <= CLAIMED || !take(&comms, comm, words)) return false;
    *is = comm_of(words);
    return true;
}

uint64_t tk_comm_next(uint64_t comm, bool p2p)
{
    struct entry *entry = comm > CLAIMED ? find(&comms, comm, NULL) : NULL;
    if (!entry) return TK_UNKNOWN_U64;
    return atomic_fetch_add_explicit(&entry->word[p2p ? 3 : 2], 1, memory_order_relaxed);
}

/* ---- telling the state ---- */

static void tell_comms(void)
{
    for (uint32_t at = 0; at < comms.slots; at++) {
        uint64_t words[WORDS], key = atomic_load_explicit(&comms.key[at], memory_order_acquire);
        if (key <= CLAIMED || !read_words(&comms, at, key, words)) continue;
        struct tk_comm is = comm_of(words);
        TK_EVENT(tk_COMM, comm);
        comm.event = TK_COMM_init;
        comm.comm = key;
        comm.nranks = is.nranks;
        comm.rank = is.rank;
        comm.device = is.device;
        comm.rc = 0;
        comm.again = 1;
        tk_mark(TK_COMM, &comm);
    }
}

static void tell_blocks(uint64_t at_least)
{
    for (uint32_t at = 0; at < blocks.slots; at++) {
        uint64_t words[WORDS], key = atomic_load_explicit(&blocks.key[at], memory_order_acquire);
        if (key <= CLAIMED || !read_words(&blocks, at, key, words)) continue;
        struct tk_block block;
        unpack(key, words, &block);
        if (block.bytes < at_least) continue;
        TK_EVENT(tk_ALLOC, alloc);
        alloc.source = (uint8_t)block.source;
        alloc.addr = block.addr;
        alloc.bytes = block.bytes;
        alloc.handle = block.handle;
        alloc.stream = block.stream;
        alloc.device = block.device;
        alloc.rc = 0;
        alloc.again = 1;
        tk_mark(TK_ALLOC, &alloc);
    }
}

void tk_tell(bool again)
{
    tk_meta(again);
    tk_sync();
    tell_comms();
    tell_blocks(again ? tk_min_bytes() : 0);
}

void tk_retell(void) { tk_tell(true); }
