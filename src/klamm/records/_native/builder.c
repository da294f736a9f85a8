/* The type Builder, and `spread`: the native side of klamm.records.building, which says what they do.
 *
 * Whatever of a record may run Python code (exotic buffers, numbers, headers) is asked for first; then its size is
 * known, and it is written in one go. So a record is in the payload as a whole or not at all, whoever calls back. */

#include <stdlib.h>
#include <string.h>

#include "out.h"
#include <structmember.h>

#define FIRST_ROOM 256
#define MAX_HEADER_ROOM 4096

struct builder {
    PyObject_HEAD
    struct out out;
    Py_ssize_t count;
    Py_ssize_t size; /* what Python sees of out.size */
    long long base_timestamp;
    long long max_timestamp;
};

/* The bytes of a key or a value; size -1 is None. */
struct view {
    const void *data;
    Py_ssize_t size;
    PyObject *held; /* bytes, which cannot change */
    Py_buffer buffer;
};

static bool view_take(struct view *view, PyObject *object)
{
    view->held = NULL;
    view->buffer.obj = NULL;
    view->data = NULL;
    view->size = -1;
    if (object == NULL || object == Py_None)
        return true;
    if (PyBytes_CheckExact(object)) {
        view->held = Py_NewRef(object);
        view->data = PyBytes_AsString(object);
        view->size = PyBytes_Size(object);
    } else {
        if (PyObject_GetBuffer(object, &view->buffer, PyBUF_SIMPLE) < 0) {
            view->buffer.obj = NULL;
            return false;
        }
        view->data = view->buffer.buf;
        view->size = view->buffer.len;
    }
    if (view->size <= INT32_MAX)
        return true;
    PyErr_SetString(PyExc_OverflowError, "a field that is too large");
    return false;
}

static void view_release(struct view *view)
{
    Py_XDECREF(view->held);
    if (view->buffer.obj != NULL)
        PyBuffer_Release(&view->buffer);
}

static inline size_t number_bytes(int64_t number)
{
    uint64_t rest = ((uint64_t)number << 1) ^ (number < 0 ? ~(uint64_t)0 : 0);
    size_t bytes = 1;
    while (rest >>= 7)
        bytes++;
    return bytes;
}

static inline uint8_t *write_field(uint8_t *at, const struct view *view)
{
    at += write_varlong(at, view->size);
    if (view->size > 0) {
        memcpy(at, view->data, (size_t)view->size);
        at += view->size;
    }
    return at;
}

enum added { ADDED, NO_ROOM, FAILED };

/* The record behind those that are there, unless the payload would grow beyond `room`. No Python code runs in here. */
static enum added write_record(struct builder *builder, long long time, const struct view *key, const struct view *value,
                               const struct out *headers, Py_ssize_t room)
{
    long long base = builder->count > 0 ? builder->base_timestamp : time;
    if (base >= 0 ? time < INT64_MIN + base : time > INT64_MAX + base) {
        PyErr_SetString(PyExc_OverflowError, "timestamps too far apart for one batch");
        return FAILED;
    }
    size_t header_bytes = headers->size > 0 ? headers->size : 1;
    size_t body = 1 + number_bytes(time - base) + number_bytes(builder->count) + number_bytes(key->size) +
                  (key->size > 0 ? (size_t)key->size : 0) + number_bytes(value->size) +
                  (value->size > 0 ? (size_t)value->size : 0) + header_bytes;
    size_t whole = number_bytes((int64_t)body) + body;
    struct out *out = &builder->out;
    size_t limit = room < 0 ? 0 : (size_t)room < MAX_PAYLOAD_BYTES ? (size_t)room : MAX_PAYLOAD_BYTES;
    if (body > INT32_MAX || whole + out->size > limit)
        return NO_ROOM;
    if (out->room == 0 && !reserve(out, FIRST_ROOM))
        return FAILED;
    if (!reserve(out, whole))
        return FAILED;
    uint8_t *at = out->data + out->size;
    at += write_varlong(at, (int64_t)body);
    *at++ = 0; /* attributes: none in use */
    at += write_varlong(at, time - base);
    at += write_varlong(at, builder->count);
    at = write_field(at, key);
    at = write_field(at, value);
    if (headers->size > 0)
        memcpy(at, headers->data, headers->size);
    else
        *at = 0;
    out->size += whole;
    builder->size = (Py_ssize_t)out->size;
    if (builder->count++ == 0)
        builder->base_timestamp = builder->max_timestamp = time;
    else if (time > builder->max_timestamp)
        builder->max_timestamp = time;
    return ADDED;
}

