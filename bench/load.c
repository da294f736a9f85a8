/* A load generator on librdkafka: what a client in C reaches, library and all.
 *
 *   load produce --to A --topic T --partitions P --records N --size S [--linger MS] [--batch BYTES] [--codec NAME]
 *                [--milliseconds MS] [--values FILE]    until the time is over; values of S bytes from a file
 *   load latency --to A --topic T --count C --size S        linger 0, one record at a time, each waited for
 *   load consume --to A --topic T --partitions P --records N   all partitions from the beginning, no group
 *   load transactions --to A --topic T --records R --milliseconds MS    one after another, R records of 100 B in each
 *   load flow    --to A --topic T --rate R --milliseconds MS [--warm-up MS] [--size S] [--linger MS]   end to end
 *
 * acks=all. Topics are made by `raw create`. The library's own threads run on the cores this process is pinned to. */
#include "common.h"

#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define FLUSH_TIMEOUT_MS 60000
#define MAX_EMPTY_POLLS 60 /* of half a second each */
#define CONSUME_BATCH 10000
#define PRODUCE_BATCH 1000
#define PRODUCE_ROOM "200000"  /* messages the library may hold: never short of work, and still in the caches */
#define CONSUME_ROOM "1000000"

static char error[512];

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK)
        fail("%s", error);
}

static void set_number(rd_kafka_conf_t *conf, const char *name, long long value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", value);
    set(conf, name, text);
}

static rd_kafka_t *start_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    set(conf, "bootstrap.servers", option("to", NULL));
    set(conf, "broker.address.family", "v4");
    rd_kafka_t *client = rd_kafka_new(type, conf, error, sizeof error);
    if (client == NULL)
        fail("%s", error);
    return client;
}

/* --- produce ------------------------------------------------------------------------------------------------- */

static long long failed;

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client;
    (void)opaque;
    if (message->err && failed++ == 0)
        fprintf(stderr, "not delivered: %s\n", rd_kafka_err2str(message->err));
}

static rd_kafka_t *start_producer(long long linger_ms) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    long long batch = option_number("batch", 1000000);
    set(conf, "acks", "all");
    set_number(conf, "linger.ms", linger_ms);
    set_number(conf, "batch.size", batch);
    set_number(conf, "batch.num.messages", 1000000);
    if (batch > 1000000)
        set_number(conf, "message.max.bytes", batch);
    set(conf, "compression.codec", option("codec", "none"));
    set(conf, "queue.buffering.max.messages", PRODUCE_ROOM);
    set(conf, "queue.buffering.max.kbytes", "1048576");
    if (linger_ms > 0) /* a report for each record would cost the client more than the broker has to do */
        set(conf, "delivery.report.only.error", "true");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    return start_client(RD_KAFKA_PRODUCER, conf);
}

/* Values to send, one after another and then from the start again. */
struct values {
    char *data;
    size_t size, count, next;
};

