/* The peer that a broker is measured against: the same bytes over the same loopback, and nothing else done to them.
 *
 *   bare sink   --file F               reads chunks, writes each to F, answers each with one byte (the in-peer)
 *   bare feed   --to HOST:PORT ...     sends chunks to a sink, so many in flight
 *   bare ping   --to HOST:PORT ...     sends small chunks to a sink, one at a time, and measures the answers
 *   bare source --file F               sends the piece of F that is asked for, by sendfile (the out-peer)
 *   bare drain  --to HOST:PORT ...     asks a source for one piece after another and reads them
 *   bare warm   --bytes N              touches that much memory and gives it back
 *
 * sink and source print `port N`, serve one connection after another, and stop when their standard input ends. A
 * connection begins with a greeting of 8 bytes: the chunk size for a sink, zero for a source. */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CHUNK (256 << 20)
#define DRAIN_BUFFER (256 << 10)

struct piece {
    uint64_t offset, size;
};

/* Reads exactly `size` bytes; false if the peer closed before the first one. */
static bool receive_or_end(int fd, void *data, size_t size) {
    ssize_t got;
    do
        got = recv(fd, data, size, 0);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return false;
    receive_all(fd, (char *)data + got, size - (size_t)got);
    return true;
}

static void sink(int fd, int file) {
    uint64_t chunk;
    receive_all(fd, &chunk, sizeof chunk);
    if (chunk == 0 || chunk > MAX_CHUNK)
        fail("a chunk of %llu bytes", (unsigned long long)chunk);
    if (ftruncate(file, 0) != 0 || lseek(file, 0, SEEK_SET) != 0)
        fail("cannot truncate: %s", strerror(errno));
    char *buffer = allocate(chunk);
    while (receive_or_end(fd, buffer, chunk)) {
        if (write(file, buffer, chunk) != (ssize_t)chunk)
            fail("write: %s", strerror(errno));
        send_all(fd, "", 1);
    }
    free(buffer);
}

static void source(int fd, int file) {
    uint64_t greeting;
    struct piece piece;
    receive_all(fd, &greeting, sizeof greeting);
    while (receive_or_end(fd, &piece, sizeof piece)) {
        off_t offset = (off_t)piece.offset;
        while (piece.size > 0) {
            ssize_t sent = sendfile(fd, file, &offset, piece.size);
            if (sent < 0 && errno == EINTR)
                continue;
            if (sent <= 0)
                fail("sendfile: %s", sent == 0 ? "past the end of the file" : strerror(errno));
            piece.size -= (uint64_t)sent;
        }
    }
}

