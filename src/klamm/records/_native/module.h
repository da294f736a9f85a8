/* What the files that talk to Python share. Only the limited API of CPython 3.11, so that one wheel fits all later ones. */

#ifndef KLAMM_MODULE_H
#define KLAMM_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "keymap.h"
#include "records.h"

#define FILTERED_FIELDS 6
#define RECORD_FIELDS 5
#define COLUMNS_FIELDS 8
#define CONSUMED_FIELDS 9
#define ARRAYS_FIELDS 25

struct state {
    PyObject *key_map;  /* type */
    PyObject *builder;  /* type */
    PyObject *table;    /* type */
    PyObject *corrupt;  /* klamm.records.batch.CorruptBatch */
    PyObject *filtered; /* klamm.records.filter.Filtered */
    PyObject *record;   /* klamm.records.decoding.Record */
    PyObject *columns;  /* klamm.records.decoding.Columns */
    PyObject *consumed; /* klamm.records.consuming.ConsumerRecord */
    PyObject *arrays;   /* klamm.records.columnar.Arrays */
    PyObject *crc32c;   /* klamm.records.checksum.crc32c */
};

struct key_map {
    PyObject_HEAD
    struct keymap map;
    Py_ssize_t capacity;
    bool busy; /* with a bulk call that has let go of the interpreter lock */
};

/* A walk over a batch's payload, from arguments that all functions have. */
struct batch {
    Py_buffer payload;
    Py_ssize_t count;
    long long base_offset;
    int last_delta;
    struct walk walk;
};

static inline struct state *state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

PyObject *refuse(PyObject *module, enum damage wrong); /* raises CorruptBatch or MemoryError, returns NULL */
enum damage batch_start(struct batch *batch);
bool key_map_take(struct key_map *keys); /* false with an error set if another thread works with it */

/* An instance of a NamedTuple type of ours, from new references, any of which may be NULL with an error set. */
PyObject *named(PyObject *type, Py_ssize_t count, PyObject *const *items);

/* To let go of the lock and get it back costs as much as some dozen records. */
#define WORTH_UNLOCKING 4096
#define UNLOCK(bytes) PyThreadState *unlocked = (bytes) >= WORTH_UNLOCKING ? PyEval_SaveThread() : NULL
#define LOCK() do { if (unlocked != NULL) PyEval_RestoreThread(unlocked); } while (0)

extern PyType_Spec key_map_spec;
extern PyType_Spec builder_spec;
extern PyType_Spec table_spec;

PyObject *add_keys(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *filter_records(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *keyless(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *decode_payload(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *decode_consumed(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *decode_fetched(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *measure_fetched(PyObject *module, PyObject *args);
PyObject *decode_columns(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *encode_payload(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *spread(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *murmur2(PyObject *module, PyObject *data);

#endif
