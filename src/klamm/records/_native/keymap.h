/* The last offset of each key, by the key's 128-bit SipHash, in a memory that is bounded. Plain C, no Python.
 *
 * Open addressing with linear probing over slots of 24 bytes. The table begins small and grows in two steps, so that a
 * few thousand keys stay in the processor's caches whatever the bound is: to 1/16 of the memory, then to the other
 * 15/16, which is all of it while the old table is still there. At KEYMAP_BYTES_PER_KEY the last one is 4/5 full. */

#ifndef KLAMM_KEYMAP_H
#define KLAMM_KEYMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEYMAP_BYTES_PER_KEY 32
#define KEYMAP_SEED_BYTES 16

struct slot {
    uint64_t hash[2];
    uint64_t offset; /* plus 1; 0: nobody is here */
};

struct keymap {
    uint64_t seed[2];
    size_t memory_bytes;
    size_t capacity;
    size_t used;
    size_t slots;
    struct slot *table;
};

enum put { PUT, PUT_NO_ROOM, PUT_NO_MEMORY };

/* A key as the map knows it. To look at its slot is a cache miss, mostly; so the bulk calls hash some keys ahead, which
 * asks the memory for their slots, and look at them when they have come. That makes them up to twice as fast. */
struct hashed {
    uint64_t hash[2];
};
#define KEYMAP_AHEAD 8

bool keymap_init(struct keymap *map, size_t memory_bytes, const uint8_t *seed); /* false: no memory */
void keymap_free(struct keymap *map);
bool keymap_clear(struct keymap *map); /* false: no memory, and the map is as it was */
struct hashed keymap_hash(const struct keymap *map, const uint8_t *key, size_t size);
enum put keymap_put(struct keymap *map, struct hashed key, int64_t offset);
int64_t keymap_get(const struct keymap *map, struct hashed key); /* -1: none */

void siphash128(const uint64_t seed[2], const uint8_t *data, size_t size, uint64_t hash[2]);

#endif
