/* Headers of batches, as they stand in what was fetched. */

#ifndef KLAMM_HEADS_H
#define KLAMM_HEADS_H

#include "decode.h"

#define HEADER_BYTES 61
#define PREFIX_BYTES 12 /* base offset and length; the length counts what follows */
#define CRC_START 21
#define MAGIC 2
#define ATTRIBUTES_OF_PLAIN (0x08 | 0x10 | 0x40) /* append time, transactional, delete horizon: no codec, no control */
#define APPEND_TIME 0x08

struct head {
    int64_t base_offset;
    int32_t length;
    int32_t leader_epoch;
    uint8_t magic;
    uint32_t crc;
    uint16_t attributes;
    int32_t last_delta;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int32_t count;
};

/* With its prefix: more than 32 bits tell, if the length is the largest that there can be. */
static inline Py_ssize_t size_of(const struct head *head)
{
    return (Py_ssize_t)head->length + PREFIX_BYTES;
}

static inline uint64_t big_endian(const uint8_t *at, int bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++)
        number = number << 8 | at[i];
    return number;
}

/* HEADER_BYTES of them. */
static inline void read_head(const uint8_t *at, struct head *head)
{
    head->base_offset = (int64_t)big_endian(at, 8);
    head->length = (int32_t)big_endian(at + 8, 4);
    head->leader_epoch = (int32_t)big_endian(at + 12, 4);
    head->magic = at[16];
    head->crc = (uint32_t)big_endian(at + 17, 4);
    head->attributes = (uint16_t)big_endian(at + 21, 2);
    head->last_delta = (int32_t)big_endian(at + 23, 4);
    head->base_timestamp = (int64_t)big_endian(at + 27, 8);
    head->max_timestamp = (int64_t)big_endian(at + 35, 8);
    head->count = (int32_t)big_endian(at + 57, 4);
}

/* Whether this can be a whole batch in `left` bytes, of the plain kind. */
static inline bool is_plain(const struct head *head, Py_ssize_t left)
{
    return head->magic == MAGIC && head->length >= HEADER_BYTES - PREFIX_BYTES && head->length <= left - PREFIX_BYTES &&
           !(head->attributes & ~ATTRIBUTES_OF_PLAIN) && head->last_delta >= 0 && head->count >= 0 &&
           head->count - 1 <= head->last_delta && !check_base(head->base_offset, head->last_delta);
}

/* 1 if the checksum is right, 0 if not, -1 with an error set. */
static inline int has_right_crc(PyObject *module, const uint8_t *at, const struct head *head)
{
    /* The function of the library, which has all the tricks of all processors; a call costs as much as a record. */
    Py_ssize_t size = size_of(head) - CRC_START;
    PyObject *view = PyMemoryView_FromMemory((char *)at + CRC_START, size, PyBUF_READ);
    PyObject *found = view != NULL ? PyObject_CallFunctionObjArgs(state_of(module)->crc32c, view, NULL) : NULL;
    Py_XDECREF(view);
    if (found == NULL)
        return -1;
    unsigned long crc = PyLong_AsUnsignedLong(found);
    Py_DECREF(found);
    if (crc == (unsigned long)-1 && PyErr_Occurred())
        return -1;
    return crc == head->crc;
}

static inline struct times times_in(const struct head *head)
{
    return (struct times){head->base_timestamp, head->max_timestamp, head->attributes & APPEND_TIME};
}

#endif
