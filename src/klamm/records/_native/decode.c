/* decode_payload, decode_columns: the native side of klamm.records.decoding, which says what they do. */

#include "decode.h"

enum damage time_of(const struct times *times, int64_t delta, int64_t *timestamp)
{
    *timestamp = times->append;
    if (times->has_append)
        return SOUND;
    if (delta > 0 ? times->base > INT64_MAX - delta : times->base < INT64_MIN - delta)
        return BAD_TIMESTAMP;
    *timestamp = times->base + delta;
    return SOUND;
}

static bool parse(PyObject *args, PyObject *kwargs, const char *format, struct batch *batch, struct times *times)
{
    static char *names[] = {"payload", "count", "base_offset", "last_delta", "base_timestamp", "append_time", NULL};
    PyObject *append_time = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, &batch->payload, &batch->count, &batch->base_offset,
                                     &batch->last_delta, &times->base, &append_time))
        return false;
    times->has_append = append_time != Py_None;
    times->append = times->has_append ? PyLong_AsLongLong(append_time) : 0;
    if (times->append == -1 && PyErr_Occurred()) {
        PyBuffer_Release(&batch->payload);
        return false;
    }
    return true;
}

/* decode_payload */

PyObject *bytes_or_none(const struct walk *walk, struct field field)
{
    if (field.bytes < 0)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)walk->data + field.start, field.bytes);
}

PyObject *headers_of(const struct walk *walk, const struct record *record, enum damage *wrong)
{
    size_t pos;
    int32_t count;
    if ((*wrong = headers_start(walk, record, &pos, &count)))
        return NULL;
    PyObject *headers = PyTuple_New(count);
    for (int32_t i = 0; headers != NULL && i < count; i++) {
        struct field key, value;
        if ((*wrong = header_next(walk, record->end, &pos, &key, &value))) {
            Py_DECREF(headers);
            return NULL;
        }
        PyObject *name = PyUnicode_DecodeUTF8((const char *)walk->data + key.start, key.bytes, NULL);
        PyObject *content = name != NULL ? bytes_or_none(walk, value) : NULL;
        PyObject *pair = content != NULL ? PyTuple_Pack(2, name, content) : NULL;
        Py_XDECREF(name);
        Py_XDECREF(content);
        if (pair == NULL || PyTuple_SetItem(headers, i, pair) < 0)
            Py_CLEAR(headers);
    }
    if (headers == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        *wrong = BAD_HEADERS;
    }
    if (headers != NULL && pos != record->end) {
        Py_DECREF(headers);
        *wrong = BAD_LENGTH;
        return NULL;
    }
    return headers;
}

static PyObject *record_of(PyObject *type, struct batch *batch, const struct times *times, enum damage *wrong)
{
    const struct walk *walk = &batch->walk;
    struct record record;
    int64_t timestamp;
    if ((*wrong = walk_next(&batch->walk, &record)) || (*wrong = time_of(times, record.timestamp_delta, &timestamp)))
        return NULL;
    PyObject *headers = headers_of(walk, &record, wrong);
    if (headers == NULL)
        return NULL;
    PyObject *items[RECORD_FIELDS] = {
        PyLong_FromLongLong(batch->base_offset + record.offset_delta),
        PyLong_FromLongLong(timestamp),
        bytes_or_none(walk, (struct field){record.key, record.key_bytes}),
        bytes_or_none(walk, (struct field){record.value, record.value_bytes}),
        headers,
    };
    PyObject *made = named(type, RECORD_FIELDS, items);
    if (made != NULL)
        PyObject_GC_UnTrack(made); /* nothing in it can lead back to it, and there may be millions */
    return made;
}

PyObject *decode_payload(PyObject *module, PyObject *args, PyObject *kwargs)
{
    struct batch batch;
    struct times times;
    if (!parse(args, kwargs, "y*nLiL|O:decode_payload", &batch, &times))
        return NULL;
    enum damage wrong = batch_start(&batch);
    PyObject *records = wrong ? NULL : PyList_New(batch.count);
    for (Py_ssize_t i = 0; records != NULL && i < batch.count; i++) {
        PyObject *record = record_of(state_of(module)->record, &batch, &times, &wrong);
        if (record == NULL || PyList_SetItem(records, i, record) < 0)
            Py_CLEAR(records);
    }
    if (records != NULL && (wrong = walk_end(&batch.walk)))
        Py_CLEAR(records);
    PyBuffer_Release(&batch.payload);
    return wrong ? refuse(module, wrong) : records;
}