static void serve(void (*handle)(int, int), int flags) {
    int file = open(option("file", NULL), flags, 0644);
    if (file < 0)
        fail("%s: %s", option("file", NULL), strerror(errno));
    check_options();
    int port;
    int listener = listen_on_loopback(&port);
    printf("port %d\n", port);
    fflush(stdout);
    struct pollfd waiting[2] = {{.fd = listener, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
    for (;;) {
        if (poll(waiting, 2, -1) < 0 && errno != EINTR)
            fail("poll: %s", strerror(errno));
        if (waiting[1].revents != 0)
            return;
        if (waiting[0].revents != 0) {
            int fd = accept_one(listener);
            handle(fd, file);
            close(fd);
        }
    }
}

static char *chunk_of(uint64_t size) {
    if (size == 0 || size > MAX_CHUNK)
        fail("a chunk of %llu bytes", (unsigned long long)size);
    char *data = allocate(size);
    memset(data, 'x', size);
    return data;
}

/* --chunk bytes each, --depth of them in flight, until --bytes are sent. */
static void feed(void) {
    int fd = connect_to(option("to", NULL));
    uint64_t chunk = (uint64_t)option_number("chunk", 1000000);
    long long bytes = option_number("bytes", 1 << 30), depth = option_number("depth", 5);
    check_options();
    char *data = chunk_of(chunk), answer;
    long long count = bytes / (long long)chunk;
    if (count < 1 || depth < 1)
        fail("less than one chunk, or none in flight");
    send_all(fd, &chunk, sizeof chunk);
    double cpu = cpu_seconds();
    int64_t start = now_ns();
    for (long long i = 0; i < count + depth; i++) {
        if (i >= depth && i - depth < count)
            receive_all(fd, &answer, 1);
        if (i < count)
            send_all(fd, data, chunk);
    }
    double seconds = seconds_since(start);
    json_open("feed");
    json_integer("bytes", count * (long long)chunk);
    json_number("seconds", seconds);
    json_number("bytes_per_s", (double)count * (double)chunk / seconds);
    json_number("client_cpu_s", cpu_seconds() - cpu);
    json_close();
}

/* One chunk at a time to a sink, and how long each answer took. */
static void ping(void) {
    int fd = connect_to(option("to", NULL));
    uint64_t chunk = (uint64_t)option_number("chunk", 200);
    long long count = option_number("count", 20000);
    check_options();
    char *data = chunk_of(chunk), answer;
    if (count < 1)
        fail("--count must be at least 1");
    int64_t *latencies = allocate((size_t)count * sizeof *latencies);
    send_all(fd, &chunk, sizeof chunk);
    for (long long i = 0; i < count; i++) {
        int64_t start = now_ns();
        send_all(fd, data, chunk);
        receive_all(fd, &answer, 1);
        latencies[i] = now_ns() - start;
    }
    json_open("ping");
    json_integer("count", count);
    json_latencies(latencies, (size_t)count);
    json_close();
}

/* Pieces of --chunk bytes, one after another, from a file of --file-bytes, over and over until --bytes are read. */
static void drain(void) {
    int fd = connect_to(option("to", NULL));
    uint64_t chunk = (uint64_t)option_number("chunk", 1 << 20), file_bytes = (uint64_t)option_number("file-bytes", 0);
    long long count = option_number("bytes", 1 << 30) / (long long)chunk;
    check_options();
    if (chunk == 0 || count < 1 || file_bytes < chunk)
        fail("the file must hold at least one chunk, and bytes be at least one");
    uint64_t greeting = 0;
    struct reader *reader = reader_new(fd, DRAIN_BUFFER);
    struct piece piece = {.size = chunk};
    send_all(fd, &greeting, sizeof greeting);
    double cpu = cpu_seconds();
    int64_t start = now_ns();
    for (long long i = 0; i < count; i++) {
        send_all(fd, &piece, sizeof piece);
        reader_skip(reader, chunk);
        piece.offset += chunk;
        if (piece.offset + chunk > file_bytes)
            piece.offset = 0;
    }
    double seconds = seconds_since(start);
    json_open("drain");
    json_integer("bytes", count * (long long)chunk);
    json_number("seconds", seconds);
    json_number("bytes_per_s", (double)count * (double)chunk / seconds);
    json_number("client_cpu_s", cpu_seconds() - cpu);
    json_close();
}

/* Touches --bytes of memory and gives it back. On a virtual machine the first use of a page is the host's work, which
 * can take longer than all that is measured here; after this the free pages are there. */
static void warm(void) {
    size_t size = (size_t)option_number("bytes", 1 << 30);
    check_options();
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("no memory for %zu bytes", size);
    int64_t start = now_ns();
    for (size_t i = 0; i < size; i += 4096)
        memory[i] = 1;
    json_open("warm");
    json_number("seconds", seconds_since(start));
    json_close();
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    parse_options(argc, argv);
    start_watchdog();
    if (strcmp(mode, "sink") == 0)
        serve(sink, O_RDWR | O_CREAT | O_TRUNC);
    else if (strcmp(mode, "source") == 0)
        serve(source, O_RDONLY);
    else if (strcmp(mode, "feed") == 0)
        feed();
    else if (strcmp(mode, "ping") == 0)
        ping();
    else if (strcmp(mode, "drain") == 0)
        drain();
    else if (strcmp(mode, "warm") == 0)
        warm();
    else
        fail("usage: bare sink|feed|ping|source|drain|warm --option value ...");
    return 0;
}
