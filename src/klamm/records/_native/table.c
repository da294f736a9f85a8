/* The type Table: the native side of klamm.records.columnar, which says what it does.
 *
 * The memory of each column is a bytearray, which `take` hands out as it is. Before a payload is read there is room for
 * all that can be in it; so the loop that reads it allocates nothing and does not need the interpreter. What it wrote
 * counts only if all of it was sound. */

#include <string.h>

#include "decode.h"
#include <structmember.h>

#define MAX_COLUMN_BYTES ((size_t)INT32_MAX) /* bounds are numbers of 32 bits */
#define FIRST_ROOM 64

enum column { /* in the order of klamm.records.columnar.Arrays */
    KEY_VALIDITY,
    KEY_BOUNDS,
    KEY_DATA,
    VALUE_VALIDITY,
    VALUE_BOUNDS,
    VALUE_DATA,
    TOPIC_BOUNDS,
    TOPIC_DATA,
    PARTITIONS,
    OFFSETS,
    TIMESTAMPS,
    TIMESTAMP_TYPES,
    HEADERS_VALIDITY,
    HEADERS_BOUNDS,
    HEADER_KEY_BOUNDS,
    HEADER_KEY_DATA,
    HEADER_VALUE_VALIDITY,
    HEADER_VALUE_BOUNDS,
    HEADER_VALUE_DATA,
    COLUMNS,
};
#define COUNTS (ARRAYS_FIELDS - COLUMNS)

struct filled { /* how much of the columns is in use */
    size_t rows, headers;
    size_t key_nulls, value_nulls, headers_nulls, header_value_nulls;
    size_t key_bytes, value_bytes, topic_bytes, header_key_bytes, header_value_bytes;
};

struct table {
    PyObject_HEAD
    PyObject *memory[COLUMNS]; /* bytearrays; NULL before the first payload */
    uint8_t *data[COLUMNS];
    size_t room[COLUMNS]; /* without memory: what the last one had in use */
    struct filled filled;
    Py_ssize_t rows; /* what Python sees of it */
    Py_ssize_t size;
    bool with_headers;
    bool busy; /* with a payload, and has let go of the interpreter lock */
};

/* What is added by one call. */
struct addition {
    struct batch batch;
    struct times times;
    const char *topic;
    Py_ssize_t topic_bytes;
    int partition;
    long long start;
    Py_ssize_t limit;
};

static size_t bitmap_bytes(size_t bits)
{
    return (bits + 7) / 8;
}

static bool make_room(struct table *table, enum column column, size_t bytes)
{
    size_t room = table->room[column];
    if (table->memory[column] == NULL) {
        room = room < bytes ? bytes : room;
        room = room < FIRST_ROOM ? FIRST_ROOM : room;
        table->memory[column] = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)room);
        if (table->memory[column] == NULL)
            return false;
        memset(PyByteArray_AsString(table->memory[column]), 0, 4); /* the bound in front of all others */
    } else if (bytes > room) {
        room = bytes > 2 * room ? bytes : 2 * room;
        if (PyByteArray_Resize(table->memory[column], (Py_ssize_t)room) < 0)
            return false;
    } else {
        return true;
    }
    table->data[column] = (uint8_t *)PyByteArray_AsString(table->memory[column]);
    table->room[column] = room;
    return true;
}

/* How many bytes of each column are in use. */
static void lay_out(const struct filled *filled, bool with_headers, size_t *used)
{
    size_t rows = filled->rows, headers = filled->headers;
    used[KEY_VALIDITY] = used[VALUE_VALIDITY] = bitmap_bytes(rows);
    used[KEY_BOUNDS] = used[VALUE_BOUNDS] = used[TOPIC_BOUNDS] = (rows + 1) * 4;
    used[KEY_DATA] = filled->key_bytes;
    used[VALUE_DATA] = filled->value_bytes;
    used[TOPIC_DATA] = filled->topic_bytes;
    used[PARTITIONS] = used[TIMESTAMP_TYPES] = rows * 4;
    used[OFFSETS] = used[TIMESTAMPS] = rows * 8;
    used[HEADERS_VALIDITY] = with_headers ? bitmap_bytes(rows) : 0;
    used[HEADERS_BOUNDS] = with_headers ? (rows + 1) * 4 : 0;
    used[HEADER_KEY_BOUNDS] = used[HEADER_VALUE_BOUNDS] = with_headers ? (headers + 1) * 4 : 0;
    used[HEADER_VALUE_VALIDITY] = with_headers ? bitmap_bytes(headers) : 0;
    used[HEADER_KEY_DATA] = filled->header_key_bytes;
    used[HEADER_VALUE_DATA] = filled->header_value_bytes;
}