static struct values read_values(const char *path, size_t size) {
    struct values values = {.size = size, .count = 1};
    if (*path == '\0') {
        values.data = allocate(size);
        memset(values.data, 'x', size);
        return values;
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        fail("cannot read %s: %s", path, strerror(errno));
    values.count = (size_t)ftell(file) / size;
    rewind(file);
    values.data = allocate(values.count * size);
    if (values.count == 0 || fread(values.data, size, values.count, file) != values.count)
        fail("%s has no value of %zu bytes", path, size);
    fclose(file);
    return values;
}

static char *next_value(struct values *values) {
    if (values->next == values->count)
        values->next = 0;
    return values->data + values->size * values->next++;
}

/* Hands over `count` (<= PRODUCE_BATCH) records of one partition; what does not fit at once is tried again. */
static void produce_some(rd_kafka_t *client, rd_kafka_topic_t *topic, int32_t partition, struct values *values,
                         int count) {
    static rd_kafka_message_t messages[PRODUCE_BATCH];
    for (int i = 0; i < count; i++)
        messages[i] = (rd_kafka_message_t){.payload = next_value(values), .len = values->size};
    /* no flags: the value is not copied here, it outlives the message */
    int taken = rd_kafka_produce_batch(topic, partition, 0, messages, count);
    while (taken < count) {
        int left = 0;
        for (int i = 0; i < count; i++)
            if (messages[i].err == RD_KAFKA_RESP_ERR__QUEUE_FULL)
                messages[left++] = (rd_kafka_message_t){.payload = messages[i].payload, .len = values->size};
            else if (messages[i].err)
                fail("produce: %s", rd_kafka_err2str(messages[i].err));
        rd_kafka_poll(client, 1);
        count = left;
        taken = rd_kafka_produce_batch(topic, partition, 0, messages, count);
    }
}

static void produce_mode(void) {
    const char *name = option("topic", NULL);
    int partitions = (int)option_number("partitions", 1);
    long long records = option_number("records", 1000000), milliseconds = option_number("milliseconds", 0);
    size_t size = (size_t)option_number("size", 100);
    struct values values = read_values(option("values", ""), size);
    rd_kafka_t *client = start_producer(option_number("linger", 5));
    check_options();
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, NULL);
    const struct rd_kafka_metadata *metadata;
    /* so that connecting is not measured */
    if (rd_kafka_metadata(client, 0, topic, &metadata, SOCKET_TIMEOUT_S * 1000) != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("no metadata of %s", name);
    rd_kafka_metadata_destroy(metadata);
    double cpu = cpu_seconds();
    int64_t start = now_ns(), until = start + milliseconds * 1000000;
    for (long long sent = 0, turn = 0; sent < records; turn++) {
        int count = records - sent < PRODUCE_BATCH ? (int)(records - sent) : PRODUCE_BATCH;
        produce_some(client, topic, (int32_t)(turn % partitions), &values, count);
        rd_kafka_poll(client, 0);
        sent += count;
        if (milliseconds > 0 && now_ns() >= until)
            records = sent; /* what is on its way is still waited for, below */
    }
    if (rd_kafka_flush(client, FLUSH_TIMEOUT_MS) != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("not everything was acknowledged in %d ms", FLUSH_TIMEOUT_MS);
    double seconds = seconds_since(start);
    if (failed > 0)
        fail("%lld records were not delivered", failed);
    json_open("produce");
    json_integer("records", records);
    json_number("seconds", seconds);
    json_number("records_per_s", (double)records / seconds);
    json_number("bytes_per_s", (double)records * (double)size / seconds);
    json_number("client_cpu_s", cpu_seconds() - cpu);
    json_close();
}

static void latency_mode(void) {
    const char *name = option("topic", NULL);
    long long count = option_number("count", 5000), warm_up = option_number("warm-up", 500);
    size_t size = (size_t)option_number("size", 100);
    rd_kafka_t *client = start_producer(0);
    check_options();
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, NULL);
    char *value = allocate(size);
    int64_t *latencies = allocate((size_t)count * sizeof *latencies);
    for (long long i = -warm_up; i < count; i++) {
        int64_t start = now_ns();
        if (rd_kafka_produce(topic, 0, 0, value, size, NULL, 0, NULL) != 0)
            fail("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        while (rd_kafka_outq_len(client) > 0)
            rd_kafka_poll(client, 1000);
        if (failed > 0)
            fail("a record was not delivered");
        if (i >= 0)
            latencies[i] = now_ns() - start;
    }
    json_open("latency");
    json_integer("count", count);
    json_latencies(latencies, (size_t)count);
    json_close();
}

/* --- transactions -------------------------------------------------------------------------------------------- */

static void check(rd_kafka_error_t *problem, const char *what) {
    if (problem != NULL)
        fail("%s: %s", what, rd_kafka_error_string(problem));
}

static void one_transaction(rd_kafka_t *client, rd_kafka_topic_t *topic, long long records) {
    static char value[100];
    check(rd_kafka_begin_transaction(client), "begin");
    for (long long i = 0; i < records; i++)
        if (rd_kafka_produce(topic, 0, 0, value, sizeof value, NULL, 0, NULL) != 0)
            fail("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
    check(rd_kafka_commit_transaction(client, -1), "commit");
}

static void transactions_mode(void) {
    const char *name = option("topic", NULL);
    long long records = option_number("records", 100), milliseconds = option_number("milliseconds", 2000), ended = 0;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "transactional.id", option("id", "bench-load"));
    set(conf, "linger.ms", "0");
    rd_kafka_t *client = start_client(RD_KAFKA_PRODUCER, conf);
    check_options();
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, NULL);
    check(rd_kafka_init_transactions(client, 30000), "init");
    one_transaction(client, topic, records);
    int64_t start = now_ns(), until = start + milliseconds * 1000000;
    for (; now_ns() < until; ended++)
        one_transaction(client, topic, records);
    double seconds = seconds_since(start);
    json_open("transactions");
    json_integer("transactions", ended);
    json_number("seconds", seconds);
    json_number("transactions_per_s", (double)ended / seconds);
    json_close();
}

/* --- consume ------------------------------------------------------------------------------------------------- */

static rd_kafka_t *start_consumer(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "group.id", "bench"); /* asked for by the library; no group is joined, nothing committed */
    set(conf, "enable.auto.commit", "false");
    set(conf, "enable.auto.offset.store", "false");
    set(conf, "queued.min.messages", CONSUME_ROOM);
    set(conf, "queued.max.messages.kbytes", "1048576");
    set_number(conf, "fetch.message.max.bytes", option_number("max-bytes", 1 << 20));
    set(conf, "fetch.error.backoff.ms", "1");
    return start_client(RD_KAFKA_CONSUMER, conf);
}