static bool no_headers(PyObject *headers)
{
    return headers == NULL || headers == Py_None || (PyTuple_Check(headers) && PyTuple_Size(headers) == 0);
}

static enum added add(struct builder *builder, long long time, PyObject *key, PyObject *value, PyObject *headers,
                      Py_ssize_t room)
{
    struct out extra = {.data = NULL};
    struct view key_view, value_view;
    enum added done = FAILED;
    bool taken = view_take(&key_view, key);
    if (view_take(&value_view, taken ? value : NULL) && taken && (no_headers(headers) || put_headers(&extra, headers)))
        done = write_record(builder, time, &key_view, &value_view, &extra, room);
    view_release(&key_view);
    view_release(&value_view);
    free(extra.data);
    return done;
}

/* append(timestamp, key, value, headers, room) */
static PyObject *builder_append(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct builder *builder = (struct builder *)self;
    if (count != 5) {
        PyErr_Format(PyExc_TypeError, "append takes 5 arguments, not %zd", count);
        return NULL;
    }
    long long time = PyLong_AsLongLong(args[0]);
    if (time == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t room = PyLong_AsSsize_t(args[4]);
    if (room == -1 && PyErr_Occurred())
        return NULL;
    switch (add(builder, time, args[1], args[2], args[3], room)) {
    case ADDED: return PyLong_FromSsize_t(builder->count - 1);
    case NO_ROOM: return PyLong_FromLong(-1);
    default: return NULL;
    }
}

/* Columns of records: lists or tuples, or None. `times` may be one number for all. */
struct columns {
    PyObject *values;
    PyObject *keys;
    PyObject *times;
    PyObject *headers;
    long long time;
};

static bool columns_check(struct columns *columns)
{
    PyObject *lists[] = {columns->values, columns->keys, columns->headers};
    for (int i = 0; i < 3; i++) {
        if (!(PyList_Check(lists[i]) || PyTuple_Check(lists[i]) || (i > 0 && lists[i] == Py_None))) {
            PyErr_SetString(PyExc_TypeError, "a column has to be a list or a tuple");
            return false;
        }
    }
    columns->time = 0;
    if (PyList_Check(columns->times) || PyTuple_Check(columns->times))
        return true;
    columns->time = PyLong_AsLongLong(columns->times);
    columns->times = Py_None;
    return columns->time != -1 || !PyErr_Occurred();
}

/* A new reference, to None where there is no column; NULL with IndexError behind its end. */
static PyObject *item_at(PyObject *column, Py_ssize_t index)
{
    if (column == Py_None)
        return Py_NewRef(Py_None);
    PyObject *item = PyList_Check(column) ? PyList_GetItem(column, index) : PyTuple_GetItem(column, index);
    return Py_XNewRef(item);
}

/* The record of this index. Its key is there already. */
static enum added add_row(struct builder *builder, const struct columns *columns, Py_ssize_t index, PyObject *key,
                          Py_ssize_t room)
{
    enum added done = FAILED;
    long long time = columns->time;
    if (columns->times != Py_None) {
        PyObject *given = item_at(columns->times, index);
        time = given != NULL ? PyLong_AsLongLong(given) : -1;
        Py_XDECREF(given);
        if (time == -1 && PyErr_Occurred())
            return FAILED;
    }
    PyObject *value = item_at(columns->values, index);
    PyObject *headers = value != NULL ? item_at(columns->headers, index) : NULL;
    if (headers != NULL)
        done = add(builder, time, key, value, headers, room);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    return done;
}

/* Whether what went wrong is the record's own fault. Then the error is forgotten: many records end there, and whoever
 * gave them finds out with `append`. */
static bool no_record(void)
{
    bool its_own = PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
                   PyErr_ExceptionMatches(PyExc_AttributeError) || PyErr_ExceptionMatches(PyExc_OverflowError);
    if (its_own)
        PyErr_Clear();
    return its_own;
}

static PyObject *builder_extend(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"values", "keys", "timestamps", "headers", "start", "stop", "room", NULL};
    struct columns columns;
    Py_ssize_t start, stop, room;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOnnn:extend", names, &columns.values, &columns.keys,
                                     &columns.times, &columns.headers, &start, &stop, &room))
        return NULL;
    if (!columns_check(&columns))
        return NULL;
    enum added done = ADDED;
    while (start < stop) {
        PyObject *key = item_at(columns.keys, start);
        done = key != NULL ? add_row((struct builder *)self, &columns, start, key, room) : FAILED;
        Py_XDECREF(key);
        if (done != ADDED)
            break;
        start++;
    }
    return done == FAILED && !no_record() ? NULL : PyLong_FromSsize_t(start);
}