static bool make_all_room(struct table *table, const struct filled *most)
{
    size_t needed[COLUMNS];
    lay_out(most, table->with_headers, needed);
    for (int i = 0; i < COLUMNS; i++) {
        if (needed[i] > MAX_COLUMN_BYTES) {
            PyErr_SetString(PyExc_OverflowError, "a column of more bytes than 32 bits can tell");
            return false;
        }
        if (!make_room(table, (enum column)i, needed[i]))
            return false;
    }
    return true;
}

/* The headers of the records to come, counted. Nothing else of them is looked at. */
static enum damage count_headers(const struct addition *given, struct filled *most)
{
    struct walk walk = given->batch.walk;
    struct record record;
    for (Py_ssize_t rows = 0; walk.left > 0 && rows < given->limit;) {
        size_t pos;
        int32_t count;
        enum damage wrong = walk_next(&walk, &record);
        if (wrong || (wrong = headers_start(&walk, &record, &pos, &count)))
            return wrong;
        if (given->batch.base_offset + record.offset_delta < given->start)
            continue;
        rows++;
        most->headers += (size_t)count;
        most->header_key_bytes += record.end - pos; /* more than enough for each of the two */
        most->header_value_bytes += record.end - pos;
    }
    return SOUND;
}

static inline void put_bit(uint8_t *bits, size_t at, bool set)
{
    uint8_t before = bits[at / 8] & (uint8_t)((1u << at % 8) - 1); /* at a byte's first bit it is not initialized */
    if (at % 8 == 0)
        before = 0;
    bits[at / 8] = before | (uint8_t)((unsigned)set << at % 8);
}

/* What an addition that failed may have left behind the last bit. */
static void clear_behind(uint8_t *bits, size_t count)
{
    if (count % 8 != 0)
        bits[count / 8] &= (uint8_t)((1u << count % 8) - 1);
}

static inline void put_int32(uint8_t *column, size_t at, int32_t value)
{
    memcpy(column + at * 4, &value, 4);
}

static inline void put_int64(uint8_t *column, size_t at, int64_t value)
{
    memcpy(column + at * 8, &value, 8);
}

/* Append a field to a column of bytes: data, the bound behind it, validity. */
static inline void put_field(uint8_t *const *data, enum column validity, size_t at, const struct walk *walk,
                             struct field field, size_t *bytes, size_t *nulls)
{
    put_bit(data[validity], at, field.bytes >= 0);
    if (field.bytes < 0) {
        *nulls += 1;
    } else {
        memcpy(data[validity + 2] + *bytes, walk->data + field.start, (size_t)field.bytes);
        *bytes += (size_t)field.bytes;
    }
    put_int32(data[validity + 1], at + 1, (int32_t)*bytes);
}

static bool is_text(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size;) {
        uint8_t first = bytes[i++];
        if (first < 0x80)
            continue;
        int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
        if (first < 0xC2 || first > 0xF4 || size - i < (size_t)more)
            return false;
        uint8_t second = bytes[i]; /* overlong forms, surrogates, and what lies beyond Unicode */
        if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
            (first == 0xF4 && second > 0x8F))
            return false;
        for (; more > 0; more--)
            if ((bytes[i++] & 0xC0) != 0x80)
                return false;
    }
    return true;
}

/* The headers of one record. `most` is how much there is room for: somebody may have changed them since they were
 * counted. */
static enum damage put_headers_of(uint8_t *const *data, const struct walk *walk, const struct record *record,
                                  const struct filled *most, struct filled *now)
{
    size_t pos;
    int32_t count;
    enum damage wrong = headers_start(walk, record, &pos, &count);
    if (wrong)
        return wrong;
    if ((size_t)count > most->headers - now->headers || record->end - pos > most->header_key_bytes - now->header_key_bytes ||
        record->end - pos > most->header_value_bytes - now->header_value_bytes)
        return BAD_HEADERS;
    for (int32_t i = 0; i < count; i++) {
        struct field key, value;
        if ((wrong = header_next(walk, record->end, &pos, &key, &value)))
            return wrong;
        uint8_t *name = data[HEADER_KEY_DATA] + now->header_key_bytes;
        memcpy(name, walk->data + key.start, (size_t)key.bytes);
        if (!is_text(name, (size_t)key.bytes))
            return BAD_HEADERS;
        now->header_key_bytes += (size_t)key.bytes;
        put_int32(data[HEADER_KEY_BOUNDS], now->headers + 1, (int32_t)now->header_key_bytes);
        put_field(data, HEADER_VALUE_VALIDITY, now->headers, walk, value, &now->header_value_bytes,
                  &now->header_value_nulls);
        now->headers++;
    }
    put_bit(data[HEADERS_VALIDITY], now->rows, count > 0);
    put_int32(data[HEADERS_BOUNDS], now->rows + 1, (int32_t)now->headers);
    now->headers_nulls += count == 0;
    return pos == record->end ? SOUND : BAD_LENGTH;
}

