/* KeyMap, add_keys, filter_records, keyless: the native side of klamm.records.filter, which says what they do. */

#include <stdlib.h>
#include <string.h>

#include "module.h"
#include <structmember.h>

/* KeyMap */

bool key_map_take(struct key_map *keys)
{
    if (!keys->busy)
        return true;
    PyErr_SetString(PyExc_RuntimeError, "another thread is at work with this KeyMap");
    return false;
}

static PyObject *key_map_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"memory_bytes", "seed", NULL};
    Py_ssize_t memory_bytes;
    Py_buffer seed;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ny*:KeyMap", names, &memory_bytes, &seed))
        return NULL;
    struct key_map *keys = NULL;
    if (seed.len != KEYMAP_SEED_BYTES) {
        PyErr_Format(PyExc_ValueError, "a seed of %zd bytes instead of %d", seed.len, KEYMAP_SEED_BYTES);
    } else if (memory_bytes < KEYMAP_BYTES_PER_KEY) {
        PyErr_Format(PyExc_ValueError, "%zd bytes hold no key", memory_bytes);
    } else if ((keys = (struct key_map *)PyType_GenericAlloc(type, 0)) != NULL) {
        if (keymap_init(&keys->map, (size_t)memory_bytes, seed.buf)) {
            keys->capacity = (Py_ssize_t)keys->map.capacity;
        } else {
            PyErr_NoMemory();
            Py_CLEAR(keys);
        }
    }
    PyBuffer_Release(&seed);
    return (PyObject *)keys;
}

static void key_map_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    keymap_free(&((struct key_map *)self)->map);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static Py_ssize_t key_map_length(PyObject *self)
{
    return (Py_ssize_t)((struct key_map *)self)->map.used;
}

static PyObject *key_map_full(PyObject *self, void *closure)
{
    (void)closure;
    const struct keymap *map = &((struct key_map *)self)->map;
    return PyBool_FromLong(map->used >= map->capacity);
}

static PyObject *key_map_put(PyObject *self, PyObject *args)
{
    struct key_map *keys = (struct key_map *)self;
    Py_buffer key;
    long long offset;
    if (!PyArg_ParseTuple(args, "y*L:put", &key, &offset))
        return NULL;
    enum put done = PUT_NO_ROOM;
    bool asked = key_map_take(keys);
    if (asked && offset < 0) {
        PyErr_Format(PyExc_ValueError, "offset %lld", offset);
        asked = false;
    }
    if (asked)
        done = keymap_put(&keys->map, key.buf, (size_t)key.len, offset);
    PyBuffer_Release(&key);
    if (!asked)
        return NULL;
    return done == PUT_NO_MEMORY ? PyErr_NoMemory() : PyBool_FromLong(done == PUT);
}

static PyObject *key_map_get(PyObject *self, PyObject *args)
{
    struct key_map *keys = (struct key_map *)self;
    Py_buffer key;
    if (!PyArg_ParseTuple(args, "y*:get", &key))
        return NULL;
    bool free_to_ask = key_map_take(keys);
    int64_t offset = free_to_ask ? keymap_get(&keys->map, key.buf, (size_t)key.len) : -1;
    PyBuffer_Release(&key);
    return free_to_ask ? PyLong_FromLongLong(offset) : NULL;
}

static PyObject *key_map_clear(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    struct key_map *keys = (struct key_map *)self;
    if (!key_map_take(keys))
        return NULL;
    if (!keymap_clear(&keys->map))
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef key_map_methods[] = {
    {"put", key_map_put, METH_VARARGS, NULL},
    {"get", key_map_get, METH_VARARGS, NULL},
    {"clear", key_map_clear, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef key_map_members[] = {
    {"capacity", T_PYSSIZET, offsetof(struct key_map, capacity), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef key_map_properties[] = {
    {"full", key_map_full, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot key_map_slots[] = {
    {Py_tp_doc, "The last offset of each key; see klamm.records.filter.KeyMap."},
    {Py_tp_new, key_map_new},
    {Py_tp_dealloc, key_map_dealloc},
    {Py_tp_methods, key_map_methods},
    {Py_tp_members, key_map_members},
    {Py_tp_getset, key_map_properties},
    {Py_mp_length, key_map_length},
    {0, NULL},
};

PyType_Spec key_map_spec = {
    .name = "klamm.records._native.kernel.KeyMap",
    .basicsize = sizeof(struct key_map),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = key_map_slots,
};

/* add_keys */

/* Where the map's knowledge of this batch ends goes to `end`. */
static enum damage add_all(struct keymap *map, struct batch *batch, int64_t start_offset, int64_t *end)
{
    struct walk *walk = &batch->walk;
    struct record record;
    enum damage wrong;
    while (walk->left > 0) {
        if ((wrong = walk_next(walk, &record)))
            return wrong;
        int64_t offset = batch->base_offset + record.offset_delta;
        if (record.key_bytes < 0 || offset < start_offset)
            continue;
        switch (keymap_put(map, walk->data + record.key, (size_t)record.key_bytes, offset)) {
        case PUT_NO_ROOM: *end = offset; return SOUND;
        case PUT_NO_MEMORY: return NO_MEMORY;
        case PUT: break;
        }
    }
    *end = batch->base_offset + batch->last_delta + 1;
    return walk_end(walk);
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

static bool survives(struct filter *filter, const struct walk *walk, const struct record *record, int64_t offset)
{
    if (offset >= filter->end_offset)
        return true;
    if (record->key_bytes < 0) {
        filter->keyless++;
        return false;
    }
    if (filter->drop_tombstones && record->value_bytes < 0)
        return false;
    return keymap_get(filter->map, walk->data + record->key, (size_t)record->key_bytes) <= offset;
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
    struct record record;
    enum damage wrong;
    if (filter->timestamp_shift != 0 && (wrong = allocate(filter, walk, (size_t)walk->left * MAX_SHIFT_GROWTH)))
        return wrong;
    while (walk->left > 0) {
        if ((wrong = walk_next(walk, &record)))
            return wrong;
        bool stays = survives(filter, walk, &record, batch->base_offset + record.offset_delta);
        if ((wrong = stays ? keep(filter, walk, &record) : drop(filter, walk, &record)))
            return wrong;
    }
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
