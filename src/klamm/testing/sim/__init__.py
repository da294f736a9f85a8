"""A simulated environment: virtual time, disk, network and threads, all of them from one seed.

Everything that happens in it is a function of the seed, so a failure is a number that can be run again. Nothing here
may ask the operating system for anything: no clock, no entropy, no file, no thread, no socket.
"""