/* Nobody wants them; they have to be sound all the same. */
static inline enum damage pass_headers(const struct walk *walk, const struct record *record)
{
    size_t start;
    int32_t count;
    if (walk->data[record->headers] == 0 && record->headers + 1 == record->end) /* most records have none */
        return SOUND;
    return headers_check(walk, record, &start, &count);
}

static inline int64_t microseconds(int64_t milliseconds)
{
    if (milliseconds > INT64_MAX / 1000)
        return INT64_MAX;
    return milliseconds < INT64_MIN / 1000 ? INT64_MIN : milliseconds * 1000;
}

static enum damage fill(struct table *table, struct addition *given, const struct filled *most, struct filled *filled)
{
    struct walk *walk = &given->batch.walk;
    struct filled now = *filled;
    uint8_t *data[COLUMNS];
    memcpy(data, table->data, sizeof data);
    bool with_headers = table->with_headers;
    size_t enough = now.rows + (size_t)given->limit;
    while (walk->left > 0 && now.rows < enough) {
        struct record record;
        int64_t timestamp;
        enum damage wrong = walk_next(walk, &record);
        if (wrong)
            return wrong;
        int64_t offset = given->batch.base_offset + record.offset_delta;
        bool wanted = offset >= given->start;
        wrong = with_headers && wanted ? put_headers_of(data, walk, &record, most, &now) : pass_headers(walk, &record);
        if (wrong)
            return wrong;
        if (!wanted)
            continue;
        if ((wrong = time_of(&given->times, record.timestamp_delta, &timestamp)))
            return wrong;
        size_t row = now.rows++;
        put_field(data, KEY_VALIDITY, row, walk, (struct field){record.key, record.key_bytes}, &now.key_bytes,
                  &now.key_nulls);
        put_field(data, VALUE_VALIDITY, row, walk, (struct field){record.value, record.value_bytes}, &now.value_bytes,
                  &now.value_nulls);
        memcpy(data[TOPIC_DATA] + now.topic_bytes, given->topic, (size_t)given->topic_bytes);
        now.topic_bytes += (size_t)given->topic_bytes;
        put_int32(data[TOPIC_BOUNDS], row + 1, (int32_t)now.topic_bytes);
        put_int32(data[PARTITIONS], row, given->partition);
        put_int64(data[OFFSETS], row, offset);
        put_int64(data[TIMESTAMPS], row, microseconds(timestamp));
        put_int32(data[TIMESTAMP_TYPES], row, given->times.has_append);
    }
    *filled = now;
    return walk->left > 0 ? SOUND : walk_end(walk);
}

static bool is_free(const struct table *table)
{
    if (table->busy)
        PyErr_SetString(PyExc_RuntimeError, "the table is in use by another thread");
    return !table->busy;
}

/* What is in use after these records, at most. False with damage or an error set. */
static bool prepare(struct table *table, const struct addition *given, struct filled *most, enum damage *wrong)
{
    size_t rows = (size_t)(given->limit < given->batch.count ? given->limit : given->batch.count);
    size_t bytes = (size_t)given->batch.payload.len;
    *most = table->filled;
    if (table->with_headers && (*wrong = count_headers(given, most)))
        return false;
    most->rows += rows;
    most->key_bytes += bytes;
    most->value_bytes += bytes;
    most->topic_bytes += rows * (size_t)given->topic_bytes;
    return make_all_room(table, most);
}

