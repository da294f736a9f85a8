/* Making topics, deleting them, and waiting for them. See raw.c for the modes. */
#include "raw.h"

#include <stdio.h>
#include <unistd.h>

#define LARGE_READ_BUFFER (8 << 20)

static const char *topic_name(int index, int topics) {
    static char name[300];
    if (topics == 1)
        return topic;
    snprintf(name, sizeof name, "%s-%d", topic, index);
    return name;
}

/* Answers of CreateTopics v4 and DeleteTopics v3 differ in the message behind the error code. */
static void take_topics_answer(struct reader *reader, const char *what, bool with_message) {
    uint32_t size = take_answer_header(reader);
    const unsigned char *answer = reader_take(reader, size), *end = answer + size, *next = answer + 8;
    for (int32_t left = get_int32(answer + 4); left > 0; left--) {
        if (next + 2 > end || next + 2 + get_int16(next) + 2 > end)
            fail("%s: the answer is too short", what);
        next += 2 + get_int16(next);
        expect_no_error(what, get_int16(next));
        next += 2;
        if (with_message && get_int16(next) >= 0)
            next += get_int16(next);
        next += with_message ? 2 : 0;
    }
}

void topics_mode(bool create) {
    read_topic_options();
    struct reader *reader = connected(LARGE_READ_BUFFER);
    int topics = (int)option_number("topics", 1);
    check_options();
    struct bytes request = {0};
    begin_request(&request, create ? 19 : 20, create ? 4 : 3);
    put_int32(&request, topics);
    for (int i = 0; i < topics; i++) {
        put_string(&request, topic_name(i, topics));
        if (create) {
            put_int32(&request, partitions);
            put_int16(&request, 1); /* replication factor */
            put_int32(&request, 0); /* assignments */
            put_int32(&request, 0); /* configs */
        }
    }
    put_int32(&request, 60000); /* timeout */
    if (create)
        put_int8(&request, 0); /* validate only */
    end_request(&request);
    int64_t start = now_ns();
    send_all(reader->fd, request.data, request.size);
    take_topics_answer(reader, create ? "create" : "delete", create);
    json_open(create ? "create" : "delete");
    json_integer("topics", topics);
    json_number("seconds", seconds_since(start));
    json_close();
}

void put_metadata(struct bytes *out, const char *one_topic) {
    begin_request(out, 3, 4);
    put_int32(out, one_topic == NULL ? -1 : 1);
    if (one_topic != NULL)
        put_string(out, one_topic);
    put_int8(out, 0); /* no auto-creation */
    end_request(out);
}

static void skip_int32s(struct reader *reader) {
    int32_t count = get_int32(reader_take(reader, 4));
    reader_skip(reader, count > 0 ? (uint64_t)count * 4 : 0);
}

/* Reads a Metadata answer; returns how many of its partitions have a leader. */
int take_metadata_answer(struct reader *reader) {
    int led = 0;
    take_answer_header(reader);
    reader_skip(reader, 4); /* throttle time */
    for (int32_t brokers = get_int32(reader_take(reader, 4)); brokers > 0; brokers--) {
        reader_skip(reader, 4);
        skip_string(reader);
        reader_skip(reader, 4);
        skip_string(reader);
    }
    skip_string(reader);    /* cluster id */
    reader_skip(reader, 4); /* controller */
    for (int32_t topics = get_int32(reader_take(reader, 4)); topics > 0; topics--) {
        expect_no_error("metadata", get_int16(reader_take(reader, 2)));
        skip_string(reader);
        reader_skip(reader, 1);
        for (int32_t count = get_int32(reader_take(reader, 4)); count > 0; count--) {
            const unsigned char *partition = reader_take(reader, 10); /* error, index, leader */
            led += get_int16(partition) == 0 && get_int32(partition + 6) >= 0;
            skip_int32s(reader);
            skip_int32s(reader);
        }
    }
    return led;
}

void metadata_mode(void) {
    struct reader *reader = connected(READ_BUFFER);
    int expected = (int)option_number("partitions", 1), led;
    check_options();
    struct bytes request = {0};
    put_metadata(&request, NULL);
    int64_t start = now_ns(), last;
    uint64_t before;
    do { /* the watchdog ends this if nothing else does */
        last = now_ns();
        before = reader->received;
        send_all(reader->fd, request.data, request.size);
        led = take_metadata_answer(reader);
        if (led < expected)
            usleep(10000);
    } while (led < expected);
    json_open("metadata");
    json_integer("partitions", led);
    json_number("seconds", seconds_since(start));
    json_number("answer_ms", seconds_since(last) * 1e3);
    json_integer("answer_bytes", (long long)(reader->received - before));
    json_close();
}

/* Reads an answer to ListOffsets v1; returns how many partitions have no error. */
static int take_offsets_answer(struct reader *reader) {
    int fine = 0;
    take_answer_header(reader);
    for (int32_t topics = get_int32(reader_take(reader, 4)); topics > 0; topics--) {
        skip_string(reader);
        for (int32_t count = get_int32(reader_take(reader, 4)); count > 0; count--)
            fine += get_int16(reader_take(reader, 22) + 4) == 0; /* index, error, time, offset */
    }
    return fine;
}

/* Waits until the broker leads every partition of a new topic: with Kafka that is a moment after the create. */
void ready_mode(void) {
    read_topic_options();
    struct reader *reader = connected(READ_BUFFER);
    check_options();
    struct bytes request = {0};
    begin_request(&request, 2, 1);
    put_int32(&request, -1); /* replica id: a consumer */
    put_int32(&request, 1);  /* topics */
    put_string(&request, topic);
    put_int32(&request, partitions);
    for (int i = 0; i < partitions; i++) {
        put_int32(&request, i);
        put_int64(&request, -1); /* the end */
    }
    end_request(&request);
    int64_t start = now_ns();
    for (;;) { /* the watchdog ends this if nothing else does */
        send_all(reader->fd, request.data, request.size);
        if (take_offsets_answer(reader) == partitions)
            break;
        usleep(5000);
    }
    json_open("ready");
    json_number("seconds", seconds_since(start));
    json_close();
}