static PyObject *builder_payload(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    const struct out *out = &((struct builder *)self)->out;
    return PyBytes_FromStringAndSize((const char *)out->data, (Py_ssize_t)out->size);
}

/* payload_behind(room): one copy less for batches that are not compressed */
static PyObject *builder_payload_behind(PyObject *self, PyObject *given)
{
    const struct out *out = &((struct builder *)self)->out;
    Py_ssize_t room = PyLong_AsSsize_t(given);
    if (room == -1 && PyErr_Occurred())
        return NULL;
    if (room < 0 || room > MAX_HEADER_ROOM) {
        PyErr_Format(PyExc_ValueError, "room for %zd bytes", room);
        return NULL;
    }
    PyObject *made = PyByteArray_FromStringAndSize(NULL, room + (Py_ssize_t)out->size);
    if (made == NULL)
        return NULL;
    char *data = PyByteArray_AsString(made);
    memset(data, 0, (size_t)room);
    if (out->size > 0)
        memcpy(data + room, out->data, out->size);
    return made;
}

static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Builder", names))
        return NULL;
    struct builder *builder = (struct builder *)PyType_GenericAlloc(type, 0);
    if (builder != NULL)
        builder->base_timestamp = builder->max_timestamp = -1;
    return (PyObject *)builder;
}

