/* The members of one group, all in one thread: how long a group takes to come together.
 *
 *   join run --to A --topic T --members N --group G [--heartbeat-ms MS] [--session-ms MS]
 *
 * The topic has as many partitions as there are members, each with something in it. A member does what a consumer of
 * the classic protocol does, one request after another: on a connection of its own it asks for the API versions, finds
 * its coordinator, joins (first for a member id, then with it) and syncs, the leader with everybody's share; on a second
 * one it asks for the API versions before it joins, and then for the committed offsets of its share, and fetches it.
 * Heartbeats go on from the first sync. Nobody joins before all are connected: a member that came so early that the
 * group began without the others would make them wait for its next heartbeat, and that is not what is measured.
 *
 * The time runs from the first connect until the last member has its first record. Prints also when the last member
 * had each step behind it, and how long this program waited in between. */
#include "fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define MAX_MEMBERS 1000
#define MAX_ID_BYTES 256
#define MAX_GREETING 32 /* connections that wait for their first answer: Kafka's listen queue holds 50 */
#define RETRY_NS INT64_C(5000000)
#define REBALANCE_MS 30000

enum { FETCH = 1, OFFSET_FETCH = 9, FIND_COORDINATOR = 10, JOIN = 11, HEARTBEAT = 12, SYNC = 14, API_VERSIONS = 18 };
enum {
    LOAD_IN_PROGRESS = 14,
    NOT_AVAILABLE = 15,
    NOT_COORDINATOR = 16,
    ILLEGAL_GENERATION = 22,
    REBALANCE_IN_PROGRESS = 27,
    MEMBER_ID_REQUIRED = 79,
};

/* What a member has behind it for the first time. */
enum step { GREETED, FOUND, GREETED_AGAIN, NAMED, JOINED, SYNCED, LOCATED, READ, STEPS };
static const char *const step_names[STEPS] = {"versions_ms", "found_ms", "second_versions_ms", "member_id_ms",
                                              "joined_ms",   "synced_ms", "offsets_ms",        "record_ms"};

/* A connection with one request under way. */
struct link {
    int fd, api;
    struct bytes in;
};

struct member {
    struct link control, data;
    char id[MAX_ID_BYTES];
    int generation, share_count;
    int *share; /* partitions */
    int64_t due; /* of a request that waits for its time, or 0 */
    int due_api;
    int64_t at[STEPS];
};

static struct {
    const char *address, *topic, *group;
    int size, heartbeat_ms, session_ms;
    struct member *members;
    int poller, done;
    int first_links, second_links, greeting, greeted; /* connections opened; of them, without an answer; members that have both */
    struct member **found; /* members in the order in which they may open their second connection */
    int found_count;
    struct bytes out;
    int64_t start;
} all;

/* --- answers ------------------------------------------------------------------------------------------------- */

struct answer {
    const unsigned char *next, *end;
};

static const unsigned char *take(struct answer *answer, size_t size) {
    if ((size_t)(answer->end - answer->next) < size)
        fail("an answer ends too early");
    answer->next += size;
    return answer->next - size;
}

static int take_int16(struct answer *answer) { return get_int16(take(answer, 2)); }
static int32_t take_int32(struct answer *answer) { return get_int32(take(answer, 4)); }

static struct answer take_piece(struct answer *answer, int64_t size) {
    const unsigned char *start = take(answer, size > 0 ? (size_t)size : 0);
    return (struct answer){start, answer->next};
}

static struct answer take_text(struct answer *answer) { return take_piece(answer, take_int16(answer)); }
static struct answer take_bytes(struct answer *answer) { return take_piece(answer, take_int32(answer)); }

static void keep_text(struct answer text, char *into) {
    size_t size = (size_t)(text.end - text.next);
    if (size >= MAX_ID_BYTES)
        fail("a member id of %zu bytes", size);
    memcpy(into, text.next, size);
    into[size] = '\0';
}

/* --- requests ------------------------------------------------------------------------------------------------ */

static void ask(struct link *link, int api) {
    end_request(&all.out);
    link->api = api;
    send_all(link->fd, all.out.data, all.out.size);
}

static void put_share(struct bytes *out, const int *share, int count) {
    put_int32(out, count);
    for (int i = 0; i < count; i++)
        put_int32(out, share[i]);
}

static void ask_versions(struct link *link) {
    begin_request(&all.out, API_VERSIONS, 3);
    put_int8(&all.out, 0); /* no tagged fields; then compact strings: one more than their length */
    put_int8(&all.out, 1 + 5);
    put(&all.out, "bench", 5);
    put_int8(&all.out, 1 + 1);
    put(&all.out, "1", 1);
    put_int8(&all.out, 0);
    ask(link, API_VERSIONS);
}

