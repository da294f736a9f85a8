"""The C sources of `klamm.records.kernel`, and the extension module built of them where a compiler was there.

- `records.[ch]`: one record's frame inside a payload, bounds-checked byte by byte. Knows nothing of Python.
- `keymap.[ch]`: the bounded map from a key's hash to its last offset. Knows nothing of Python.
- All others are what Python calls; bulk calls that make no objects for records let go of the interpreter lock.

The rule for all of it: on no bytes whatever may it read or write outside of what it was given. Behaviour is defined by
the pure twins, the modules of `klamm.records` that each file names; nothing but `klamm.records.kernel` imports this.
"""
