/* Bytes that grow, and what records write into them. Reads Python objects: the interpreter lock is held. */

#ifndef KLAMM_OUT_H
#define KLAMM_OUT_H

#include "module.h"

struct out {
    uint8_t *data;
    size_t size;
    size_t room;
};

bool reserve(struct out *out, size_t more);
bool put_headers(struct out *out, PyObject *sequence); /* their number, then names and values */

#endif
