/* From one end to the other: how long a record takes from a producer through the broker to a consumer.
 *
 *   flow run --to A --topic T --rate R --each N --milliseconds MS [--warm-up MS] [--size S]
 *
 * Two connections in one thread: one sends a Produce request of N records whenever it is due (R/N times a second), the
 * other always has a Fetch waiting. A record carries the time at which it was due, so whatever holds a request up, on
 * whichever side, counts for every record that waits behind it. Topic T must be new; it has one partition. */
#include "fetch.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define READ_BUFFER (1 << 20)
#define MAX_EACH 10000
#define DRAIN_NS INT64_C(10000000000) /* how long the last records may take */

struct flow {
    struct fetch fetch;
    int64_t measured_from; /* records due before are warm-up */
    int64_t *latencies;
    size_t count, room, received;
};

static void take_value(struct flow *flow, const unsigned char *value, int64_t now) {
    int64_t due;
    memcpy(&due, value, sizeof due);
    flow->received++;
    if (due < flow->measured_from)
        return;
    if (flow->count == flow->room)
        fail("more records came out than went in");
    flow->latencies[flow->count++] = now - due;
}

static void take_batch(const struct batch *batch, void *context) {
    struct flow *flow = context;
    int64_t now = now_ns();
    if (batch->body == NULL)
        fail("a batch of %zu bytes is too large", batch->size);
    const unsigned char *next = batch->body, *end = batch->body + batch->size - BATCH_HEADER_BYTES;
    for (int i = 0; i < batch->records; i++) {
        int64_t length = get_varint(&next, end);
        const unsigned char *field = next + 1; /* behind the attributes */
        if (length < 1 || length > end - next)
            fail("a record of %lld bytes", (long long)length);
        get_varint(&field, end); /* time */
        get_varint(&field, end); /* offset */
        get_varint(&field, end); /* no key */
        if (get_varint(&field, end) < (int64_t)sizeof(int64_t))
            fail("a record without a time");
        take_value(flow, field, now);
        next += length;
    }
    set_fetch_offset(&flow->fetch, 0, batch->next_offset);
}

/* Waits for either connection, at most until `deadline`. */
static void wait_for(struct pollfd *sockets, int64_t deadline) {
    int64_t left = deadline - now_ns();
    struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    if (left <= 0)
        wait = (struct timespec){0};
    if (ppoll(sockets, 2, &wait, NULL) < 0 && errno != EINTR)
        fail("poll: %s", strerror(errno));
}

static void run_mode(void) {
    const char *to = option("to", NULL), *topic = option("topic", NULL);
    long long rate = option_number("rate", 10000), each = option_number("each", 10);
    long long milliseconds = option_number("milliseconds", 2000), warm_up = option_number("warm-up", 1000);
    size_t size = (size_t)option_number("size", 100);
    check_options();
    if (rate < 1 || each < 1 || each > MAX_EACH || size < sizeof(int64_t) || milliseconds < 1 || warm_up < 0)
        fail("--rate, --each and --milliseconds must be positive, --size at least 8");
    int64_t interval = each * INT64_C(1000000000) / rate;
    long long total = (milliseconds + warm_up) * 1000000 / interval, sent = 0, answered = 0;
    struct reader *producer = reader_new(connect_to(to), READ_BUFFER);
    struct reader *fetcher = reader_new(connect_to(to), READ_BUFFER);
    struct flow flow = {.room = (size_t)(total * each)};
    flow.latencies = allocate(flow.room * sizeof *flow.latencies);
    put_fetch(&flow.fetch, topic, 1, 1 << 20);
    send_fetch(&flow.fetch, fetcher->fd);
    char *value = allocate(size);
    struct bytes batch = {0}, request = {0};
    prctl(PR_SET_TIMERSLACK, 1); /* wake up when asked to, not 50 us later */
    int64_t start = now_ns() + interval, late = 0, end = start + total * interval + DRAIN_NS;
    flow.measured_from = start + warm_up * 1000000;
    struct pollfd sockets[] = {{.fd = producer->fd, .events = POLLIN}, {.fd = fetcher->fd, .events = POLLIN}};
    while (flow.received < (size_t)(total * each) || answered < sent) {
        int64_t due = start + sent * interval, now = now_ns();
        if (now >= end)
            fail("%zu of %lld records came back", flow.received, total * each);
        if (sent < total && now >= due) {
            memcpy(value, &due, sizeof due);
            batch.size = 0;
            put_batch_of(&batch, (int)each, value, 0, size);
            put_produce_batch(&request, topic, 0, &batch);
            send_all(producer->fd, request.data, request.size);
            sent++;
            late = now - due > late ? now - due : late;
            continue;
        }
        wait_for(sockets, sent < total ? due : end);
        if (sockets[0].revents)
            do { /* as many answers as one read has brought */
                take_produce_answer(producer);
                answered++;
            } while (producer->position < producer->end);
        if (sockets[1].revents) {
            take_fetch_answer(fetcher, 1, true, take_batch, &flow);
            send_fetch(&flow.fetch, fetcher->fd);
        }
    }
    json_open("flow");
    json_integer("count", (long long)flow.count);
    json_number("latest_send_us", (double)late / 1e3);
    json_number("client_cpu_s", cpu_seconds());
    json_latencies(flow.latencies, flow.count);
    json_close();
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
    start_watchdog();
    if (argc < 2 || strcmp(argv[1], "run") != 0)
        fail("usage: flow run --option value ...");
    run_mode();
    return 0;
}
