/* The type KeyMap: the native side of klamm.records.filter.KeyMap, which says what it does, over a keymap. */

#include "module.h"
#include <structmember.h>

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
        done = keymap_put(&keys->map, keymap_hash(&keys->map, key.buf, (size_t)key.len), offset);
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
    int64_t offset = -1;
    if (free_to_ask)
        offset = keymap_get(&keys->map, keymap_hash(&keys->map, key.buf, (size_t)key.len));
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
