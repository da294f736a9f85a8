"""The metadata log and what is made of it: records, an immutable image, the stores that keep them.

Metadata flows one way: store -> image -> everyone. Nothing outside of `controller` writes it, and nobody changes an
image.
"""
