/* See kafka.h. */
#include "kafka.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_FRAME_BYTES (512 << 20)

void put(struct bytes *out, const void *data, size_t size) {
    if (out->size + size > out->capacity) {
        out->capacity = (out->size + size) * 2 + 64;
        out->data = realloc(out->data, out->capacity);
        if (out->data == NULL)
            fail("no memory for %zu bytes", out->capacity);
    }
    memcpy(out->data + out->size, data, size);
    out->size += size;
}

static void put_big_endian(struct bytes *out, uint64_t value, int width) {
    unsigned char text[8];
    for (int i = 0; i < width; i++)
        text[i] = (unsigned char)(value >> (8 * (width - 1 - i)));
    put(out, text, (size_t)width);
}

void put_int8(struct bytes *out, int value) { put_big_endian(out, (uint64_t)value, 1); }
void put_int16(struct bytes *out, int value) { put_big_endian(out, (uint64_t)value, 2); }
void put_int32(struct bytes *out, int32_t value) { put_big_endian(out, (uint64_t)value, 4); }
void put_int64(struct bytes *out, int64_t value) { put_big_endian(out, (uint64_t)value, 8); }

void put_string(struct bytes *out, const char *text) {
    if (text == NULL) {
        put_int16(out, -1);
        return;
    }
    put_int16(out, (int)strlen(text));
    put(out, text, strlen(text));
}

static uint64_t get_big_endian(const unsigned char *data, int width) {
    uint64_t value = 0;
    for (int i = 0; i < width; i++)
        value = value << 8 | data[i];
    return value;
}

int16_t get_int16(const unsigned char *data) { return (int16_t)get_big_endian(data, 2); }
int32_t get_int32(const unsigned char *data) { return (int32_t)get_big_endian(data, 4); }
int64_t get_int64(const unsigned char *data) { return (int64_t)get_big_endian(data, 8); }

void set_int32(unsigned char *data, int32_t value) {
    for (int i = 0; i < 4; i++)
        data[i] = (unsigned char)((uint32_t)value >> (24 - 8 * i));
}

void set_int64(unsigned char *data, int64_t value) {
    for (int i = 0; i < 8; i++)
        data[i] = (unsigned char)((uint64_t)value >> (56 - 8 * i));
}

void begin_request(struct bytes *out, int api_key, int api_version) {
    out->size = 0;
    put_int32(out, 0);
    put_int16(out, api_key);
    put_int16(out, api_version);
    put_int32(out, 1); /* correlation id: answers come in order, so it need not tell them apart */
    put_string(out, "bench");
}

void end_request(struct bytes *out) { set_int32(out->data, (int32_t)(out->size - 4)); }

/* --- record batches ------------------------------------------------------------------------------------------ */

static uint32_t crc32c(const unsigned char *data, size_t size) {
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t i = 0; i < 256; i++) {
            table[i] = i;
            for (int bit = 0; bit < 8; bit++)
                table[i] = table[i] & 1 ? table[i] >> 1 ^ 0x82f63b78u : table[i] >> 1;
        }
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ table[(crc ^ data[i]) & 0xff];
    return ~crc;
}

static void put_varint(struct bytes *out, int64_t value) {
    uint64_t rest = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    for (; rest > 0x7f; rest >>= 7)
        put_int8(out, (int)(rest & 0x7f) | 0x80);
    put_int8(out, (int)rest);
}

static void put_record(struct bytes *out, int offset_delta, const char *value, size_t value_size) {
    struct bytes body = {0};
    put_int8(&body, 0);             /* attributes */
    put_varint(&body, 0);           /* timestamp delta */
    put_varint(&body, offset_delta);
    put_varint(&body, -1);          /* no key */
    put_varint(&body, (int64_t)value_size);
    put(&body, value, value_size);
    put_varint(&body, 0);           /* no headers */
    put_varint(out, (int64_t)body.size);
    put(out, body.data, body.size);
    free(body.data);
}

void put_batch(struct bytes *out, int count, size_t value_size) {
    char *value = allocate(value_size);
    memset(value, 'x', value_size);
    put_batch_of(out, count, value, 0, value_size);
    free(value);
}

void put_batch_of(struct bytes *out, int count, const char *values, size_t stride, size_t value_size) {
    size_t start = out->size;
    struct timespec now; /* the real time: retention deletes what is too old */
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t timestamp = now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
    put_int64(out, 0);          /* base offset: the broker's to set */
    put_int32(out, 0);          /* length, below */
    put_int32(out, -1);         /* leader epoch */
    put_int8(out, 2);           /* magic */
    put_int32(out, 0);          /* checksum, below */
    put_int16(out, 0);          /* attributes */
    put_int32(out, count - 1);  /* last offset delta */
    put_int64(out, timestamp);
    put_int64(out, timestamp);
    put_int64(out, -1);         /* producer id, epoch, sequence */
    put_int16(out, -1);
    put_int32(out, -1);
    put_int32(out, count);
    for (int i = 0; i < count; i++)
        put_record(out, i, values + (size_t)i * stride, value_size);
    unsigned char *batch = out->data + start;
    set_int32(batch + 8, (int32_t)(out->size - start - 12));
    set_int32(batch + 17, (int32_t)crc32c(batch + 21, out->size - start - 21));
}

int records_per_batch(size_t batch_bytes, size_t value_size) {
    size_t record_bytes = value_size + 12; /* more or less: the varints grow with what they count */
    size_t count = batch_bytes > BATCH_HEADER_BYTES ? (batch_bytes - BATCH_HEADER_BYTES) / record_bytes : 0;
    return count > 0 ? (int)count : 1;
}

/* --- produce ------------------------------------------------------------------------------------------------- */

void put_produce_batch(struct bytes *out, const char *topic, int partition, const struct bytes *batch) {
    begin_request(out, 0, 7);
    put_string(out, NULL); /* transactional id */
    put_int16(out, -1);    /* acks=all */
    put_int32(out, 30000); /* timeout */
    put_int32(out, 1);     /* topics */
    put_string(out, topic);
    put_int32(out, 1);     /* partitions */
    put_int32(out, partition);
    put_int32(out, (int32_t)batch->size);
    put(out, batch->data, batch->size);
    end_request(out);
}

void put_produce(struct bytes *out, const char *topic, int partition, int count, size_t value_size) {
    struct bytes batch = {0};
    put_batch(&batch, count, value_size);
    put_produce_batch(out, topic, partition, &batch);
    free(batch.data);
}

uint32_t take_answer_header(struct reader *reader) {
    int32_t size = get_int32(reader_take(reader, 8));
    if (size < 4 || size > MAX_FRAME_BYTES)
        fail("an answer of %d bytes", size);
    return (uint32_t)size - 4;
}

void expect_no_error(const char *what, int code) {
    if (code != 0)
        fail("%s: the broker answers with error %d", what, code);
}

void take_produce_answer(struct reader *reader) {
    uint32_t size = take_answer_header(reader);
    if (size < 4 + 2 + 4 + 4 + 2 || size > 4096)
        fail("a produce answer of %u bytes", size);
    const unsigned char *answer = reader_take(reader, size);
    uint32_t name_size = (uint16_t)get_int16(answer + 4);
    /* topics, name, partitions, index, error */
    if (size < 6 + name_size + 10)
        fail("a produce answer of %u bytes", size);
    expect_no_error("produce", get_int16(answer + 6 + name_size + 8));
}