static void ask_coordinator(struct member *member) {
    begin_request(&all.out, FIND_COORDINATOR, 2);
    put_string(&all.out, all.group);
    put_int8(&all.out, 0);
    ask(&member->control, FIND_COORDINATOR);
}

static void ask_join(struct member *member) {
    struct bytes *out = &all.out;
    begin_request(out, JOIN, 5);
    put_string(out, all.group);
    put_int32(out, all.session_ms);
    put_int32(out, REBALANCE_MS);
    put_string(out, member->id);
    put_string(out, NULL); /* no static member */
    put_string(out, "consumer");
    put_int32(out, 1); /* protocols */
    put_string(out, "range");
    put_int32(out, (int32_t)(2 + 4 + 2 + strlen(all.topic) + 4)); /* the subscription: version, topics, user data */
    put_int16(out, 0);
    put_int32(out, 1);
    put_string(out, all.topic);
    put_int32(out, -1);
    ask(&member->control, JOIN);
}

/* The shares of all members, in the order of their ids, if this is the leader; else none. */
static void ask_sync(struct member *member, char (*ids)[MAX_ID_BYTES], int count) {
    struct bytes *out = &all.out, share = {0};
    begin_request(out, SYNC, 3);
    put_string(out, all.group);
    put_int32(out, member->generation);
    put_string(out, member->id);
    put_string(out, NULL);
    put_int32(out, count);
    for (int i = 0; i < count; i++) {
        share.size = 0;
        put_int16(&share, 0);
        put_int32(&share, i < all.size);
        if (i < all.size) {
            put_string(&share, all.topic);
            put_int32(&share, (all.size - i + count - 1) / count);
            for (int partition = i; partition < all.size; partition += count)
                put_int32(&share, partition);
        }
        put_int32(&share, -1); /* user data */
        put_string(out, ids[i]);
        put_int32(out, (int32_t)share.size);
        put(out, share.data, share.size);
    }
    free(share.data);
    ask(&member->control, SYNC);
}

static void ask_heartbeat(struct member *member) {
    begin_request(&all.out, HEARTBEAT, 3);
    put_string(&all.out, all.group);
    put_int32(&all.out, member->generation);
    put_string(&all.out, member->id);
    put_string(&all.out, NULL);
    ask(&member->control, HEARTBEAT);
}

static void ask_offsets(struct member *member) {
    begin_request(&all.out, OFFSET_FETCH, 5);
    put_string(&all.out, all.group);
    put_int32(&all.out, 1);
    put_string(&all.out, all.topic);
    put_share(&all.out, member->share, member->share_count);
    ask(&member->data, OFFSET_FETCH);
}

static void ask_records(struct member *member) {
    struct fetch fetch = {.request = all.out};
    put_fetch_of(&fetch, all.topic, member->share, member->share_count, 1 << 20);
    all.out = fetch.request;
    member->data.api = FETCH;
    send_fetch(&fetch, member->data.fd);
}

static void ask_later(struct member *member, int api, int64_t after_ns) {
    member->due = now_ns() + after_ns;
    member->due_api = api;
}

/* --- what comes of them -------------------------------------------------------------------------------------- */

static void reach(struct member *member, enum step step) {
    if (member->at[step] == 0) {
        member->at[step] = now_ns();
        all.done += step == READ;
    }
}

static void open_link(struct member *member, struct link *link) {
    link->fd = connect_to(all.address);
    uint32_t index = (uint32_t)(member - all.members) * 2 + (link == &member->data);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
    if (epoll_ctl(all.poller, EPOLL_CTL_ADD, link->fd, &event) != 0)
        fail("epoll: %s", strerror(errno));
    ask_versions(link);
}

/* As many connections as may be under way. */
static void open_links(void) {
    for (; all.second_links < all.found_count && all.greeting < MAX_GREETING; all.second_links++, all.greeting++)
        open_link(all.found[all.second_links], &all.found[all.second_links]->data);
    for (; all.first_links < all.size && all.greeting < MAX_GREETING; all.first_links++, all.greeting++)
        open_link(&all.members[all.first_links], &all.members[all.first_links].control);
}

static bool to_be_asked_again(struct member *member, int api, int code) {
    if (code != LOAD_IN_PROGRESS && code != NOT_AVAILABLE && code != NOT_COORDINATOR)
        return false;
    ask_later(member, api, RETRY_NS);
    return true;
}