static void consume_mode(void) {
    const char *name = option("topic", NULL);
    int partitions = (int)option_number("partitions", 1);
    long long wanted = option_number("records", 1000000), records = 0, bytes = 0;
    rd_kafka_t *client = start_consumer();
    check_options();
    rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(partitions);
    for (int i = 0; i < partitions; i++)
        rd_kafka_topic_partition_list_add(all, name, i)->offset = RD_KAFKA_OFFSET_BEGINNING;
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(client, 0, rd_kafka_topic_new(client, name, NULL), &metadata, SOCKET_TIMEOUT_S * 1000) !=
        RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("no metadata of %s", name);
    rd_kafka_metadata_destroy(metadata);
    rd_kafka_message_t **messages = allocate(CONSUME_BATCH * sizeof *messages);
    double cpu = cpu_seconds();
    int64_t start = now_ns();
    rd_kafka_resp_err_t refused = rd_kafka_assign(client, all);
    if (refused)
        fail("assign: %s", rd_kafka_err2str(refused));
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    for (int empty = 0; records < wanted;) {
        /* it waits for as many as it is asked for: asking for more than will come would cost the half second */
        size_t room = wanted - records < CONSUME_BATCH ? (size_t)(wanted - records) : CONSUME_BATCH;
        ssize_t got = rd_kafka_consume_batch_queue(queue, 500, messages, room);
        empty = got > 0 ? 0 : empty + 1;
        if (got < 0 || empty == MAX_EMPTY_POLLS)
            fail("nothing more after %lld of %lld records", records, wanted);
        for (ssize_t i = 0; i < got; i++) {
            if (messages[i]->err)
                fail("consume: %s", rd_kafka_message_errstr(messages[i]));
            bytes += (long long)messages[i]->len;
            records++;
            rd_kafka_message_destroy(messages[i]);
        }
    }
    double seconds = seconds_since(start);
    json_open("consume");
    json_integer("records", records);
    json_number("seconds", seconds);
    json_number("records_per_s", (double)records / seconds);
    json_number("bytes_per_s", (double)bytes / seconds);
    json_number("client_cpu_s", cpu_seconds() - cpu);
    json_close();
}

/* --- from end to end ----------------------------------------------------------------------------------------- */

static struct {
    rd_kafka_queue_t *queue;
    int64_t measured_from; /* records due before are warm-up */
    long long total;
    int64_t *latencies;
    size_t count;
} flow;

