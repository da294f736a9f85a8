/* A client without a library: measures the broker, not a client.
 *
 *   raw create|delete --to A --topic T [--topics N] --partitions P    topics T, or T-0 ... T-(N-1)
 *   raw metadata --to A --partitions P                                waits until that many partitions are listed
 *   raw produce  --to A --topic T --partitions P --records N --size S [--batch B] [--depth D]
 *   raw fetch    --to A --topic T --partitions P --records N [--max-bytes M]      all from the beginning
 *   raw seek     --to A --topic T --records N --count C [--max-bytes M]           fetches at random offsets
 *   raw latency  --to A --topic T --count C --size S                  one record, one answer, one after another
 *   raw small    --to A --topic T --partitions P --kind metadata|produce|versions [--connections C] [--depth D]
 *
 * All answers are checked for errors, but in `small`, where only the first of each connection is. */
#include "kafka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BUFFER (256 << 10)
#define LARGE_READ_BUFFER (8 << 20)
#define MAX_PARTITIONS 100000
#define MAX_CONNECTIONS 1024
#define MAX_DEPTH 1024
#define MAX_IDLE_ANSWERS 20

static const char *topic;
static int partitions;

static struct reader *connected(size_t buffer) { return reader_new(connect_to(option("to", NULL)), buffer); }

static void read_topic_options(void) {
    topic = option("topic", NULL);
    partitions = (int)option_number("partitions", 1);
    if (partitions < 1 || partitions > MAX_PARTITIONS)
        fail("--partitions must be 1 to %d", MAX_PARTITIONS);
}

/* --- topics -------------------------------------------------------------------------------------------------- */

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