static void take_coordinator(struct member *member, struct answer *answer) {
    take_int32(answer); /* throttled */
    int code = take_int16(answer);
    if (to_be_asked_again(member, FIND_COORDINATOR, code))
        return;
    expect_no_error("find coordinator", code);
    reach(member, FOUND); /* there is only one broker: it is this one */
    all.found[all.found_count++] = member;
}

static int compare_ids(const void *left, const void *right) { return strcmp(left, right); }

static void take_joined(struct member *member, struct answer *answer) {
    static char ids[MAX_MEMBERS][MAX_ID_BYTES];
    char leader[MAX_ID_BYTES];
    take_int32(answer);
    int code = take_int16(answer);
    if (to_be_asked_again(member, JOIN, code))
        return;
    member->generation = take_int32(answer);
    take_text(answer); /* protocol */
    keep_text(take_text(answer), leader);
    keep_text(take_text(answer), member->id);
    if (code == MEMBER_ID_REQUIRED) {
        reach(member, NAMED);
        ask_join(member);
        return;
    }
    expect_no_error("join", code);
    reach(member, JOINED);
    int count = take_int32(answer);
    if (count > MAX_MEMBERS)
        fail("a group of %d members", count);
    for (int i = 0; i < count; i++) {
        keep_text(take_text(answer), ids[i]);
        take_text(answer);  /* instance id */
        take_bytes(answer); /* subscription */
    }
    qsort(ids, (size_t)count, sizeof *ids, compare_ids);
    ask_sync(member, ids, strcmp(leader, member->id) == 0 ? count : 0);
}

static void take_share(struct member *member, struct answer share) {
    member->share_count = 0;
    take_int16(&share); /* version */
    for (int topics = take_int32(&share); topics > 0; topics--) {
        take_text(&share);
        for (int count = take_int32(&share); count > 0; count--) {
            if (member->share_count == all.size)
                fail("more partitions than there are");
            member->share[member->share_count++] = take_int32(&share);
        }
    }
}

static void take_synced(struct member *member, struct answer *answer) {
    take_int32(answer);
    int code = take_int16(answer);
    if (code == REBALANCE_IN_PROGRESS) {
        ask_join(member);
        return;
    }
    expect_no_error("sync", code);
    reach(member, SYNCED);
    take_share(member, take_bytes(answer));
    ask_later(member, HEARTBEAT, all.heartbeat_ms * INT64_C(1000000));
    if (member->share_count > 0 && member->at[READ] == 0 && member->data.api == 0)
        ask_offsets(member);
}

static void take_heartbeat(struct member *member, struct answer *answer) {
    take_int32(answer);
    int code = take_int16(answer);
    if (code == REBALANCE_IN_PROGRESS || code == ILLEGAL_GENERATION) {
        ask_join(member);
        return;
    }
    expect_no_error("heartbeat", code);
    ask_later(member, HEARTBEAT, all.heartbeat_ms * INT64_C(1000000));
}

static void take_offsets(struct member *member, struct answer *answer) {
    take_int32(answer);
    for (int topics = take_int32(answer); topics > 0; topics--) {
        take_text(answer);
        for (int count = take_int32(answer); count > 0; count--) {
            take(answer, 4 + 8 + 4); /* partition, offset, epoch */
            take_text(answer);
            expect_no_error("offset of a partition", take_int16(answer));
        }
    }
    expect_no_error("offsets", take_int16(answer));
    reach(member, LOCATED);
    ask_records(member);
}

static void take_records(struct member *member, struct answer *answer) {
    int64_t found = 0;
    take_int32(answer);
    expect_no_error("fetch", take_int16(answer));
    take_int32(answer); /* session */
    for (int topics = take_int32(answer); topics > 0; topics--) {
        take_text(answer);
        for (int count = take_int32(answer); count > 0; count--) {
            take_int32(answer); /* partition */
            expect_no_error("fetch of a partition", take_int16(answer));
            take(answer, 3 * 8);
            int aborted = take_int32(answer);
            take(answer, aborted > 0 ? (size_t)aborted * 16 : 0);
            take_int32(answer); /* preferred replica */
            struct answer records = take_bytes(answer);
            found += records.end - records.next;
        }
    }
    if (found > 0)
        reach(member, READ);
    else
        ask_offsets(member);
}

static void take_versions(struct member *member, struct link *link, struct answer *answer) {
    expect_no_error("versions", take_int16(answer));
    all.greeting--;
    if (link == &member->control) {
        reach(member, GREETED);
        ask_coordinator(member);
        return;
    }
    reach(member, GREETED_AGAIN);
    if (++all.greeted == all.size)
        for (int i = 0; i < all.size; i++)
            ask_join(&all.members[i]);
}

