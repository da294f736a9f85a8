#include "keymap.h"

#include <stdlib.h>
#include <string.h>

/* SipHash-2-4 with 128 bits (Aumasson, Bernstein): a keyed hash, so that nobody can make two keys meet on purpose. */

static inline uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static inline uint64_t little_endian(const uint8_t *bytes, size_t count)
{
    uint64_t word = 0;
    for (size_t i = 0; i < count; i++) /* compilers make one load of 8 of these */
        word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

static inline void sip_absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

static inline uint64_t sip_finish(uint64_t v[4])
{
    for (int i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void siphash128(const uint64_t seed[2], const uint8_t *data, size_t size, uint64_t hash[2])
{
    uint64_t v[4] = {
        seed[0] ^ UINT64_C(0x736f6d6570736575),
        seed[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
        seed[0] ^ UINT64_C(0x6c7967656e657261),
        seed[1] ^ UINT64_C(0x7465646279746573),
    };
    size_t whole = size - size % 8;
    for (size_t i = 0; i < whole; i += 8)
        sip_absorb(v, little_endian(data + i, 8));
    sip_absorb(v, (uint64_t)size << 56 | little_endian(data + whole, size - whole));
    v[2] ^= 0xee;
    hash[0] = sip_finish(v);
    v[1] ^= 0xdd;
    hash[1] = sip_finish(v);
}

/* The sizes that a table has, one after the other; 0 behind the last. */
static size_t next_size(const struct keymap *map, size_t slots)
{
    size_t total = map->memory_bytes / sizeof(struct slot);
    size_t last = total - total / 16;
    if (last <= map->capacity) /* a bound of a few bytes; probing needs a slot that is free */
        last = map->capacity + 1;
    size_t steps[] = {total / 256, total / 16, last};
    for (int i = 0; i < 3; i++)
        if (steps[i] > slots && (steps[i] >= 1024 || i == 2))
            return steps[i];
    return 0;
}

bool keymap_init(struct keymap *map, size_t memory_bytes, const uint8_t *seed)
{
    const size_t most = (size_t)UINT32_MAX * sizeof(struct slot); /* the home of a hash is found with 32 bits of it */
    memset(map, 0, sizeof *map);
    map->seed[0] = little_endian(seed, 8);
    map->seed[1] = little_endian(seed + 8, 8);
    map->memory_bytes = memory_bytes < most ? memory_bytes : most;
    map->capacity = map->memory_bytes / KEYMAP_BYTES_PER_KEY;
    return keymap_clear(map);
}

void keymap_free(struct keymap *map)
{
    free(map->table);
    map->table = NULL;
    map->slots = map->used = 0;
}

bool keymap_clear(struct keymap *map)
{
    size_t slots = next_size(map, 0);
    struct slot *table = calloc(slots, sizeof *table);
    if (table == NULL)
        return false;
    keymap_free(map);
    map->table = table;
    map->slots = slots;
    return true;
}

/* Where the search for a hash begins. */
static inline size_t home(const struct keymap *map, const uint64_t hash[2])
{
    return (size_t)((hash[0] >> 32) * (uint64_t)map->slots >> 32);
}

/* The slot of this hash, or the free one where it would be. There always is one: a table never gets full. */
static struct slot *find(const struct keymap *map, const uint64_t hash[2])
{
    size_t at = home(map, hash);
    for (;;) {
        struct slot *slot = &map->table[at];
        if (slot->offset == 0 || (slot->hash[0] == hash[0] && slot->hash[1] == hash[1]))
            return slot;
        if (++at == map->slots)
            at = 0;
    }
}

static bool grow(struct keymap *map)
{
    struct keymap larger = *map;
    larger.slots = next_size(map, map->slots);
    larger.table = calloc(larger.slots, sizeof *larger.table);
    if (larger.table == NULL)
        return false;
    for (size_t i = 0; i < map->slots; i++)
        if (map->table[i].offset != 0)
            *find(&larger, map->table[i].hash) = map->table[i];
    free(map->table);
    *map = larger;
    return true;
}

struct hashed keymap_hash(const struct keymap *map, const uint8_t *key, size_t size)
{
    struct hashed found;
    siphash128(map->seed, key, size, found.hash);
#ifdef __GNUC__
    __builtin_prefetch(&map->table[home(map, found.hash)]);
#endif
    return found;
}

enum put keymap_put(struct keymap *map, struct hashed key, int64_t offset)
{
    struct slot *slot = find(map, key.hash);
    uint64_t stored = (uint64_t)offset + 1;
    if (slot->offset != 0) {
        if (slot->offset < stored)
            slot->offset = stored;
        return PUT;
    }
    if (map->used >= map->capacity)
        return PUT_NO_ROOM;
    if (map->used >= map->slots / 5 * 4 && next_size(map, map->slots) != 0) {
        if (!grow(map))
            return PUT_NO_MEMORY;
        slot = find(map, key.hash);
    }
    *slot = (struct slot){.hash = {key.hash[0], key.hash[1]}, .offset = stored};
    map->used++;
    return PUT;
}

int64_t keymap_get(const struct keymap *map, struct hashed key)
{
    return (int64_t)(find(map, key.hash)->offset - 1);
}