static void topics_mode(bool create) {
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

static void put_metadata(struct bytes *out, const char *one_topic) {
    begin_request(out, 3, 4);
    put_int32(out, one_topic == NULL ? -1 : 1);
    if (one_topic != NULL)
        put_string(out, one_topic);
    put_int8(out, 0); /* no auto-creation */
    end_request(out);
}

static void skip_string(struct reader *reader) {
    int size = get_int16(reader_take(reader, 2));
    reader_skip(reader, size > 0 ? (uint64_t)size : 0);
}

static void skip_int32s(struct reader *reader) {
    int32_t count = get_int32(reader_take(reader, 4));
    reader_skip(reader, count > 0 ? (uint64_t)count * 4 : 0);
}

/* Reads a Metadata answer; returns how many of its partitions have a leader. */
static int take_metadata_answer(struct reader *reader) {
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

static void metadata_mode(void) {
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

/* --- produce ------------------------------------------------------------------------------------------------- */

/* The same prepared requests over and over, partition after partition, --depth of them in flight. */
static void produce_mode(void) {
    read_topic_options();
    struct reader *reader = connected(READ_BUFFER);
    long long records = option_number("records", 1000000), depth = option_number("depth", 5);
    size_t size = (size_t)option_number("size", 100), batch = (size_t)option_number("batch", 1000000);
    check_options();
    int per_batch = records_per_batch(batch, size);
    long long count = (records + per_batch - 1) / per_batch, bytes = 0;
    struct bytes *requests = allocate((size_t)partitions * sizeof *requests);
    for (int i = 0; i < partitions; i++)
        put_produce(&requests[i], topic, i, per_batch, size);
    double cpu = cpu_seconds();
    int64_t start = now_ns();
    for (long long i = 0; i < count + depth; i++) {
        if (i >= depth && i - depth < count)
            take_produce_answer(reader);
        if (i < count) {
            struct bytes *request = &requests[i % partitions];
            send_all(reader->fd, request->data, request->size);
            bytes += (long long)request->size;
        }
    }
    double seconds = seconds_since(start);
    json_open("produce");
    json_integer("records", count * per_batch);
    json_integer("request_bytes", (long long)requests[0].size);
    json_number("seconds", seconds);
    json_number("records_per_s", (double)(count * per_batch) / seconds);
    json_number("bytes_per_s", (double)bytes / seconds);
    json_number("client_cpu_s", cpu_seconds() - cpu);
    json_close();
}

static void latency_mode(void) {
    read_topic_options();
    struct reader *reader = connected(READ_BUFFER);
    long long count = option_number("count", 20000), warm_up = option_number("warm-up", 1000);
    size_t size = (size_t)option_number("size", 100);
    check_options();
    struct bytes request = {0};
    put_produce(&request, topic, 0, 1, size);
    int64_t *latencies = allocate((size_t)count * sizeof *latencies);
    for (long long i = -warm_up; i < count; i++) {
        int64_t start = now_ns();
        send_all(reader->fd, request.data, request.size);
        take_produce_answer(reader);
        if (i >= 0)
            latencies[i] = now_ns() - start;
    }
    json_open("latency");
    json_integer("count", count);
    json_integer("request_bytes", (long long)request.size);
    json_latencies(latencies, (size_t)count);
    json_close();
}

/* --- fetch --------------------------------------------------------------------------------------------------- */

#define OFFSET_IN_PARTITION 8  /* behind index and leader epoch */
#define PARTITION_BYTES 28

/* A Fetch (v11, no session) of all partitions. Returns where in the request the first partition is. */
static size_t put_fetch(struct bytes *out, int32_t max_bytes) {
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
    put_int32(out, partitions);
    size_t first = out->size;
    for (int i = 0; i < partitions; i++) {
        put_int32(out, i);
        put_int32(out, -1); /* leader epoch */
        put_int64(out, 0);
        put_int64(out, -1); /* log start offset */
        put_int32(out, max_bytes);
    }
    put_int32(out, 0); /* forgotten topics */
    put_string(out, "");
    end_request(out);
    return first;
}

/* Walks the batches of one partition; a partial one at the end is skipped. */
static void take_batches(struct reader *reader, uint32_t size, int64_t *next_offset, long long *records,
                         long long *bytes) {
    while (size >= BATCH_HEADER_BYTES) {
        const unsigned char *header = reader_take(reader, BATCH_HEADER_BYTES);
        int64_t next = get_int64(header) + get_int32(header + 23) + 1;
        int32_t length = get_int32(header + 8), count = get_int32(header + 57);
        if (length < BATCH_HEADER_BYTES - 12 || header[16] != 2)
            fail("a batch of %d bytes and magic %d at offset %lld", length, header[16], (long long)*next_offset);
        size -= BATCH_HEADER_BYTES;
        uint32_t rest = (uint32_t)length + 12 - BATCH_HEADER_BYTES;
        if (rest > size)
            break;
        reader_skip(reader, rest);
        size -= rest;
        if (next > *next_offset)
            *next_offset = next;
        *records += count;
        *bytes += (long long)length + 12;
    }
    reader_skip(reader, size);
}

/* Reads one Fetch answer. `offsets` has the next offset of each partition. */
static void take_fetch_answer(struct reader *reader, int64_t *offsets, long long *records, long long *bytes) {
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
            take_batches(reader, size > 0 ? (uint32_t)size : 0, &offsets[index], records, bytes);
        }
    }
}

static void fetch_mode(void) {
    read_topic_options();
    struct reader *reader = connected(READ_BUFFER);
    long long wanted = option_number("records", 1000000), records = 0, bytes = 0, answers = 0;
    int32_t max_bytes = (int32_t)option_number("max-bytes", 1 << 20);
    check_options();
    struct bytes request = {0};
    size_t first = put_fetch(&request, max_bytes);
    int64_t *offsets = allocate((size_t)partitions * sizeof *offsets);
    double cpu = cpu_seconds();
    int64_t start = now_ns();
    for (int idle = 0; records < wanted; answers++) {
        long long before = records;
        send_all(reader->fd, request.data, request.size);
        take_fetch_answer(reader, offsets, &records, &bytes);
        for (int i = 0; i < partitions; i++)
            set_int64(request.data + first + (size_t)i * PARTITION_BYTES + OFFSET_IN_PARTITION, offsets[i]);
        idle = records == before ? idle + 1 : 0;
        if (idle == MAX_IDLE_ANSWERS)
            fail("%d empty answers after %lld of %lld records", idle, records, wanted);
    }
    double seconds = seconds_since(start);
    json_open("fetch");
    json_integer("records", records);
    json_integer("answers", answers);
    json_integer("received_bytes", (long long)reader->received);
    json_number("seconds", seconds);
    json_number("records_per_s", (double)records / seconds);
    json_number("bytes_per_s", (double)bytes / seconds);
    json_number("client_cpu_s", cpu_seconds() - cpu);
    json_close();
}

/* Fetches at random offsets below --records of partition 0. */
static void seek_mode(void) {
    read_topic_options();
    struct reader *reader = connected(READ_BUFFER);
    long long end = option_number("records", 1000000), count = option_number("count", 1000), records = 0, bytes = 0;
    int32_t max_bytes = (int32_t)option_number("max-bytes", 16 << 10);
    check_options();
    if (end < 1 || count < 1 || partitions != 1)
        fail("--records and --count must be positive, --partitions 1");
    struct bytes request = {0};
    size_t first = put_fetch(&request, max_bytes);
    int64_t *latencies = allocate((size_t)count * sizeof *latencies);
    uint64_t random = UINT64_C(88172645463325252); /* xorshift; the same offsets each time */
    for (long long i = 0; i < count; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        int64_t next_offset = 0, offset = (int64_t)(random % (uint64_t)end);
        set_int64(request.data + first + OFFSET_IN_PARTITION, offset);
        long long before = records;
        int64_t start = now_ns();
        send_all(reader->fd, request.data, request.size);
        take_fetch_answer(reader, &next_offset, &records, &bytes);
        latencies[i] = now_ns() - start;
        if (records == before)
            fail("nothing at offset %lld", (long long)offset);
    }
    json_open("seek");
    json_integer("count", count);
    json_number("bytes_each", (double)bytes / (double)count);
    json_latencies(latencies, (size_t)count);
    json_close();
}

/* --- many small requests ------------------------------------------------------------------------------------- */

struct connection {
    int fd;
    uint32_t skip;           /* of the answer that is coming in, how much is still to come */
    unsigned char size[4];   /* the bytes of its size that are there */
    int size_bytes;
};

/* Counts the answers that end in `data`. Their content is not looked at. */
static int count_answers(struct connection *connection, const unsigned char *data, size_t size) {
    int answers = 0;
    while (size > 0) {
        if (connection->skip == 0) {
            connection->size[connection->size_bytes++] = *data++;
            size--;
            if (connection->size_bytes == 4) {
                connection->skip = (uint32_t)get_int32(connection->size);
                connection->size_bytes = 0;
            }
            continue;
        }
        uint32_t part = size < connection->skip ? (uint32_t)size : connection->skip;
        connection->skip -= part;
        data += part;
        size -= part;
        answers += connection->skip == 0;
    }
    return answers;
}

static void put_small(struct bytes *request, const char *kind, int index) {
    if (strcmp(kind, "produce") == 0)
        put_produce(request, topic, index % partitions, 1, (size_t)option_number("size", 100));
    else if (strcmp(kind, "metadata") == 0)
        put_metadata(request, topic);
    else if (strcmp(kind, "versions") == 0) {
        begin_request(request, 18, 0);
        end_request(request);
    } else
        fail("--kind must be metadata, produce or versions");
}

/* Puts copies behind the request, so that any number of them goes out in one send; its size stays that of one. */
static void repeat(struct bytes *request, int copies) {
    struct bytes all = {0};
    for (int i = 0; i < copies; i++)
        put(&all, request->data, request->size);
    free(request->data);
    request->data = all.data;
}

/* Waits for answers on all connections and sends a new request for each, until the time is over. */
static long long run_small(int poller, struct connection *connections, struct bytes *requests, int64_t until) {
    static unsigned char buffer[READ_BUFFER];
    struct epoll_event events[64];
    long long answered = 0;
    while (now_ns() < until) {
        int ready = epoll_wait(poller, events, 64, 1000);
        if (ready < 0 && errno != EINTR)
            fail("epoll: %s", strerror(errno));
        for (int i = 0; i < ready; i++) {
            uint32_t index = events[i].data.u32;
            ssize_t got = recv(connections[index].fd, buffer, sizeof buffer, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
                fail("connection %u was closed", index);
            if (got <= 0)
                continue;
            int answers = count_answers(&connections[index], buffer, (size_t)got);
            send_all(connections[index].fd, requests[index].data, requests[index].size * (size_t)answers);
            answered += answers;
        }
    }
    return answered;
}

static void small_mode(void) {
    read_topic_options();
    const char *kind = option("kind", "metadata");
    int count = (int)option_number("connections", 8), depth = (int)option_number("depth", 8);
    double seconds = (double)option_number("milliseconds", 2000) / 1e3;
    if (count < 1 || count > MAX_CONNECTIONS || depth < 1 || depth > MAX_DEPTH)
        fail("1 to %d connections, a depth of 1 to %d", MAX_CONNECTIONS, MAX_DEPTH);
    struct connection *connections = allocate((size_t)count * sizeof *connections);
    struct bytes *requests = allocate((size_t)count * sizeof *requests);
    int poller = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        put_small(&requests[i], kind, i);
        struct reader *reader = connected(READ_BUFFER);
        send_all(reader->fd, requests[i].data, requests[i].size);
        if (strcmp(kind, "produce") == 0)
            take_produce_answer(reader);
        else if (strcmp(kind, "metadata") == 0)
            take_metadata_answer(reader);
        else
            reader_skip(reader, take_answer_header(reader));
        connections[i].fd = reader->fd;
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, reader->fd, &event) != 0)
            fail("epoll: %s", strerror(errno));
        repeat(&requests[i], depth);
    }
    check_options();
    int64_t start = now_ns();
    for (int i = 0; i < count; i++)
        send_all(connections[i].fd, requests[i].data, requests[i].size * (size_t)depth);
    double cpu = cpu_seconds();
    long long answered = run_small(poller, connections, requests, start + (int64_t)(seconds * 1e9));
    seconds = seconds_since(start);
    json_open("small");
    json_integer("answers", answered);
    json_integer("connections", count);
    json_integer("depth", depth);
    json_number("answers_per_s", (double)answered / seconds);
    json_number("client_cpu_s", cpu_seconds() - cpu);
    json_close();
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    parse_options(argc, argv);
    start_watchdog();
    if (strcmp(mode, "create") == 0)
        topics_mode(true);
    else if (strcmp(mode, "delete") == 0)
        topics_mode(false);
    else if (strcmp(mode, "metadata") == 0)
        metadata_mode();
    else if (strcmp(mode, "produce") == 0)
        produce_mode();
    else if (strcmp(mode, "fetch") == 0)
        fetch_mode();
    else if (strcmp(mode, "seek") == 0)
        seek_mode();
    else if (strcmp(mode, "latency") == 0)
        latency_mode();
    else if (strcmp(mode, "small") == 0)
        small_mode();
    else
        fail("usage: raw create|delete|metadata|produce|fetch|seek|latency|small --option value ...");
    return 0;
}