static void take_answer(struct member *member, struct link *link, struct answer *answer) {
    int api = link->api;
    link->api = 0;
    take_int32(answer); /* correlation id */
    switch (api) {
    case API_VERSIONS: take_versions(member, link, answer); break;
    case FIND_COORDINATOR: take_coordinator(member, answer); break;
    case JOIN: take_joined(member, answer); break;
    case SYNC: take_synced(member, answer); break;
    case HEARTBEAT: take_heartbeat(member, answer); break;
    case OFFSET_FETCH: take_offsets(member, answer); break;
    case FETCH: take_records(member, answer); break;
    default: fail("an answer that nobody asked for");
    }
}

/* --- the loop ------------------------------------------------------------------------------------------------ */

static void read_link(uint32_t index) {
    static unsigned char buffer[256 << 10];
    struct member *member = &all.members[index / 2];
    struct link *link = index % 2 ? &member->data : &member->control;
    ssize_t got = recv(link->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        fail("a connection was closed");
    if (got <= 0)
        return;
    put(&link->in, buffer, (size_t)got);
    if (link->in.size < 4 || link->in.size < 4 + (size_t)get_int32(link->in.data))
        return;
    struct answer answer = {link->in.data + 4, link->in.data + 4 + get_int32(link->in.data)};
    if (answer.end != link->in.data + link->in.size)
        fail("more than one answer to a request");
    link->in.size = 0; /* the bytes stay until the next answer */
    take_answer(member, link, &answer);
}

/* Sends what is due; returns the milliseconds until something else is. */
static int send_due(void) {
    int64_t now = now_ns(), next = now + INT64_C(1000000000);
    for (int i = 0; i < all.size; i++) {
        struct member *member = &all.members[i];
        if (member->due == 0)
            continue;
        if (member->due > now) {
            next = member->due < next ? member->due : next;
            continue;
        }
        member->due = 0;
        if (member->due_api == HEARTBEAT)
            ask_heartbeat(member);
        else if (member->due_api == JOIN)
            ask_join(member);
        else
            ask_coordinator(member);
    }
    return (int)((next - now) / 1000000 + 1);
}

/* Returns the nanoseconds in which there was nothing to do but to wait. */
static int64_t run(void) {
    struct epoll_event events[64];
    int64_t waited = 0;
    while (all.done < all.size) {
        open_links();
        int timeout = send_due();
        int64_t before = now_ns();
        int ready = epoll_wait(all.poller, events, 64, timeout);
        waited += now_ns() - before;
        if (ready < 0 && errno != EINTR)
            fail("epoll: %s", strerror(errno));
        for (int i = 0; i < ready; i++)
            read_link(events[i].data.u32);
    }
    return waited;
}

static double last_ms(enum step step) {
    int64_t last = 0;
    for (int i = 0; i < all.size; i++)
        last = all.members[i].at[step] > last ? all.members[i].at[step] : last;
    return (double)(last - all.start) / 1e6;
}

int main(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "run") != 0)
        fail("usage: join run --option value ...");
    parse_options(argc, argv);
    start_watchdog();
    all.address = option("to", NULL);
    all.topic = option("topic", NULL);
    all.group = option("group", "members");
    all.size = (int)option_number("members", 1);
    all.heartbeat_ms = (int)option_number("heartbeat-ms", 3000);
    all.session_ms = (int)option_number("session-ms", 45000);
    check_options();
    if (all.size < 1 || all.size > MAX_MEMBERS)
        fail("1 to %d members", MAX_MEMBERS);
    all.members = allocate((size_t)all.size * sizeof *all.members);
    for (int i = 0; i < all.size; i++)
        all.members[i].share = allocate((size_t)all.size * sizeof(int));
    all.found = allocate((size_t)all.size * sizeof *all.found);
    all.poller = epoll_create1(0);
    double cpu = cpu_seconds();
    all.start = now_ns();
    int64_t waited = run();
    double seconds = seconds_since(all.start);
    int generation = 0;
    for (int i = 0; i < all.size; i++)
        generation = all.members[i].generation > generation ? all.members[i].generation : generation;
    json_open("join");
    json_number("seconds", seconds);
    json_integer("generation", generation);
    for (enum step step = 0; step < STEPS; step++)
        json_number(step_names[step], last_ms(step));
    json_number("waited_ms", (double)waited / 1e6);
    json_number("client_cpu_s", cpu_seconds() - cpu);
    json_close();
    return 0;
}
