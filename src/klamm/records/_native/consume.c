/* decode_consumed, decode_fetched, measure_fetched: the native side of klamm.records.consuming, which says what they do. */

#include "heads.h"

struct consumed { /* what records have in common, of one batch or of several */
    PyObject *type;
    PyObject *topic;
    PyObject *partition;
    PyObject *timestamp_type;
    PyObject *leader_epoch;
    int64_t last_timestamp;
    PyObject *timestamp; /* of the record before: many in a row have the same */
};

static PyObject *consumed_of(struct consumed *shared, const struct batch *batch, const struct times *times,
                             const struct record *record, enum damage *wrong)
{
    const struct walk *walk = &batch->walk;
    int64_t timestamp;
    if ((*wrong = time_of(times, record->timestamp_delta, &timestamp)))
        return NULL;
    PyObject *headers = headers_of(walk, record, wrong);
    if (headers == NULL)
        return NULL;
    if (shared->timestamp == NULL || timestamp != shared->last_timestamp) {
        Py_XDECREF(shared->timestamp);
        shared->timestamp = PyLong_FromLongLong(timestamp);
        shared->last_timestamp = timestamp;
    }
    PyObject *items[CONSUMED_FIELDS] = {
        Py_NewRef(shared->topic),
        Py_NewRef(shared->partition),
        PyLong_FromLongLong(batch->base_offset + record->offset_delta),
        Py_XNewRef(shared->timestamp),
        Py_NewRef(shared->timestamp_type),
        bytes_or_none(walk, (struct field){record->key, record->key_bytes}),
        bytes_or_none(walk, (struct field){record->value, record->value_bytes}),
        headers,
        Py_NewRef(shared->leader_epoch),
    };
    PyObject *made = named(shared->type, CONSUMED_FIELDS, items);
    if (made != NULL)
        PyObject_GC_UnTrack(made); /* nothing in it can lead back to it, and there may be millions */
    return made;
}

/* Adds the records from `start` on to the list. False with damage or, if there is none, with an error set. */
static bool add_consumed(PyObject *records, struct consumed *shared, struct batch *batch, const struct times *times,
                         long long start, enum damage *wrong)
{
    struct record record;
    while (batch->walk.left > 0) {
        if ((*wrong = walk_next(&batch->walk, &record)))
            return false;
        PyObject *made = consumed_of(shared, batch, times, &record, wrong);
        if (made == NULL)
            return false;
        /* One before the start was made to be checked; there are few of them. */
        int failed = batch->base_offset + record.offset_delta < start ? 0 : PyList_Append(records, made);
        Py_DECREF(made);
        if (failed)
            return false;
    }
    return (*wrong = walk_end(&batch->walk)) == SOUND;
}

static void forget(struct consumed *shared)
{
    Py_CLEAR(shared->timestamp_type);
    Py_CLEAR(shared->timestamp);
}

PyObject *decode_consumed(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"payload", "count", "base_offset", "last_delta", "base_timestamp", "append_time", "topic",
                            "partition", "leader_epoch", "start", NULL};
    struct batch batch;
    struct times times;
    struct consumed shared = {.type = state_of(module)->consumed};
    PyObject *append_time;
    long long start;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*nLiLOO!O!O!L:decode_consumed", names, &batch.payload, &batch.count,
                                     &batch.base_offset, &batch.last_delta, &times.base, &append_time, &PyUnicode_Type,
                                     &shared.topic, &PyLong_Type, &shared.partition, &PyLong_Type, &shared.leader_epoch,
                                     &start))
        return NULL;
    enum damage wrong = SOUND;
    PyObject *records = NULL;
    times.has_append = append_time != Py_None;
    times.append = times.has_append ? PyLong_AsLongLong(append_time) : 0;
    if (times.append != -1 || !PyErr_Occurred())
        shared.timestamp_type = PyLong_FromLong(times.has_append);
    if (shared.timestamp_type != NULL && !(wrong = batch_start(&batch))) {
        records = PyList_New(0);
        if (records != NULL && !add_consumed(records, &shared, &batch, &times, start, &wrong))
            Py_CLEAR(records);
    }
    forget(&shared);
    PyBuffer_Release(&batch.payload);
    return wrong ? refuse(module, wrong) : records;
}