static void *receive_flow(void *unused) {
    long long received = 0;
    for (int empty = 0; received < flow.total && empty < MAX_EMPTY_POLLS;) {
        rd_kafka_message_t *message = rd_kafka_consume_queue(flow.queue, 500);
        int64_t now = now_ns(), due;
        empty = message != NULL ? 0 : empty + 1;
        if (message == NULL)
            continue;
        if (message->err)
            fail("consume: %s", rd_kafka_message_errstr(message));
        memcpy(&due, message->payload, sizeof due);
        if (due >= flow.measured_from)
            flow.latencies[flow.count++] = now - due;
        received++;
        rd_kafka_message_destroy(message);
    }
    if (received < flow.total)
        fail("nothing more after %lld of %lld records", received, flow.total);
    return unused;
}

/* A record whenever one is due, and a consumer in a thread beside it. As in flow.c, a record carries its due time. */
static void flow_mode(void) {
    const char *name = option("topic", NULL);
    long long rate = option_number("rate", 10000), milliseconds = option_number("milliseconds", 2000);
    long long warm_up = option_number("warm-up", 1000);
    size_t size = (size_t)option_number("size", 100);
    rd_kafka_t *consumer = start_consumer(), *producer = start_producer(option_number("linger", 0));
    check_options();
    int64_t interval = 1000000000 / rate;
    flow.total = (milliseconds + warm_up) * 1000000 / interval;
    flow.latencies = allocate((size_t)flow.total * sizeof *flow.latencies);
    rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(all, name, 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
    if (rd_kafka_assign(consumer, all))
        fail("assign: %s", rd_kafka_err2str(rd_kafka_last_error()));
    flow.queue = rd_kafka_queue_get_consumer(consumer);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, name, NULL);
    prctl(PR_SET_TIMERSLACK, 1); /* wake up when asked to, not 50 us later */
    int64_t start = now_ns() + interval, late = 0;
    flow.measured_from = start + warm_up * 1000000;
    pthread_t receiver;
    if (pthread_create(&receiver, NULL, receive_flow, NULL) != 0)
        fail("no thread");
    char *value = allocate(size < sizeof start ? sizeof start : size);
    for (long long i = 0; i < flow.total; i++) {
        int64_t due = start + i * interval, now;
        struct timespec wake = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000};
        while ((now = now_ns()) < due)
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
        late = now - due > late ? now - due : late;
        memcpy(value, &due, sizeof due);
        if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, value, size, NULL, 0, NULL) != 0)
            fail("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(producer, 0);
    }
    pthread_join(receiver, NULL);
    if (failed > 0)
        fail("%lld records were not delivered", failed);
    json_open("flow");
    json_integer("count", (long long)flow.count);
    json_number("latest_send_us", (double)late / 1e3);
    json_number("client_cpu_s", cpu_seconds());
    json_latencies(flow.latencies, flow.count);
    json_close();
}

static void version_mode(void) {
    int version = rd_kafka_version();
    json_open("version");
    json_integer("major", version >> 24 & 0xff);
    json_integer("minor", version >> 16 & 0xff);
    json_integer("revision", version >> 8 & 0xff);
    json_close();
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    parse_options(argc, argv);
    start_watchdog();
    /* keep freed memory: getting pages from the system again and again would be measured, too */
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    mallopt(M_MMAP_THRESHOLD, INT32_MAX);
    if (strcmp(mode, "produce") == 0)
        produce_mode();
    else if (strcmp(mode, "latency") == 0)
        latency_mode();
    else if (strcmp(mode, "consume") == 0)
        consume_mode();
    else if (strcmp(mode, "transactions") == 0)
        transactions_mode();
    else if (strcmp(mode, "flow") == 0)
        flow_mode();
    else if (strcmp(mode, "version") == 0)
        version_mode();
    else
        fail("usage: load produce|latency|consume|transactions|flow|version --option value ...");
    return 0; /* the clients are not destroyed: the process ends, and nothing is left to flush */
}
