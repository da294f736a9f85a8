/* What the benchmark tools share: options, clocks, sockets with timeouts, percentiles, one JSON line of results.
 *
 * Every tool runs under a watchdog and every socket has a timeout, so that a broker that does not answer makes a tool
 * fail with a sentence, never hang. Each process is single-threaded, but for what librdkafka starts itself. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOCKET_TIMEOUT_S 30

/* Prints a sentence to stderr and exits with code 2. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

void *allocate(size_t size); /* zeroed, or fail */

/* --name value options. The first argument of a tool is its mode; `parse_options` starts behind it. */
void parse_options(int argc, char **argv);
const char *option(const char *name, const char *fallback); /* a NULL fallback makes it required */
long long option_number(const char *name, long long fallback);
void check_options(void); /* fails on an option that nothing has asked for */

/* Kills this process when it runs longer than --timeout seconds. */
void start_watchdog(void);

int64_t now_ns(void);
double seconds_since(int64_t start_ns);
double cpu_seconds(void); /* of this process, user and system */

int connect_to(const char *address); /* HOST:PORT, IPv4 */
int listen_on_loopback(int *port);   /* any free port */
int accept_one(int listener);
void send_all(int fd, const void *data, size_t size);
void receive_all(int fd, void *data, size_t size);

/* A reader over a socket that takes what is there in large pieces and hands out what is asked for. */
struct reader {
    int fd;
    size_t position, end;
    uint64_t received;
    size_t capacity;
    unsigned char *buffer;
};

struct reader *reader_new(int fd, size_t capacity);
const unsigned char *reader_take(struct reader *reader, size_t size); /* size <= capacity; valid until the next call */
void reader_skip(struct reader *reader, uint64_t size);

/* Latencies in nanoseconds. Sorts them in place. */
double percentile_us(int64_t *values, size_t count, double percent);

/* One line of JSON: json_open, any number of fields, json_close. */
void json_open(const char *mode);
void json_number(const char *name, double value);
void json_integer(const char *name, long long value);
void json_latencies(int64_t *values, size_t count); /* p50_us, p90_us, p99_us, max_us */
void json_close(void);

#endif
