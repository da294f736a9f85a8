/* A client without a library: measures the broker, not a client.
 *
 *   raw create|delete --to A --topic T [--topics N] --partitions P    topics T, or T-0 ... T-(N-1)
 *   raw ready    --to A --topic T --partitions P                      waits until all of them can be used
 *   raw metadata --to A --partitions P                                waits until that many partitions are listed
 *   raw produce  --to A --topic T --partitions P --records N [--milliseconds MS] [--depth D]
 *                with --size S [--batch B], or --batch-file F
 *   raw fetch    --to A --topic T --partitions P --records N [--milliseconds MS] [--max-bytes M]   from the beginning
 *   raw seek     --to A --topic T --records N --count C [--max-bytes M]           fetches at random offsets
 *   raw latency  --to A --topic T --count C --size S                  one record, one answer, one after another
 *   raw small    --to A --topic T --partitions P --kind metadata|produce|versions|commit [--connections C] [--depth D]
 *
 * All answers are checked for errors, but in `small`, where only the first of each connection is. */
#include "raw.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_PARTITIONS 100000
#define MAX_CONNECTIONS 1024
#define MAX_DEPTH 1024
#define MAX_IDLE_ANSWERS 20

const char *topic;
int partitions;

struct reader *connected(size_t buffer) { return reader_new(connect_to(option("to", NULL)), buffer); }

void read_topic_options(void) {
    topic = option("topic", NULL);
    partitions = (int)option_number("partitions", 1);
    if (partitions < 1 || partitions > MAX_PARTITIONS)
        fail("--partitions must be 1 to %d", MAX_PARTITIONS);
}

/* --- produce ------------------------------------------------------------------------------------------------- */

/* A record batch that somebody else prepared, as it would stand in a log. */
static struct bytes read_batch(const char *path) {
    unsigned char piece[64 << 10];
    struct bytes batch = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail("cannot read %s: %s", path, strerror(errno));
    for (size_t got; (got = fread(piece, 1, sizeof piece, file)) > 0;)
        put(&batch, piece, got);
    fclose(file);
    if (batch.size < BATCH_HEADER_BYTES || (size_t)get_int32(batch.data + 8) + 12 != batch.size)
        fail("%s is not one record batch", path);
    return batch;
}

/* The same prepared requests over and over, partition after partition, --depth of them in flight: --records of them,
 * or fewer if --milliseconds are over before. */