static PyObject *add(PyObject *module, struct table *table, struct addition *given)
{
    struct filled most, now = table->filled;
    enum damage wrong = batch_start(&given->batch);
    if (wrong)
        return refuse(module, wrong);
    if (!prepare(table, given, &most, &wrong))
        return wrong ? refuse(module, wrong) : NULL;
    table->busy = true;
    UNLOCK(given->batch.payload.len);
    wrong = fill(table, given, &most, &now);
    LOCK();
    table->busy = false;
    if (wrong)
        return refuse(module, wrong);
    table->filled = now;
    table->rows = (Py_ssize_t)now.rows;
    table->size = (Py_ssize_t)(now.key_bytes + now.value_bytes + now.header_key_bytes + now.header_value_bytes);
    const struct walk *walk = &given->batch.walk;
    long long next = walk->pos > 0 ? given->batch.base_offset + walk->last_delta + 1 : given->start;
    return Py_BuildValue("(nnL)", given->batch.count - (Py_ssize_t)walk->left, (Py_ssize_t)walk->pos, next);
}

static PyObject *table_add(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"payload", "count", "base_offset", "last_delta", "base_timestamp", "append_time", "topic",
                            "partition", "start", "limit", NULL};
    struct table *table = (struct table *)self;
    struct addition given;
    struct batch *batch = &given.batch;
    PyObject *append_time, *made = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*n$LiLOy#iLn:add", names, &batch->payload, &batch->count,
                                     &batch->base_offset, &batch->last_delta, &given.times.base, &append_time,
                                     &given.topic, &given.topic_bytes, &given.partition, &given.start, &given.limit))
        return NULL;
    given.limit = given.limit > 0 ? given.limit : 0;
    given.times.has_append = append_time != Py_None;
    given.times.append = given.times.has_append ? PyLong_AsLongLong(append_time) : 0;
    if (!(given.times.append == -1 && PyErr_Occurred()) && is_free(table))
        made = add(PyType_GetModule(Py_TYPE(self)), table, &given);
    PyBuffer_Release(&batch->payload);
    return made;
}

static PyObject *table_take(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    struct table *table = (struct table *)self;
    if (!is_free(table) || !make_all_room(table, &table->filled))
        return NULL;
    const struct filled *filled = &table->filled;
    size_t counts[COUNTS] = {filled->rows,        filled->headers,       filled->key_nulls,
                             filled->value_nulls, filled->headers_nulls, filled->header_value_nulls};
    size_t used[COLUMNS];
    PyObject *items[ARRAYS_FIELDS];
    bool cut = true;
    lay_out(filled, table->with_headers, used);
    clear_behind(table->data[KEY_VALIDITY], filled->rows);
    clear_behind(table->data[VALUE_VALIDITY], filled->rows);
    if (table->with_headers) {
        clear_behind(table->data[HEADERS_VALIDITY], filled->rows);
        clear_behind(table->data[HEADER_VALUE_VALIDITY], filled->headers);
    }
    for (int i = 0; i < COUNTS; i++)
        items[i] = PyLong_FromSize_t(counts[i]);
    for (int i = 0; i < COLUMNS; i++) {
        cut = PyByteArray_Resize(table->memory[i], (Py_ssize_t)used[i]) == 0 && cut;
        items[COUNTS + i] = table->memory[i];
        table->memory[i] = NULL;
        table->room[i] = used[i];
    }
    table->filled = (struct filled){0};
    table->rows = table->size = 0;
    struct state *state = PyModule_GetState(PyType_GetModule(Py_TYPE(self)));
    PyObject *made = named(state->arrays, ARRAYS_FIELDS, items);
    if (!cut)
        Py_CLEAR(made);
    return made;
}

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"headers", NULL};
    int with_headers = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p:Table", names, &with_headers))
        return NULL;
    struct table *table = (struct table *)PyType_GenericAlloc(type, 0); /* all zero */
    if (table != NULL)
        table->with_headers = with_headers;
    return (PyObject *)table;
}

static void table_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    for (int i = 0; i < COLUMNS; i++)
        Py_XDECREF(((struct table *)self)->memory[i]);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef table_methods[] = {
    {"add", (PyCFunction)(void (*)(void))table_add, METH_VARARGS | METH_KEYWORDS, NULL},
    {"take", table_take, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef table_members[] = {
    {"rows", T_PYSSIZET, offsetof(struct table, rows), READONLY, NULL},
    {"size", T_PYSSIZET, offsetof(struct table, size), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_doc, "Records as the buffers of Arrow's arrays; see klamm.records.columnar.Table."},
    {Py_tp_new, table_new},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_methods, table_methods},
    {Py_tp_members, table_members},
    {0, NULL},
};

PyType_Spec table_spec = {
    .name = "klamm.records._native.kernel.Table",
    .basicsize = sizeof(struct table),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = table_slots,
};
