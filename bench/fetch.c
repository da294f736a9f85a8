/* See fetch.h. */
#include "fetch.h"

#define OFFSET_IN_PARTITION 8 /* behind index and leader epoch */
#define PARTITION_BYTES 28

static void put_fetch_from(struct fetch *fetch, const char *topic, const int *indexes, int count, int32_t max_bytes) {
    struct bytes *out = &fetch->request;
    begin_request(out, 1, 11);
    put_int32(out, -1);        /* replica id: a consumer */
    put_int32(out, 500);       /* max wait */
    put_int32(out, 1);         /* min bytes */
    put_int32(out, 50 << 20);  /* max bytes in all, as clients have it */
    put_int8(out, 0);          /* read uncommitted */
    put_int32(out, 0);         /* no session */
    put_int32(out, -1);
    put_int32(out, 1);         /* topics */
    put_string(out, topic);
    put_int32(out, count);
    fetch->first = out->size;
    fetch->partitions = count;
    for (int i = 0; i < count; i++) {
        put_int32(out, indexes == NULL ? i : indexes[i]);
        put_int32(out, -1); /* leader epoch */
        put_int64(out, 0);
        put_int64(out, -1); /* log start offset */
        put_int32(out, max_bytes);
    }
    put_int32(out, 0); /* forgotten topics */
    put_string(out, "");
    end_request(out);
}

void put_fetch(struct fetch *fetch, const char *topic, int partitions, int32_t max_bytes) {
    put_fetch_from(fetch, topic, NULL, partitions, max_bytes);
}

void put_fetch_of(struct fetch *fetch, const char *topic, const int *indexes, int count, int32_t max_bytes) {
    put_fetch_from(fetch, topic, indexes, count, max_bytes);
}

void set_fetch_offset(struct fetch *fetch, int partition, int64_t offset) {
    set_int64(fetch->request.data + fetch->first + (size_t)partition * PARTITION_BYTES + OFFSET_IN_PARTITION, offset);
}

void send_fetch(const struct fetch *fetch, int fd) { send_all(fd, fetch->request.data, fetch->request.size); }

void skip_string(struct reader *reader) {
    int size = get_int16(reader_take(reader, 2));
    reader_skip(reader, size > 0 ? (uint64_t)size : 0);
}

int64_t get_varint(const unsigned char **next, const unsigned char *end) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (*next >= end)
            break;
        unsigned char byte = *(*next)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
    }
    fail("a number in a record does not end");
}

/* Walks the batches of one partition; a partial one at the end is skipped. */
static void take_batches(struct reader *reader, int partition, uint32_t size, bool with_bodies,
                         void (*take)(const struct batch *, void *), void *context) {
    while (size >= BATCH_HEADER_BYTES) {
        const unsigned char *header = reader_take(reader, BATCH_HEADER_BYTES);
        int32_t length = get_int32(header + 8);
        if (length < BATCH_HEADER_BYTES - 12 || header[16] != 2)
            fail("a batch of %d bytes and magic %d in partition %d", length, header[16], partition);
        struct batch batch = {.partition = partition, .records = get_int32(header + 57), .size = (size_t)length + 12};
        batch.next_offset = get_int64(header) + get_int32(header + 23) + 1;
        size -= BATCH_HEADER_BYTES;
        uint32_t rest = (uint32_t)length + 12 - BATCH_HEADER_BYTES;
        if (rest > size)
            break;
        if (with_bodies && rest <= reader->capacity)
            batch.body = reader_take(reader, rest);
        else
            reader_skip(reader, rest);
        size -= rest;
        take(&batch, context);
    }
    reader_skip(reader, size);
}

void take_fetch_answer(struct reader *reader, int partitions, bool with_bodies,
                       void (*take)(const struct batch *, void *), void *context) {
    take_answer_header(reader);
    const unsigned char *head = reader_take(reader, 14); /* throttle, error, session, topics */
    expect_no_error("fetch", get_int16(head + 4));
    for (int32_t topics = get_int32(head + 10); topics > 0; topics--) {
        skip_string(reader);
        for (int32_t count = get_int32(reader_take(reader, 4)); count > 0; count--) {
            const unsigned char *part = reader_take(reader, 34); /* index, error, three offsets, aborted count */
            int32_t index = get_int32(part), aborted = get_int32(part + 30);
            expect_no_error("fetch of a partition", get_int16(part + 4));
            if (index < 0 || index >= partitions)
                fail("an answer about partition %d", index);
            reader_skip(reader, aborted > 0 ? (uint64_t)aborted * 16 : 0);
            int32_t size = get_int32(reader_take(reader, 8) + 4); /* preferred replica, size of the records */
            take_batches(reader, index, size > 0 ? (uint32_t)size : 0, with_bodies, take, context);
        }
    }
}
