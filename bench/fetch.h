/* Fetch requests (v11, no session) over all partitions of one topic, and a walk through their answers. */
#ifndef BENCH_FETCH_H
#define BENCH_FETCH_H

#include "kafka.h"

/* A request that is sent again and again with other offsets. */
struct fetch {
    struct bytes request;
    size_t first; /* where in the request the first partition is */
    int partitions;
};

void put_fetch(struct fetch *fetch, const char *topic, int partitions, int32_t max_bytes);
/* Some of its partitions only. */
void put_fetch_of(struct fetch *fetch, const char *topic, const int *indexes, int count, int32_t max_bytes);
void set_fetch_offset(struct fetch *fetch, int partition, int64_t offset);
void send_fetch(const struct fetch *fetch, int fd);

/* A whole batch of an answer. `body` is NULL if it was not asked for, or is larger than the reader's buffer. */
struct batch {
    int partition, records;
    int64_t next_offset;
    const unsigned char *body;
    size_t size; /* header and all */
};

/* Reads one answer and calls `take` for each whole batch in it; fails on any error. Bodies are read into one piece
 * only if `with_bodies`. */
void take_fetch_answer(struct reader *reader, int partitions, bool with_bodies,
                       void (*take)(const struct batch *batch, void *context), void *context);

/* A zigzag varint; moves `next` behind it. */
int64_t get_varint(const unsigned char **next, const unsigned char *end);

void skip_string(struct reader *reader);

#endif