static void produce_mode(void) {
    read_topic_options();
    struct reader *reader = connected(READ_BUFFER);
    long long records = option_number("records", 1000000), depth = option_number("depth", 5);
    long long milliseconds = option_number("milliseconds", 0), bytes = 0, sent = 0, answered = 0;
    size_t size = (size_t)option_number("size", 100), batch_bytes = (size_t)option_number("batch", 1000000);
    const char *file = option("batch-file", "");
    check_options();
    struct bytes batch = {0};
    if (*file != '\0')
        batch = read_batch(file);
    else
        put_batch(&batch, records_per_batch(batch_bytes, size), size);
    int per_batch = get_int32(batch.data + 57);
    long long count = (records + per_batch - 1) / per_batch;
    struct bytes *requests = allocate((size_t)partitions * sizeof *requests);
    for (int i = 0; i < partitions; i++)
        put_produce_batch(&requests[i], topic, i, &batch);
    double cpu = cpu_seconds();
    int64_t start = now_ns(), until = start + milliseconds * 1000000;
    while (sent < count || answered < sent) {
        if (sent < count && sent - answered < depth) {
            struct bytes *request = &requests[sent++ % partitions];
            send_all(reader->fd, request->data, request->size);
            bytes += (long long)request->size;
        } else {
            take_produce_answer(reader);
            answered++;
        }
        if (milliseconds > 0 && now_ns() >= until)
            count = sent;
    }
    double seconds = seconds_since(start);
    json_open("produce");
    json_integer("records", sent * per_batch);
    json_integer("request_bytes", (long long)requests[0].size);
    json_number("seconds", seconds);
    json_number("records_per_s", (double)(sent * per_batch) / seconds);
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

struct progress {
    struct fetch fetch;
    long long records, bytes;
};

static void count_batch(const struct batch *batch, void *context) {
    struct progress *progress = context;
    set_fetch_offset(&progress->fetch, batch->partition, batch->next_offset);
    progress->records += batch->records;
    progress->bytes += (long long)batch->size;
}

static void start_again(struct fetch *fetch) {
    for (int i = 0; i < partitions; i++)
        set_fetch_offset(fetch, i, 0);
}

/* All there is, once; or with --milliseconds, again and again until the time is over. */
static void fetch_mode(void) {
    read_topic_options();
    struct reader *reader = connected(READ_BUFFER);
    long long wanted = option_number("records", 1000000), milliseconds = option_number("milliseconds", 0);
    long long answers = 0, read_before = 0;
    struct progress progress = {0};
    put_fetch(&progress.fetch, topic, partitions, (int32_t)option_number("max-bytes", 1 << 20));
    check_options();
    double cpu = cpu_seconds();
    int64_t start = now_ns(), until = start + milliseconds * 1000000;
    for (int idle = 0; progress.records - read_before < wanted; answers++) {
        long long before = progress.records;
        send_fetch(&progress.fetch, reader->fd);
        take_fetch_answer(reader, partitions, false, count_batch, &progress);
        idle = progress.records == before ? idle + 1 : 0;
        if (idle == MAX_IDLE_ANSWERS)
            fail("%d empty answers after %lld of %lld records", idle, progress.records - read_before, wanted);
        if (milliseconds > 0 && now_ns() >= until)
            break;
        if (milliseconds > 0 && progress.records - read_before >= wanted) {
            read_before = progress.records;
            start_again(&progress.fetch);
        }
    }
    double seconds = seconds_since(start);
    json_open("fetch");
    json_integer("records", progress.records);
    json_integer("answers", answers);
    json_integer("received_bytes", (long long)reader->received);
    json_number("seconds", seconds);
    json_number("records_per_s", (double)progress.records / seconds);
    json_number("bytes_per_s", (double)progress.bytes / seconds);
    json_number("client_cpu_s", cpu_seconds() - cpu);
    json_close();
}

/* Fetches at random offsets below --records of partition 0. */
static void seek_mode(void) {
    read_topic_options();
    struct reader *reader = connected(READ_BUFFER);
    long long end = option_number("records", 1000000), count = option_number("count", 1000);
    struct progress progress = {0};
    put_fetch(&progress.fetch, topic, partitions, (int32_t)option_number("max-bytes", 16 << 10));
    check_options();
    if (end < 1 || count < 1 || partitions != 1)
        fail("--records and --count must be positive, --partitions 1");
    int64_t *latencies = allocate((size_t)count * sizeof *latencies);
    uint64_t random = UINT64_C(88172645463325252); /* xorshift; the same offsets each time */
    for (long long i = 0; i < count; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        int64_t offset = (int64_t)(random % (uint64_t)end);
        set_fetch_offset(&progress.fetch, 0, offset);
        long long before = progress.records;
        int64_t start = now_ns();
        send_fetch(&progress.fetch, reader->fd);
        take_fetch_answer(reader, partitions, false, count_batch, &progress);
        latencies[i] = now_ns() - start;
        if (progress.records == before)
            fail("nothing at offset %lld", (long long)offset);
    }
    json_open("seek");
    json_integer("count", count);
    json_number("bytes_each", (double)progress.bytes / (double)count);
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

/* OffsetCommit (v2) of one partition for a group without members, one group for each connection. */
static void put_commit(struct bytes *request, int index) {
    char group[40];
    snprintf(group, sizeof group, "bench-commit-%d", index);
    begin_request(request, 8, 2);
    put_string(request, group);
    put_int32(request, -1); /* generation */
    put_string(request, "");
    put_int64(request, -1); /* retention: the broker's */
    put_int32(request, 1);
    put_string(request, topic);
    put_int32(request, 1);
    put_int32(request, index % partitions);
    put_int64(request, 42);
    put_string(request, "");
    end_request(request);
}

/* The coordinator of all groups is this broker, once it has made itself ready. */
static void await_coordinator(struct reader *reader, int index) {
    char group[40];
    struct bytes request = {0};
    snprintf(group, sizeof group, "bench-commit-%d", index);
    begin_request(&request, 10, 0);
    put_string(&request, group);
    end_request(&request);
    for (int tries = 0;; tries++) {
        send_all(reader->fd, request.data, request.size);
        uint32_t size = take_answer_header(reader);
        int code = get_int16(reader_take(reader, size));
        if (code == 0)
            break;
        if (code != 15 || tries == 1000) /* COORDINATOR_NOT_AVAILABLE */
            fail("find coordinator: the broker answers with error %d", code);
        usleep(10000);
    }
    free(request.data);
}

/* Whether the offset is committed; not yet if the coordinator is still loading. */
static bool take_commit_answer(struct reader *reader) {
    uint32_t size = take_answer_header(reader);
    const unsigned char *answer = reader_take(reader, size);
    uint32_t name_size = (uint16_t)get_int16(answer + 4);
    if (size < 6 + name_size + 10)
        fail("a commit answer of %u bytes", size);
    int code = get_int16(answer + 6 + name_size + 8);
    if (code != 14 && code != 16) /* COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR */
        expect_no_error("commit", code);
    return code == 0;
}

static void put_small(struct bytes *request, const char *kind, int index) {
    if (strcmp(kind, "produce") == 0)
        put_produce(request, topic, index % partitions, 1, (size_t)option_number("size", 100));
    else if (strcmp(kind, "metadata") == 0)
        put_metadata(request, topic);
    else if (strcmp(kind, "commit") == 0)
        put_commit(request, index);
    else if (strcmp(kind, "versions") == 0) {
        begin_request(request, 18, 0);
        end_request(request);
    } else
        fail("--kind must be metadata, produce, versions or commit");
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
        if (strcmp(kind, "commit") == 0)
            await_coordinator(reader, i);
        send_all(reader->fd, requests[i].data, requests[i].size);
        if (strcmp(kind, "commit") == 0)
            while (!take_commit_answer(reader)) {
                usleep(10000);
                send_all(reader->fd, requests[i].data, requests[i].size);
            }
        else if (strcmp(kind, "produce") == 0)
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
    else if (strcmp(mode, "ready") == 0)
        ready_mode();
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
        fail("usage: raw create|delete|ready|metadata|produce|fetch|seek|latency|small --option value ...");
    return 0;
}
