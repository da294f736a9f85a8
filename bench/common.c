/* See common.h. */
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MAX_OPTIONS 32
#define DEFAULT_WATCHDOG_S 300

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(2);
}

void *allocate(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    if (memory == NULL)
        fail("no memory for %zu bytes", size);
    return memory;
}

/* --- options ------------------------------------------------------------------------------------------------- */

static struct {
    const char *name, *value;
    bool used;
} options[MAX_OPTIONS];
static int option_count;

void parse_options(int argc, char **argv) {
    for (int i = 2; i < argc; i += 2) {
        if (strncmp(argv[i], "--", 2) != 0 || i + 1 >= argc)
            fail("expected --name value, got %s", argv[i]);
        if (option_count == MAX_OPTIONS)
            fail("more than %d options", MAX_OPTIONS);
        options[option_count].name = argv[i] + 2;
        options[option_count++].value = argv[i + 1];
    }
}

const char *option(const char *name, const char *fallback) {
    for (int i = 0; i < option_count; i++)
        if (strcmp(options[i].name, name) == 0) {
            options[i].used = true;
            return options[i].value;
        }
    if (fallback == NULL)
        fail("--%s is required", name);
    return fallback;
}

long long option_number(const char *name, long long fallback) {
    const char *text = option(name, "");
    if (*text == '\0')
        return fallback;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*end != '\0' || errno != 0)
        fail("--%s: %s is no number", name, text);
    return value;
}

void check_options(void) {
    for (int i = 0; i < option_count; i++)
        if (!options[i].used)
            fail("no option --%s in this mode", options[i].name);
}

/* --- time ---------------------------------------------------------------------------------------------------- */

static void bark(int signal_number) {
    (void)signal_number;
    static const char message[] = "took longer than --timeout seconds\n";
    ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
    (void)ignored;
    _exit(3);
}

void start_watchdog(void) {
    signal(SIGALRM, bark);
    alarm((unsigned)option_number("timeout", DEFAULT_WATCHDOG_S));
}

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

double seconds_since(int64_t start_ns) { return (double)(now_ns() - start_ns) / 1e9; }

double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* --- sockets ------------------------------------------------------------------------------------------------- */

static void set_up(int fd) {
    int on = 1;
    struct timeval limit = {.tv_sec = SOCKET_TIMEOUT_S};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

int connect_to(const char *address) {
    char host[64];
    const char *colon = strrchr(address, ':');
    if (colon == NULL || (size_t)(colon - address) >= sizeof host)
        fail("%s is not HOST:PORT", address);
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
    if (inet_pton(AF_INET, host, &peer.sin_addr) != 1)
        fail("%s is not an IPv4 address", host);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        fail("socket: %s", strerror(errno));
    set_up(fd);
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer) != 0)
        fail("cannot connect to %s: %s", address, strerror(errno));
    return fd;
}

int listen_on_loopback(int *port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof name;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, size) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&name, &size) != 0)
        fail("cannot listen: %s", strerror(errno));
    *port = ntohs(name.sin_port);
    return fd;
}

int accept_one(int listener) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        fail("accept: %s", strerror(errno));
    set_up(fd);
    return fd;
}

void send_all(int fd, const void *data, size_t size) {
    const char *next = data;
    while (size > 0) {
        ssize_t sent = send(fd, next, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            fail("send: %s", strerror(errno));
        next += sent;
        size -= (size_t)sent;
    }
}

static size_t receive_some(int fd, void *data, size_t size) {
    for (;;) {
        ssize_t got = recv(fd, data, size, 0);
        if (got > 0)
            return (size_t)got;
        if (got == 0)
            fail("the other side closed the connection");
        if (errno != EINTR)
            fail("receive: %s", strerror(errno));
    }
}

void receive_all(int fd, void *data, size_t size) {
    char *next = data;
    while (size > 0) {
        size_t got = receive_some(fd, next, size);
        next += got;
        size -= got;
    }
}

struct reader *reader_new(int fd, size_t capacity) {
    struct reader *reader = allocate(sizeof *reader);
    reader->fd = fd;
    reader->capacity = capacity;
    reader->buffer = allocate(capacity);
    return reader;
}

const unsigned char *reader_take(struct reader *reader, size_t size) {
    if (size > reader->capacity)
        fail("%zu bytes are more than the reader's buffer", size);
    if (reader->end - reader->position < size) {
        memmove(reader->buffer, reader->buffer + reader->position, reader->end - reader->position);
        reader->end -= reader->position;
        reader->position = 0;
        while (reader->end < size) {
            size_t got = receive_some(reader->fd, reader->buffer + reader->end, reader->capacity - reader->end);
            reader->end += got;
            reader->received += got;
        }
    }
    reader->position += size;
    return reader->buffer + reader->position - size;
}

void reader_skip(struct reader *reader, uint64_t size) {
    while (size > reader->end - reader->position) {
        size -= reader->end - reader->position;
        reader->position = 0;
        reader->end = receive_some(reader->fd, reader->buffer, reader->capacity);
        reader->received += reader->end;
    }
    reader->position += size;
}

/* --- results ------------------------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

double percentile_us(int64_t *values, size_t count, double percent) {
    if (count == 0)
        return 0;
    qsort(values, count, sizeof *values, compare);
    size_t index = (size_t)((double)(count - 1) * percent / 100.0 + 0.5);
    return (double)values[index] / 1e3;
}

void json_open(const char *mode) { printf("{\"mode\": \"%s\"", mode); }
void json_number(const char *name, double value) { printf(", \"%s\": %.6g", name, value); }
void json_integer(const char *name, long long value) { printf(", \"%s\": %lld", name, value); }

void json_latencies(int64_t *values, size_t count) {
    json_number("p50_us", percentile_us(values, count, 50));
    json_number("p90_us", percentile_us(values, count, 90));
    json_number("p99_us", percentile_us(values, count, 99));
    json_number("max_us", percentile_us(values, count, 100));
}

void json_close(void) {
    printf("}\n");
    fflush(stdout);
}
