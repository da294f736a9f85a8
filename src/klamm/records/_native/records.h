/* One record inside the uncompressed payload of a batch. Plain C, no Python: reads any bytes, never outside of them.
 *
 * Every byte is looked at once and then worked with as a number, so that a payload that somebody changes meanwhile (a
 * bytearray, while the interpreter lock is not held) may give nonsense, but no access out of bounds. */

#ifndef KLAMM_RECORDS_H
#define KLAMM_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#define MAX_PAYLOAD_BYTES ((size_t)1 << 30) /* positions and lengths fit into 32 bits */
#define MIN_RECORD_BYTES 7                  /* with its length */
#define MIN_HEADER_BYTES 2
#define MAX_VARLONG_BYTES 10
#define MAX_SHIFT_GROWTH 10 /* by which a record grows if its timestamp delta does, from 1 byte, and its length with it */

enum damage { /* what is wrong with a payload; damage_text says it in words */
    SOUND = 0,
    TOO_LARGE,
    TOO_MANY_RECORDS,
    ENDS_EARLY,
    BAD_VARINT,
    BAD_LENGTH,
    BAD_FIELD,
    BAD_HEADERS,
    BAD_OFFSET_DELTA,
    BAD_BASE_OFFSET,
    BAD_TIMESTAMP,
    BYTES_LEFT,
    NO_MEMORY, /* not the payload's fault */
};

const char *damage_text(enum damage what);

/* Where a walk over the records of a payload is. */
struct walk {
    const uint8_t *data;
    size_t size;
    size_t pos;
    int64_t left; /* records to come */
    int32_t last_delta;
    int32_t max_delta; /* the header's last offset delta */
};

struct record {
    size_t start;         /* with its length */
    size_t body;          /* behind its length: the attributes */
    size_t timestamp_end; /* behind the timestamp delta */
    size_t end;
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_bytes; /* -1: none */
    int32_t value_bytes;
    size_t key;
    size_t value;
    size_t headers; /* where their number is */
};

enum damage walk_start(struct walk *walk, const void *data, size_t size, int64_t count, int32_t last_delta);
enum damage walk_next(struct walk *walk, struct record *record); /* only while walk->left > 0 */
enum damage walk_end(const struct walk *walk);

/* Headers of a record, one by one. */
enum damage headers_start(const struct walk *walk, const struct record *record, size_t *pos, int32_t *count);
struct field {
    size_t start;
    int32_t bytes; /* -1: none */
};
enum damage header_next(const struct walk *walk, size_t end, size_t *pos, struct field *key, struct field *value);

size_t write_varlong(uint8_t *out, int64_t value); /* at most MAX_VARLONG_BYTES */

/* The record with another timestamp delta; at most MAX_SHIFT_GROWTH bytes longer than it was. */
size_t write_shifted(uint8_t *out, const struct walk *walk, const struct record *record, int64_t timestamp_delta);

enum damage check_base(int64_t base_offset, int32_t last_delta);

#endif
