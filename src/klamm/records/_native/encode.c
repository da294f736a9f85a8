/* encode_payload: the native side of klamm.records.encoding, which says what it does. Holds the interpreter lock: it
 * reads Python objects all the time. Whatever they are, sizes are asked for once and then stuck to. */

#include <stdlib.h>
#include <string.h>

#include "out.h"

bool reserve(struct out *out, size_t more)
{
    if (more <= out->room - out->size)
        return true;
    size_t wanted = out->size + more;
    if (wanted > SIZE_MAX / 4) {
        PyErr_SetString(PyExc_OverflowError, "a batch that is too large");
        return false;
    }
    size_t room = out->room * 2 > wanted ? out->room * 2 : wanted;
    uint8_t *data = realloc(out->data, room);
    if (data == NULL) {
        PyErr_NoMemory();
        return false;
    }
    out->data = data;
    out->room = room;
    return true;
}

static bool put_number(struct out *out, int64_t number)
{
    if (!reserve(out, MAX_VARLONG_BYTES))
        return false;
    out->size += write_varlong(out->data + out->size, number);
    return true;
}

/* A length and that many bytes. */
static bool put_field(struct out *out, const void *data, Py_ssize_t size)
{
    if (size > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a field that is too large");
        return false;
    }
    if (!put_number(out, size) || !reserve(out, (size_t)size))
        return false;
    if (size > 0)
        memcpy(out->data + out->size, data, (size_t)size);
    out->size += (size_t)size;
    return true;
}

static bool put_bytes(struct out *out, PyObject *value)
{
    if (value == Py_None)
        return put_number(out, -1);
    Py_buffer view;
    if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0)
        return false;
    bool done = put_field(out, view.buf, view.len);
    PyBuffer_Release(&view);
    return done;
}

static bool put_text(struct out *out, PyObject *text)
{
    Py_ssize_t size;
    const char *data = PyUnicode_AsUTF8AndSize(text, &size);
    return data != NULL && put_field(out, data, size);
}

/* A new reference to a tuple of what the sequence is at this moment, so that nobody changes it meanwhile. With a
 * `count` of 0 or more it has that many items. */
static PyObject *frozen(PyObject *sequence, Py_ssize_t count)
{
    PyObject *items = PyTuple_Check(sequence) ? Py_NewRef(sequence) : PySequence_Tuple(sequence);
    if (items != NULL && count >= 0 && PyTuple_Size(items) != count) {
        PyErr_Format(PyExc_ValueError, "%zd fields where %zd belong", PyTuple_Size(items), count);
        Py_CLEAR(items);
    }
    return items;
}

bool put_headers(struct out *out, PyObject *sequence)
{
    PyObject *headers = frozen(sequence, -1);
    if (headers == NULL)
        return false;
    Py_ssize_t count = PyTuple_Size(headers);
    bool done = put_number(out, count);
    for (Py_ssize_t i = 0; done && i < count; i++) {
        PyObject *pair = frozen(PyTuple_GetItem(headers, i), 2);
        done = pair != NULL && put_text(out, PyTuple_GetItem(pair, 0)) && put_bytes(out, PyTuple_GetItem(pair, 1));
        Py_XDECREF(pair);
    }
    Py_DECREF(headers);
    return done;
}

static bool timestamp_delta(PyObject *timestamp, long long base, int64_t *delta)
{
    long long time = PyLong_AsLongLong(timestamp);
    if (time == -1 && PyErr_Occurred())
        return false;
    if (base >= 0 ? time < INT64_MIN + base : time > INT64_MAX + base) {
        PyErr_SetString(PyExc_OverflowError, "timestamps too far apart for one batch");
        return false;
    }
    *delta = time - base;
    return true;
}

/* `fields` is a tuple of five, which the caller holds. */
static bool put_record(struct out *out, PyObject *fields, int64_t offset_delta, long long base_timestamp)
{
    int64_t delta;
    size_t start = out->size;
    if (!timestamp_delta(PyTuple_GetItem(fields, 1), base_timestamp, &delta) || !reserve(out, MAX_VARLONG_BYTES + 1))
        return false;
    out->size += MAX_VARLONG_BYTES; /* room for the length, which is known last */
    size_t body = out->size;
    out->data[out->size++] = 0; /* attributes: none in use */
    if (!put_number(out, delta) || !put_number(out, offset_delta) || !put_bytes(out, PyTuple_GetItem(fields, 2)) ||
        !put_bytes(out, PyTuple_GetItem(fields, 3)) || !put_headers(out, PyTuple_GetItem(fields, 4)))
        return false;
    size_t bytes = out->size - body;
    if (bytes > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a record that is too large");
        return false;
    }
    size_t length = write_varlong(out->data + start, (int64_t)bytes);
    memmove(out->data + start + length, out->data + body, bytes);
    out->size = start + length + bytes;
    return true;
}

PyObject *encode_payload(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *names[] = {"records", "base_timestamp", NULL};
    PyObject *sequence;
    long long base_timestamp;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OL:encode_payload", names, &sequence, &base_timestamp))
        return NULL;
    PyObject *records = frozen(sequence, -1);
    if (records == NULL)
        return NULL;
    struct out out = {.data = NULL};
    Py_ssize_t count = PyTuple_Size(records);
    bool done = true;
    for (Py_ssize_t i = 0; done && i < count; i++) {
        PyObject *fields = frozen(PyTuple_GetItem(records, i), RECORD_FIELDS);
        done = fields != NULL && put_record(&out, fields, i, base_timestamp);
        Py_XDECREF(fields);
    }
    Py_DECREF(records);
    PyObject *made = done ? PyBytes_FromStringAndSize((const char *)out.data, (Py_ssize_t)out.size) : NULL;
    free(out.data);
    return made;
}
