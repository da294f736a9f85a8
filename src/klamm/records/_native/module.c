/* The module klamm.records._native.kernel: its functions, and the types of the Python side that it raises and makes. */

#include "module.h"

PyObject *refuse(PyObject *module, enum damage wrong)
{
    if (wrong == NO_MEMORY)
        return PyErr_NoMemory();
    PyErr_SetString(state_of(module)->corrupt, damage_text(wrong));
    return NULL;
}

enum damage batch_start(struct batch *batch)
{
    enum damage wrong = check_base(batch->base_offset, batch->last_delta);
    if (wrong)
        return wrong;
    return walk_start(&batch->walk, batch->payload.buf, (size_t)batch->payload.len, batch->count, batch->last_delta);
}

PyObject *named(PyObject *type, Py_ssize_t count, PyObject *const *items)
{
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)type, count); /* a tuple, without a call of its constructor */
    bool failed = made == NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (items[i] == NULL)
            failed = true;
        else if (made == NULL)
            Py_DECREF(items[i]);
        else if (PyTuple_SetItem(made, i, items[i]) < 0)
            failed = true;
    }
    if (failed) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}

static PyObject *fingerprint(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer seed, data;
    if (!PyArg_ParseTuple(args, "y*y*", &seed, &data))
        return NULL;
    PyObject *made = NULL;
    if (seed.len != KEYMAP_SEED_BYTES) {
        PyErr_Format(PyExc_ValueError, "a seed of %zd bytes instead of %d", seed.len, KEYMAP_SEED_BYTES);
    } else {
        uint64_t words[2] = {0, 0}, hash[2];
        uint8_t bytes[16];
        for (int i = 0; i < 16; i++)
            words[i / 8] |= (uint64_t)((const uint8_t *)seed.buf)[i] << (8 * (i % 8));
        siphash128(words, data.buf, (size_t)data.len, hash);
        for (int i = 0; i < 16; i++)
            bytes[i] = (uint8_t)(hash[i / 8] >> (8 * (i % 8)));
        made = PyBytes_FromStringAndSize((const char *)bytes, sizeof bytes);
    }
    PyBuffer_Release(&seed);
    PyBuffer_Release(&data);
    return made;
}

#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

static PyMethodDef functions[] = {
    {"add_keys", WITH_KEYWORDS(add_keys), NULL},
    {"filter_records", WITH_KEYWORDS(filter_records), NULL},
    {"keyless", WITH_KEYWORDS(keyless), NULL},
    {"decode_payload", WITH_KEYWORDS(decode_payload), NULL},
    {"decode_columns", WITH_KEYWORDS(decode_columns), NULL},
    {"decode_consumed", WITH_KEYWORDS(decode_consumed), NULL},
    {"decode_fetched", WITH_KEYWORDS(decode_fetched), NULL},
    {"measure_fetched", measure_fetched, METH_VARARGS, NULL},
    {"encode_payload", WITH_KEYWORDS(encode_payload), NULL},
    {"spread", WITH_KEYWORDS(spread), NULL},
    {"murmur2", murmur2, METH_O, NULL},
    {"fingerprint", fingerprint, METH_VARARGS, "The hash by which keys are known, for tests."},
    {NULL, NULL, 0, NULL},
};

static PyObject *imported(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    if (module == NULL)
        return NULL;
    PyObject *found = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return found;
}

/* A NamedTuple type with as many fields as this code fills in. Another number would be another version's. */
static PyObject *tuple_type(const char *module_name, const char *name, Py_ssize_t count)
{
    PyObject *type = imported(module_name, name);
    PyObject *fields = type != NULL ? PyObject_GetAttrString(type, "_fields") : NULL;
    bool right = fields != NULL && PyTuple_Check(fields) && PyTuple_Size(fields) == count && PyType_Check(type) &&
                 PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type);
    Py_XDECREF(fields);
    if (right)
        return type;
    PyErr_Format(PyExc_ImportError, "%s.%s is no tuple of %zd fields", module_name, name, count);
    Py_XDECREF(type);
    return NULL;
}

static int execute(PyObject *module)
{
    struct state *state = state_of(module);
    if ((state->corrupt = imported("klamm.records.batch", "CorruptBatch")) == NULL)
        return -1;
    if ((state->filtered = tuple_type("klamm.records.filter", "Filtered", FILTERED_FIELDS)) == NULL)
        return -1;
    if ((state->record = tuple_type("klamm.records.decoding", "Record", RECORD_FIELDS)) == NULL)
        return -1;
    if ((state->columns = tuple_type("klamm.records.decoding", "Columns", COLUMNS_FIELDS)) == NULL)
        return -1;
    if ((state->consumed = tuple_type("klamm.records.consuming", "ConsumerRecord", CONSUMED_FIELDS)) == NULL)
        return -1;
    if ((state->arrays = tuple_type("klamm.records.columnar", "Arrays", ARRAYS_FIELDS)) == NULL)
        return -1;
    if ((state->crc32c = imported("klamm.records.checksum", "crc32c")) == NULL)
        return -1;
    if ((state->key_map = PyType_FromModuleAndSpec(module, &key_map_spec, NULL)) == NULL)
        return -1;
    if ((state->builder = PyType_FromModuleAndSpec(module, &builder_spec, NULL)) == NULL ||
        PyModule_AddType(module, (PyTypeObject *)state->builder) < 0)
        return -1;
    if ((state->table = PyType_FromModuleAndSpec(module, &table_spec, NULL)) == NULL ||
        PyModule_AddType(module, (PyTypeObject *)state->table) < 0)
        return -1;
    PyObject *bytes_per_key = PyLong_FromLong(KEYMAP_BYTES_PER_KEY);
    if (bytes_per_key == NULL)
        return -1;
    int failed = PyObject_SetAttrString(state->key_map, "bytes_per_key", bytes_per_key);
    Py_DECREF(bytes_per_key);
    return failed ? -1 : PyModule_AddType(module, (PyTypeObject *)state->key_map);
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    struct state *state = state_of(module);
    Py_VISIT(state->key_map);
    Py_VISIT(state->builder);
    Py_VISIT(state->table);
    Py_VISIT(state->corrupt);
    Py_VISIT(state->filtered);
    Py_VISIT(state->record);
    Py_VISIT(state->columns);
    Py_VISIT(state->consumed);
    Py_VISIT(state->arrays);
    Py_VISIT(state->crc32c);
    return 0;
}

static int clear(PyObject *module)
{
    struct state *state = state_of(module);
    Py_CLEAR(state->key_map);
    Py_CLEAR(state->builder);
    Py_CLEAR(state->table);
    Py_CLEAR(state->corrupt);
    Py_CLEAR(state->filtered);
    Py_CLEAR(state->record);
    Py_CLEAR(state->columns);
    Py_CLEAR(state->consumed);
    Py_CLEAR(state->arrays);
    Py_CLEAR(state->crc32c);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "klamm.records._native.kernel",
    .m_doc = "Decode, key filter and re-encode of records; see klamm.records.kernel.",
    .m_size = sizeof(struct state),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit_kernel(void)
{
    return PyModuleDef_Init(&definition);
}