/* decode_fetched: whole batches, with their headers. */

static bool replace(PyObject **number, long with)
{
    Py_XDECREF(*number);
    *number = PyLong_FromLong(with);
    return *number != NULL;
}

/* Adds the records of one batch. 1 if all is well; 0 if the batch is not sound, and nothing of it was added; -1 with an
 * error set. */
static int add_batch(PyObject *module, PyObject *records, struct consumed *shared, const uint8_t *at,
                     const struct head *head, long long start)
{
    int right = has_right_crc(module, at, head);
    if (right != 1)
        return right;
    struct batch batch = {.count = head->count, .base_offset = head->base_offset, .last_delta = head->last_delta};
    struct times times = times_in(head);
    size_t payload_bytes = (size_t)(size_of(head) - HEADER_BYTES);
    enum damage wrong = walk_start(&batch.walk, at + HEADER_BYTES, payload_bytes, batch.count, batch.last_delta);
    Py_ssize_t before = PyList_Size(records);
    if (!replace(&shared->timestamp_type, times.has_append) || !replace(&shared->leader_epoch, head->leader_epoch))
        return -1;
    if (!wrong && add_consumed(records, shared, &batch, &times, start, &wrong))
        return 1;
    if (!wrong || wrong == NO_MEMORY)
        return -1;
    return PyList_SetSlice(records, before, PyList_Size(records), NULL) < 0 ? -1 : 0;
}

PyObject *decode_fetched(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "pos", "topic", "partition", "start", "limit", NULL};
    struct consumed shared = {.type = state_of(module)->consumed};
    Py_buffer data;
    Py_ssize_t pos, limit;
    long long start;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*nO!O!Ln:decode_fetched", names, &data, &pos, &PyUnicode_Type,
                                     &shared.topic, &PyLong_Type, &shared.partition, &start, &limit))
        return NULL;
    PyObject *records = PyList_New(0);
    int going = records == NULL ? -1 : pos >= 0;
    while (going == 1 && PyList_Size(records) < limit && data.len - pos >= HEADER_BYTES) {
        struct head head;
        const uint8_t *at = (const uint8_t *)data.buf + pos;
        read_head(at, &head);
        if (!is_plain(&head, data.len - pos))
            break;
        if (head.base_offset + head.last_delta >= start)
            going = add_batch(module, records, &shared, at, &head, start);
        if (going == 1)
            pos += size_of(&head);
    }
    forget(&shared);
    Py_XDECREF(shared.leader_epoch);
    PyBuffer_Release(&data);
    PyObject *found = going < 0 ? NULL : Py_BuildValue("(On)", records, pos);
    Py_XDECREF(records);
    return found;
}

PyObject *measure_fetched(PyObject *module, PyObject *args)
{
    Py_buffer data;
    long long offset;
    if (!PyArg_ParseTuple(args, "y*L:measure_fetched", &data, &offset))
        return NULL;
    struct head head;
    enum damage wrong = SOUND;
    Py_ssize_t pos = 0;
    int32_t epoch = -1;
    while (data.len - pos >= HEADER_BYTES) {
        read_head((const uint8_t *)data.buf + pos, &head);
        if (head.length < HEADER_BYTES - PREFIX_BYTES)
            wrong = BAD_LENGTH;
        else if (head.length > data.len - pos - PREFIX_BYTES)
            break; /* a partial one */
        else
            wrong = check_base(head.base_offset, head.last_delta);
        if (wrong)
            break;
        int64_t after = head.base_offset + head.last_delta + 1;
        offset = after > offset ? after : offset;
        epoch = head.leader_epoch;
        pos += size_of(&head);
    }
    PyBuffer_Release(&data);
    return wrong ? refuse(module, wrong) : Py_BuildValue("(nLi)", pos, offset, (int)epoch);
}