/* decode_columns */

enum { OFFSETS, TIMESTAMPS, KEY_STARTS, KEY_LENGTHS, VALUE_STARTS, VALUE_LENGTHS, HEADER_STARTS, HEADER_COUNTS };

struct table {
    int64_t *wide[2];                 /* up to TIMESTAMPS */
    int32_t *narrow[COLUMNS_FIELDS]; /* from KEY_STARTS on */
};

enum damage headers_check(const struct walk *walk, const struct record *record, size_t *start, int32_t *count)
{
    size_t pos;
    enum damage wrong = headers_start(walk, record, &pos, count);
    *start = pos;
    for (int32_t i = 0; !wrong && i < *count; i++) {
        struct field key, value;
        wrong = header_next(walk, record->end, &pos, &key, &value);
    }
    return wrong ? wrong : pos == record->end ? SOUND : BAD_LENGTH;
}

static enum damage fill(struct batch *batch, const struct times *times, struct table *table)
{
    struct walk *walk = &batch->walk;
    struct record record;
    enum damage wrong;
    for (size_t i = 0; walk->left > 0; i++) {
        size_t headers;
        int32_t header_count;
        if ((wrong = walk_next(walk, &record)) || (wrong = headers_check(walk, &record, &headers, &header_count)) ||
            (wrong = time_of(times, record.timestamp_delta, &table->wide[TIMESTAMPS][i])))
            return wrong;
        table->wide[OFFSETS][i] = batch->base_offset + record.offset_delta;
        table->narrow[KEY_STARTS][i] = (int32_t)record.key;
        table->narrow[KEY_LENGTHS][i] = record.key_bytes;
        table->narrow[VALUE_STARTS][i] = (int32_t)record.value;
        table->narrow[VALUE_LENGTHS][i] = record.value_bytes;
        table->narrow[HEADER_STARTS][i] = (int32_t)headers;
        table->narrow[HEADER_COUNTS][i] = header_count;
    }
    return walk_end(walk);
}

/* The bytes as a memoryview of numbers; takes the reference to `bytes`. */
static PyObject *numbers(PyObject *bytes, const char *format)
{
    PyObject *view = PyMemoryView_FromObject(bytes);
    Py_DECREF(bytes);
    if (view == NULL)
        return NULL;
    PyObject *cast = PyObject_CallMethod(view, "cast", "s", format);
    Py_DECREF(view);
    return cast;
}

PyObject *decode_columns(PyObject *module, PyObject *args, PyObject *kwargs)
{
    struct batch batch;
    struct times times;
    struct table table;
    PyObject *columns[COLUMNS_FIELDS] = {NULL};
    if (!parse(args, kwargs, "y*nLiL|O:decode_columns", &batch, &times))
        return NULL;
    enum damage wrong = batch_start(&batch); /* from here on, count is bounded by the size of the payload */
    bool made = !wrong;
    for (int i = 0; made && i < COLUMNS_FIELDS; i++) {
        columns[i] = PyBytes_FromStringAndSize(NULL, batch.count * (i <= TIMESTAMPS ? 8 : 4));
        made = columns[i] != NULL;
        if (made && i <= TIMESTAMPS)
            table.wide[i] = (int64_t *)PyBytes_AsString(columns[i]);
        else if (made)
            table.narrow[i] = (int32_t *)PyBytes_AsString(columns[i]);
    }
    if (made) {
        UNLOCK(batch.payload.len);
        wrong = fill(&batch, &times, &table);
        LOCK();
        made = !wrong;
    }
    PyBuffer_Release(&batch.payload);
    for (int i = 0; i < COLUMNS_FIELDS; i++) {
        if (made)
            columns[i] = numbers(columns[i], i <= TIMESTAMPS ? "q" : "i");
        else
            Py_CLEAR(columns[i]);
    }
    if (wrong)
        return refuse(module, wrong);
    return made ? named(state_of(module)->columns, COLUMNS_FIELDS, columns) : NULL;
}
