/* add_keys, filter_records, keyless: the native side of klamm.records.filter, which says what they do. */

#include <stdlib.h>
#include <string.h>

#include "module.h"

/* Records that were read and are still to be dealt with, in their order. */

struct seen {
    struct record record;
    struct hashed key; /* if it has one */
};

struct ahead {
    struct walk *walk;
    const struct keymap *map;
    struct seen ring[KEYMAP_AHEAD];
    size_t in, out;    /* how many have come and gone */
    enum damage wrong; /* behind those that have come */
};

/* The next record, NULL after the last one that is sound. Reads on as far as may be, and hashes the keys. */
static const struct seen *next_seen(struct ahead *ahead)
{
    const struct walk *walk = ahead->walk;
    while (walk->left > 0 && !ahead->wrong && ahead->in - ahead->out < KEYMAP_AHEAD) {
        struct seen *seen = &ahead->ring[ahead->in % KEYMAP_AHEAD];
        if ((ahead->wrong = walk_next(ahead->walk, &seen->record)))
            break;
        if (seen->record.key_bytes >= 0)
            seen->key = keymap_hash(ahead->map, walk->data + seen->record.key, (size_t)seen->record.key_bytes);
        ahead->in++;
    }
    return ahead->in == ahead->out ? NULL : &ahead->ring[ahead->out++ % KEYMAP_AHEAD];
}

/* add_keys */

/* Where the map's knowledge of this batch ends goes to `end`. */
static enum damage add_all(struct keymap *map, struct batch *batch, int64_t start_offset, int64_t *end)
{
    struct ahead ahead = {.walk = &batch->walk, .map = map};
    const struct seen *seen;
    while ((seen = next_seen(&ahead)) != NULL) {
        int64_t offset = batch->base_offset + seen->record.offset_delta;
        if (seen->record.key_bytes < 0 || offset < start_offset)
            continue;
        switch (keymap_put(map, seen->key, offset)) {
        case PUT_NO_ROOM: *end = offset; return SOUND;
        case PUT_NO_MEMORY: return NO_MEMORY;
        case PUT: break;
        }
    }
    *end = batch->base_offset + batch->last_delta + 1;
    return ahead.wrong ? ahead.wrong : walk_end(&batch->walk);
}

PyObject *add_keys(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"keys", "payload", "count", "base_offset", "last_delta", "start_offset", NULL};
    struct key_map *keys;
    struct batch batch;
    long long start_offset = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!y*nLi|L:add_keys", names, state_of(module)->key_map, &keys,
                                     &batch.payload, &batch.count, &batch.base_offset, &batch.last_delta,
                                     &start_offset))
        return NULL;
    if (!key_map_take(keys)) {
        PyBuffer_Release(&batch.payload);
        return NULL;
    }
    int64_t end = 0;
    enum damage wrong = batch_start(&batch);
    if (!wrong) {
        keys->busy = true;
        UNLOCK(batch.payload.len);
        wrong = add_all(&keys->map, &batch, start_offset, &end);
        LOCK();
        keys->busy = false;
    }
    PyBuffer_Release(&batch.payload);
    return wrong ? refuse(module, wrong) : PyLong_FromLongLong(end);
}

/* filter_records */

struct filter {
    const struct keymap *map;
    int64_t end_offset;
    int64_t timestamp_shift;
    bool drop_tombstones;
    uint8_t *out; /* NULL as long as everything was kept as it was */
    size_t out_bytes;
    size_t run; /* where the records begin that were kept and are still to be copied */
    Py_ssize_t kept, tombstones, keyless;
    int64_t max_timestamp_delta;
    int32_t max_timestamp_offset_delta;
};

static bool survives(struct filter *filter, const struct seen *seen, int64_t offset)
{
    const struct record *record = &seen->record;
    if (offset >= filter->end_offset)
        return true;
    if (record->key_bytes < 0) {
        filter->keyless++;
        return false;
    }
    if (filter->drop_tombstones && record->value_bytes < 0)
        return false;
    return keymap_get(filter->map, seen->key) <= offset;
}

static enum damage allocate(struct filter *filter, const struct walk *walk, size_t growth)
{
    filter->out = malloc(walk->size + growth + 1);
    return filter->out == NULL ? NO_MEMORY : SOUND;
}

static void copy_run(struct filter *filter, const struct walk *walk, size_t end)
{
    memcpy(filter->out + filter->out_bytes, walk->data + filter->run, end - filter->run);
    filter->out_bytes += end - filter->run;
}

static enum damage drop(struct filter *filter, const struct walk *walk, const struct record *record)
{
    if (filter->timestamp_shift != 0)
        return SOUND;
    if (filter->out == NULL && allocate(filter, walk, 0))
        return NO_MEMORY;
    copy_run(filter, walk, record->start);
    filter->run = record->end;
    return SOUND;
}

