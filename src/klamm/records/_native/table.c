/* The type Table: the native side of klamm.records.columnar, which says what it does.
 *
 * The memory of each column is a bytearray, which `take` hands out as it is. Before a payload is read there is room for
 * all that can be in it; so the loop that reads it allocates nothing and does not need the interpreter. What it wrote
 * counts only if all of it was sound. */

#include <string.h>

#include "heads.h"
#include "rows.h"
#include <structmember.h>

#define MAX_COLUMN_BYTES ((size_t)INT32_MAX) /* bounds are numbers of 32 bits */
#define FIRST_ROOM 64
#define SPARES 2 /* who takes one table after another still has the last when the next is filled */
#define MAX_SPARE_BYTES (8 << 20)
#define COUNTS (ARRAYS_FIELDS - COLUMNS)

struct table {
    PyObject_HEAD
    PyObject *memory[COLUMNS]; /* bytearrays; NULL before the first payload */
    PyObject *spare[SPARES][COLUMNS]; /* what was handed out last; ours again when nobody else has it any more */
    uint8_t *data[COLUMNS];
    size_t room[COLUMNS]; /* without memory: what the last one had in use */
    struct filled filled;
    Py_ssize_t rows; /* what Python sees of it */
    Py_ssize_t size;
    bool with_headers;
    bool busy; /* with a payload, and has let go of the interpreter lock */
};

/* Memory for a column: some that is no longer used, because pages that are new to the process cost more than writing
 * them, or a new bytearray. */
static PyObject *find_memory(struct table *table, enum column column, size_t room)
{
    for (int i = 0; i < SPARES; i++) {
        PyObject *spare = table->spare[i][column];
        if (spare != NULL && Py_REFCNT(spare) == 1) {
            table->spare[i][column] = NULL;
            if (PyByteArray_Resize(spare, (Py_ssize_t)room) == 0)
                return spare;
            Py_DECREF(spare);
            return NULL;
        }
    }
    return PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)room);
}

static void keep_spare(struct table *table, enum column column, size_t used)
{
    Py_XDECREF(table->spare[SPARES - 1][column]);
    for (int i = SPARES - 1; i > 0; i--)
        table->spare[i][column] = table->spare[i - 1][column];
    table->spare[0][column] = used <= MAX_SPARE_BYTES ? Py_NewRef(table->memory[column]) : NULL;
}

static bool make_room(struct table *table, enum column column, size_t bytes)
{
    size_t room = table->room[column];
    if (table->memory[column] == NULL) {
        room = room < bytes ? bytes : room;
        room = room < FIRST_ROOM ? FIRST_ROOM : room;
        table->memory[column] = find_memory(table, column, room);
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

/* Add what is given. False with damage or an error set, and nothing is added. */
static bool fill(struct table *table, struct addition *given, enum damage *wrong)
{
    struct filled most, now = table->filled;
    if ((*wrong = batch_start(&given->batch)) || !prepare(table, given, &most, wrong))
        return false;
    table->busy = true;
    UNLOCK(given->batch.payload.len);
    *wrong = fill_rows(table->data, table->with_headers, given, &most, &now);
    LOCK();
    table->busy = false;
    if (*wrong)
        return false;
    table->filled = now;
    table->rows = (Py_ssize_t)now.rows;
    table->size = (Py_ssize_t)(now.key_bytes + now.value_bytes + now.header_key_bytes + now.header_value_bytes);
    return true;
}

static PyObject *add(PyObject *module, struct table *table, struct addition *given)
{
    enum damage wrong = SOUND;
    if (!fill(table, given, &wrong))
        return wrong ? refuse(module, wrong) : NULL;
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

/* One batch of those that were fetched. 1 if it was added; 0 if it is for others to look at, and nothing of it was; -1
 * with an error set. */
static int add_batch(PyObject *module, struct table *table, struct addition *given, const uint8_t *at,
                     const struct head *head)
{
    int right = has_right_crc(module, at, head);
    if (right != 1)
        return right;
    struct batch *batch = &given->batch;
    batch->payload.buf = (void *)(at + HEADER_BYTES); /* only these two fields of it are looked at */
    batch->payload.len = size_of(head) - HEADER_BYTES;
    batch->count = given->limit = head->count;
    batch->base_offset = head->base_offset;
    batch->last_delta = head->last_delta;
    given->times = times_in(head);
    enum damage wrong = SOUND;
    if (fill(table, given, &wrong))
        return 1;
    if (!wrong && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        return 0;
    }
    return wrong && wrong != NO_MEMORY ? 0 : -1;
}

static PyObject *table_add_fetched(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "pos", "topic", "partition", "start", "max_rows", "max_bytes", NULL};
    struct table *table = (struct table *)self;
    struct addition given;
    Py_buffer data;
    Py_ssize_t pos, max_rows, max_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*n$y#iLnn:add_fetched", names, &data, &pos, &given.topic,
                                     &given.topic_bytes, &given.partition, &given.start, &max_rows, &max_bytes))
        return NULL;
    PyObject *module = PyType_GetModule(Py_TYPE(self));
    int going = is_free(table) ? pos >= 0 : -1;
    long long offset = given.start;
    int32_t epoch = -1;
    while (going == 1 && table->rows < max_rows && table->size < max_bytes && data.len - pos >= HEADER_BYTES) {
        struct head head;
        const uint8_t *at = (const uint8_t *)data.buf + pos;
        read_head(at, &head);
        if (!is_plain(&head, data.len - pos) || head.count > max_rows - table->rows)
            break;
        long long after = head.base_offset + head.last_delta + 1;
        if (after > given.start) {
            if ((going = add_batch(module, table, &given, at, &head)) != 1)
                break;
            offset = after;
            epoch = head.leader_epoch;
        }
        pos += size_of(&head);
    }
    PyBuffer_Release(&data);
    return going < 0 ? NULL : Py_BuildValue("(nLi)", pos, offset, (int)epoch);
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
        keep_spare(table, (enum column)i, used[i]);
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
    for (int i = 0; i < COLUMNS; i++) {
        Py_XDECREF(((struct table *)self)->memory[i]);
        for (int j = 0; j < SPARES; j++)
            Py_XDECREF(((struct table *)self)->spare[j][i]);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef table_methods[] = {
    {"add", (PyCFunction)(void (*)(void))table_add, METH_VARARGS | METH_KEYWORDS, NULL},
    {"add_fetched", (PyCFunction)(void (*)(void))table_add_fetched, METH_VARARGS | METH_KEYWORDS, NULL},
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
