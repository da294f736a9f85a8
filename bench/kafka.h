/* Just enough of Kafka's protocol to measure a broker without a client library in the way: requests are built by
 * hand, of old non-flexible versions, and of the answers only what is needed is looked at. */
#ifndef BENCH_KAFKA_H
#define BENCH_KAFKA_H

#include "common.h"

#define BATCH_HEADER_BYTES 61

/* A request, or a piece of one, that grows as it is written. Numbers are big-endian. */
struct bytes {
    unsigned char *data;
    size_t size, capacity;
};

void put(struct bytes *out, const void *data, size_t size);
void put_int8(struct bytes *out, int value);
void put_int16(struct bytes *out, int value);
void put_int32(struct bytes *out, int32_t value);
void put_int64(struct bytes *out, int64_t value);
void put_string(struct bytes *out, const char *text); /* NULL is Kafka's null */

int16_t get_int16(const unsigned char *data);
int32_t get_int32(const unsigned char *data);
int64_t get_int64(const unsigned char *data);
void set_int32(unsigned char *data, int32_t value);
void set_int64(unsigned char *data, int64_t value);

/* A frame: begin_request leaves room for the size, end_request fills it in. */
void begin_request(struct bytes *out, int api_key, int api_version);
void end_request(struct bytes *out);

/* A record batch of `count` records with values of `value_size` bytes and no keys. */
void put_batch(struct bytes *out, int count, size_t value_size);
/* The same with values of one's own, `stride` bytes apart (0: the same value each time). */
void put_batch_of(struct bytes *out, int count, const char *values, size_t stride, size_t value_size);
/* How many records of that size fit into a batch of about `batch_bytes`, at least one. */
int records_per_batch(size_t batch_bytes, size_t value_size);

/* A whole Produce request (v7, acks=all) with one batch for one partition: one at hand, or one made for it. */
void put_produce_batch(struct bytes *out, const char *topic, int partition, const struct bytes *batch);
void put_produce(struct bytes *out, const char *topic, int partition, int count, size_t value_size);
/* Reads one answer to it; fails on any error. */
void take_produce_answer(struct reader *reader);

/* Reads the size and correlation id of an answer; returns the bytes that follow them. */
uint32_t take_answer_header(struct reader *reader);

/* Fails with the error's number unless it is 0. */
void expect_no_error(const char *what, int code);

#endif