static enum damage keep(struct filter *filter, const struct walk *walk, const struct record *record)
{
    filter->kept++;
    filter->tombstones += record->value_bytes < 0;
    if (record->timestamp_delta > filter->max_timestamp_delta || filter->max_timestamp_offset_delta < 0) {
        filter->max_timestamp_delta = record->timestamp_delta;
        filter->max_timestamp_offset_delta = record->offset_delta;
    }
    int64_t shift = filter->timestamp_shift, delta = record->timestamp_delta;
    if (shift == 0)
        return SOUND;
    if (shift > 0 ? delta > INT64_MAX - shift : delta < INT64_MIN - shift)
        return BAD_TIMESTAMP;
    filter->out_bytes += write_shifted(filter->out + filter->out_bytes, walk, record, delta + shift);
    return SOUND;
}

static enum damage filter_all(struct filter *filter, struct batch *batch)
{
    struct walk *walk = &batch->walk;
    struct ahead ahead = {.walk = walk, .map = filter->map};
    const struct seen *seen;
    enum damage wrong;
    if (filter->timestamp_shift != 0 && (wrong = allocate(filter, walk, (size_t)walk->left * MAX_SHIFT_GROWTH)))
        return wrong;
    while ((seen = next_seen(&ahead)) != NULL) {
        bool stays = survives(filter, seen, batch->base_offset + seen->record.offset_delta);
        if ((wrong = stays ? keep(filter, walk, &seen->record) : drop(filter, walk, &seen->record)))
            return wrong;
    }
    if (ahead.wrong)
        return ahead.wrong;
    if (filter->timestamp_shift == 0 && filter->out != NULL)
        copy_run(filter, walk, walk->pos);
    return walk_end(walk);
}

/* What was kept; the very bytes that were given, if that is all of them. */
static PyObject *kept_bytes(const struct filter *filter, const Py_buffer *payload)
{
    if (filter->out != NULL)
        return PyBytes_FromStringAndSize((const char *)filter->out, (Py_ssize_t)filter->out_bytes);
    if (PyBytes_CheckExact(payload->obj))
        return Py_NewRef(payload->obj);
    return PyBytes_FromStringAndSize(payload->buf, payload->len);
}

static PyObject *filtered(PyObject *module, const struct filter *filter, const Py_buffer *payload)
{
    PyObject *items[FILTERED_FIELDS] = {
        kept_bytes(filter, payload),
        PyLong_FromSsize_t(filter->kept),
        PyLong_FromSsize_t(filter->tombstones),
        PyLong_FromSsize_t(filter->keyless),
        PyLong_FromLongLong(filter->max_timestamp_delta),
        PyLong_FromLong(filter->max_timestamp_offset_delta),
    };
    return named(state_of(module)->filtered, FILTERED_FIELDS, items);
}

PyObject *filter_records(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"keys",       "payload",    "count",           "base_offset",
                            "last_delta", "end_offset", "drop_tombstones", "timestamp_shift", NULL};
    struct key_map *keys;
    struct batch batch;
    long long end_offset, timestamp_shift = 0;
    int drop_tombstones = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!y*nLiL|pL:filter_records", names, state_of(module)->key_map,
                                     &keys, &batch.payload, &batch.count, &batch.base_offset, &batch.last_delta,
                                     &end_offset, &drop_tombstones, &timestamp_shift))
        return NULL;
    if (!key_map_take(keys)) {
        PyBuffer_Release(&batch.payload);
        return NULL;
    }
    struct filter filter = {.map = &keys->map, .end_offset = end_offset, .timestamp_shift = timestamp_shift,
                            .drop_tombstones = drop_tombstones != 0, .max_timestamp_offset_delta = -1};
    enum damage wrong = batch_start(&batch);
    if (!wrong) {
        keys->busy = true;
        UNLOCK(batch.payload.len);
        wrong = filter_all(&filter, &batch);
        LOCK();
        keys->busy = false;
    }
    PyObject *made = wrong ? refuse(module, wrong) : filtered(module, &filter, &batch.payload);
    free(filter.out);
    PyBuffer_Release(&batch.payload);
    return made;
}

/* keyless */

PyObject *keyless(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"payload", "count", "last_delta", NULL};
    struct batch batch = {.base_offset = 0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*ni:keyless", names, &batch.payload, &batch.count,
                                     &batch.last_delta))
        return NULL;
    PyObject *found = PyList_New(0);
    enum damage wrong = batch_start(&batch);
    struct record record;
    for (Py_ssize_t index = 0; found != NULL && !wrong && index < batch.count; index++) {
        wrong = walk_next(&batch.walk, &record);
        if (wrong || record.key_bytes >= 0)
            continue;
        PyObject *number = PyLong_FromSsize_t(index);
        if (number == NULL || PyList_Append(found, number) < 0)
            Py_CLEAR(found);
        Py_XDECREF(number);
    }
    if (found != NULL && !wrong)
        wrong = walk_end(&batch.walk);
    PyBuffer_Release(&batch.payload);
    if (found != NULL && wrong) {
        Py_DECREF(found);
        return refuse(module, wrong);
    }
    return found;
}
