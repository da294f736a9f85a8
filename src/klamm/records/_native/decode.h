/* What making Python objects of records takes, for all who do. */

#ifndef KLAMM_DECODE_H
#define KLAMM_DECODE_H

#include "module.h"

struct times {
    long long base;
    long long append; /* of all records */
    bool has_append;
};

enum damage time_of(const struct times *times, int64_t delta, int64_t *timestamp);

/* Where the headers of a record begin, and how many there are; all of them checked for their lengths. */
enum damage headers_check(const struct walk *walk, const struct record *record, size_t *start, int32_t *count);

PyObject *bytes_or_none(const struct walk *walk, struct field field);

/* A new tuple of (str, bytes or None); NULL with damage or, if there is none, with an error set. */
PyObject *headers_of(const struct walk *walk, const struct record *record, enum damage *wrong);

#endif
