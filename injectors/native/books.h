/* What is alive: allocations and communicators, in fixed tables without locks. */
#ifndef TRACEKIT_BOOKS_H
#define TRACEKIT_BOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "markers.h"

/* Address spaces of keys: a mapping and the reservation that it lies in share one address. */
enum tk_space { TK_MEMORY, TK_HANDLE, TK_MAPPING, TK_RESERVATION };

/* One allocation, as the program requested it; unknown fields are all ones. */
struct tk_block {
    uint64_t addr, bytes, handle, stream;
    enum tk_space space;
    enum tk_source source;
    int32_t device;
};

/* A communicator, as far as it is known. */
struct tk_comm {
    int32_t nranks, rank, device;
};

void tk_block_put(const struct tk_block *block);
/* Takes a block out of the books; false if it was never seen. */
bool tk_block_take(enum tk_space space, uint64_t key, struct tk_block *block);
bool tk_block_find(enum tk_space space, uint64_t key, struct tk_block *block);
/* True once a block could not be entered: from then on "never seen" proves nothing. */
bool tk_blocks_lost(void);

void tk_comm_put(uint64_t comm, struct tk_comm is);   /* a new one: its counts start at 0 */
void tk_comm_learn(uint64_t comm, struct tk_comm is); /* more about one that is entered */
bool tk_comm_find(uint64_t comm, struct tk_comm *is);
bool tk_comm_take(uint64_t comm, struct tk_comm *is);
/* Next sequence number, all ones if unknown. Collectives are counted apart from sends and
 * receives: every rank makes the same collectives, so equal numbers are one collective. */
uint64_t tk_comm_next(uint64_t comm, bool p2p);

/* Emits the whole state: META, SYNC, communicators, live blocks of at least TRACEKIT_MIN_BYTES. The
 * first time every block: what other threads allocated while the first call was starting up. */
void tk_tell(bool again);
void tk_retell(void);

#endif