static void builder_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free(((struct builder *)self)->out.data);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef builder_methods[] = {
    {"append", (PyCFunction)(void (*)(void))builder_append, METH_FASTCALL, NULL},
    {"extend", (PyCFunction)(void (*)(void))builder_extend, METH_VARARGS | METH_KEYWORDS, NULL},
    {"payload", builder_payload, METH_NOARGS, NULL},
    {"payload_behind", builder_payload_behind, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef builder_members[] = {
    {"count", T_PYSSIZET, offsetof(struct builder, count), READONLY, NULL},
    {"size", T_PYSSIZET, offsetof(struct builder, size), READONLY, NULL},
    {"base_timestamp", T_LONGLONG, offsetof(struct builder, base_timestamp), READONLY, NULL},
    {"max_timestamp", T_LONGLONG, offsetof(struct builder, max_timestamp), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot builder_slots[] = {
    {Py_tp_doc, "Records of a batch, encoded as they come; see klamm.records.building.Builder."},
    {Py_tp_new, builder_new},
    {Py_tp_dealloc, builder_dealloc},
    {Py_tp_methods, builder_methods},
    {Py_tp_members, builder_members},
    {0, NULL},
};

PyType_Spec builder_spec = {
    .name = "klamm.records._native.kernel.Builder",
    .basicsize = sizeof(struct builder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = builder_slots,
};

static uint32_t hash(const uint8_t *data, size_t size)
{
    const uint32_t m = 0x5BD1E995;
    uint32_t h = 0x9747B28C ^ (uint32_t)size;
    for (; size >= 4; data += 4, size -= 4) {
        uint32_t k = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = (h * m) ^ (k * m);
    }
    if (size > 0) {
        for (size_t i = 0; i < size; i++)
            h ^= (uint32_t)data[i] << (8 * i);
        h *= m;
    }
    h = (h ^ h >> 13) * m;
    return h ^ h >> 15;
}

PyObject *murmur2(PyObject *module, PyObject *data)
{
    (void)module;
    if (data == Py_None) {
        PyErr_SetString(PyExc_TypeError, "None has no hash");
        return NULL;
    }
    struct view view;
    bool taken = view_take(&view, data);
    PyObject *made = taken ? PyLong_FromUnsignedLong(hash(view.data, (size_t)view.size)) : NULL;
    view_release(&view);
    return made;
}

/* Which builder a record goes to: by the column of partitions or the hash of its key; -1 without either. -2: an error. */
static Py_ssize_t choose(PyObject *partitions, PyObject *key, Py_ssize_t index, Py_ssize_t count)
{
    if (count < 1) { /* whoever runs in between has taken the builders away */
        PyErr_SetString(PyExc_IndexError, "no builders");
        return -2;
    }
    if (partitions != Py_None) {
        PyObject *given = item_at(partitions, index);
        Py_ssize_t chosen = given != NULL ? PyLong_AsSsize_t(given) : -1;
        Py_XDECREF(given);
        if (PyErr_Occurred())
            return -2;
        if (chosen >= 0 && chosen < count)
            return chosen;
        PyErr_Format(PyExc_IndexError, "partition %zd of %zd", chosen, count);
        return -2;
    }
    if (key == Py_None)
        return -1;
    struct view view;
    bool taken = view_take(&view, key);
    Py_ssize_t chosen = taken ? (Py_ssize_t)(hash(view.data, (size_t)view.size) & 0x7FFFFFFF) % count : -2;
    view_release(&view);
    return taken || !no_record() ? chosen : -1;
}

PyObject *spread(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"builders", "values", "keys", "timestamps", "headers", "partitions", "start", "stop", "room",
                            NULL};
    PyObject *builders, *partitions;
    struct columns columns;
    Py_ssize_t start, stop, room, chosen = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOOOOnnn:spread", names, &PyList_Type, &builders, &columns.values,
                                     &columns.keys, &columns.times, &columns.headers, &partitions, &start, &stop, &room))
        return NULL;
    if (!columns_check(&columns))
        return NULL;
    if (!(partitions == Py_None || PyList_Check(partitions) || PyTuple_Check(partitions)) || PyList_Size(builders) < 1) {
        PyErr_SetString(PyExc_TypeError, "partitions have to be a list or a tuple, and builders there");
        return NULL;
    }
    PyTypeObject *type = (PyTypeObject *)state_of(module)->builder;
    enum added done = ADDED;
    size_t bytes = 0;
    for (; start < stop; start++) {
        PyObject *key = item_at(columns.keys, start);
        chosen = key != NULL ? choose(partitions, key, start, PyList_Size(builders)) : -2;
        if (chosen == -2) {
            Py_XDECREF(key);
            return NULL;
        }
        PyObject *target = chosen >= 0 ? Py_XNewRef(PyList_GetItem(builders, chosen)) : NULL;
        if (target != NULL && Py_IS_TYPE(target, type)) {
            struct builder *builder = (struct builder *)target;
            size_t before = builder->out.size;
            done = add_row(builder, &columns, start, key, room);
            bytes += builder->out.size - before;
        } else {
            done = PyErr_Occurred() ? FAILED : NO_ROOM;
        }
        Py_XDECREF(target);
        Py_XDECREF(key);
        if (done != ADDED)
            break;
    }
    if (done == FAILED && !no_record())
        return NULL;
    return Py_BuildValue("nnn", start, done == ADDED ? -1 : chosen, (Py_ssize_t)bytes);
}
