"""Generates the decoder of one message in one version: the mirror image of `encoder`.

Runs of fixed-size fields and the length behind them are unpacked in one call. Reading past the end of the buffer
shows up as struct.error or IndexError, which `codec` turns into ProtocolError; slices would be cut short silently,
so every length is compared with the bytes that are left before it is used.
"""

from __future__ import annotations

from struct import calcsize

from klamm.wire.defaults import default_of, is_shared
from klamm.wire.layout import FIXED, Layout, Slot, has_records, min_size
from klamm.wire.runtime import MAX_ELEMENTS
from klamm.wire.source import FEW, Source


def decoder_source(layout: Layout) -> Source:
    """`decode(buf, pos, end) -> (message, position after it)`; `end` must be the end of `buf`.

    `buf` is bytes, or a memoryview of bytes if the message has records.
    """
    return _Decoder(layout).source


class _Decoder:
    def __init__(self, layout: Layout) -> None:
        self.source = Source()
        self.source.bind("new", object.__new__)
        self._view = has_records(layout)
        self._codes = ""  # the run that has not been read yet: struct format and assignment targets
        self._targets: list[str] = []
        with self.source.block("def decode(buf, pos, end):"):
            self.source.line(f"budget = {MAX_ELEMENTS}")
            message = self._struct(layout)
            self._flush()
            self.source.line(f"return {message}, pos")

    # The run of fixed-size values

    def _fixed(self, code: str, target: str) -> None:
        self._codes += code
        self._targets.append(target)

    def _flush(self) -> None:
        codes, targets = self._codes, self._targets
        self._codes, self._targets = "", []
        if codes == "B":
            self.source.line(f"{targets[0]} = buf[pos]; pos += 1")
        elif codes:
            left = ", ".join(targets) if len(targets) > 1 else targets[0] + ","
            self.source.line(f"{left} = {self.source.unpack(codes)}(buf, pos); pos += {calcsize('>' + codes)}")

    def _length(self, slot: Slot) -> str:
        """Read the run and a length behind it; in compact form it is length + 1, and 0 is null."""
        name = self.source.local("n")
        if not slot.compact:
            self._fixed("h" if slot.kind == "string" else "i", name)
            self._flush()
            return name
        self._fixed("B", name)
        self._flush()
        more = "more_string" if slot.kind == "string" else "more_varint"
        self.source.line(f"if {name} > 127: {name}, pos = {more}(buf, pos, {name})")
        return name

    def _null(self, slot: Slot, length: str, target: str) -> None:
        """The branches for a length that says null, before the `else` for a real one."""
        none = f"{target} = None" if slot.nullable else f"null({slot.name!r})"
        if slot.compact:
            self.source.line(f"if not {length}: {none}")
        else:
            self.source.line(f"if {length} < 0:")
            self.source.line(f"    if {length} != -1: negative({slot.name!r})")
            self.source.line(f"    {none}")

    # Structs and fields

    def _struct(self, layout: Layout) -> str:
        var = self.source.local("o")
        self.source.line(f"{var} = new({self.source.bind(layout.cls.__name__, layout.cls)})")
        for name, field in layout.absent:
            self.source.line(f"{var}.{name} = {self._default(field.kind, field.default, field.of)}")
        for slot in layout.tagged:
            default = self._default(slot.kind, slot.default, slot.parts and slot.parts.cls)
            self.source.line(f"{var}.{slot.name} = {default}")
        for slot in layout.fields:
            self._value(slot, f"{var}.{slot.name}")
        if layout.flexible:
            self._tags(layout.tagged, var)
        return var

    def _value(self, slot: Slot, target: str) -> None:
        if slot.kind in FIXED:
            self._fixed(FIXED[slot.kind][0], target)
        elif slot.kind == "struct":
            self._nested(slot, target)
        elif slot.kind == "array":
            self._array(slot, target)
        else:
            self._sized(slot, target)

    def _nested(self, slot: Slot, target: str) -> None:
        assert slot.parts is not None
        if not slot.nullable:
            self.source.line(f"{target} = {self._struct(slot.parts)}")
            return
        marker = self.source.local("n")
        self._fixed("b", marker)
        self._flush()
        with self.source.block(f"if {marker} == 1:"):
            var = self._struct(slot.parts)
            self._flush()
            self.source.line(f"{target} = {var}")
        self.source.line(f"elif {marker} == -1: {target} = None")
        self.source.line(f"else: bad_marker({slot.name!r})")

    def _sized(self, slot: Slot, target: str) -> None:
        length = self._length(slot)
        self._null(slot, length, target)
        with self.source.block("else:"):
            stop = self.source.local("e")
            self.source.line(f"{stop} = pos + {length}" + (" - 1" if slot.compact else ""))
            self.source.line(f"if {stop} > end: short({slot.name!r})")
            value = f"buf[pos:{stop}]"
            if slot.kind == "string":
                value = f"str({value}, 'utf-8')" if self._view else f"{value}.decode()"
            elif slot.kind == "bytes" and self._view:
                value = f"bytes({value})"
            self.source.line(f"{target} = {value}; pos = {stop}")

    def _array(self, slot: Slot, target: str) -> None:
        element = slot.element
        assert element is not None
        length = self._length(slot)
        self._null(slot, length, target)
        with self.source.block("else:"):
            if slot.compact:
                self.source.line(f"{length} -= 1")
            self.source.line(f"budget -= {length}")
            least = min_size(element)
            need = length if least == 1 else f"{length} * {least}"
            self.source.line(f"if budget < 0 or {need} > end - pos: too_many({slot.name!r})")
            if element.kind in FIXED:
                self._fixed_elements(element.kind, length, target)
            else:
                self._elements(element, length, target)

    def _fixed_elements(self, kind: str, length: str, target: str) -> None:
        code, size = FIXED[kind]
        if kind == "uuid":
            self.source.line(f"{target} = [bytes(buf[i:i + 16]) for i in range(pos, pos + {length} * 16, 16)]")
        else:
            few = self.source.unpack_few(code)
            self.source.line(f"if {length} < {len(FEW)}: {target} = list({few}[{length}](buf, pos))")
            self.source.line(f"else: {target} = list(unpack_values('>%d{code}' % {length}, buf, pos))")
        self.source.line(f"pos += {length}" + (f" * {size}" if size > 1 else ""))

    def _elements(self, element: Slot, length: str, target: str) -> None:
        items = self.source.local("a")
        self.source.line(f"{items} = []")
        with self.source.block(f"for _ in range({length}):"):
            if element.kind == "struct":
                assert element.parts is not None
                item = self._struct(element.parts)
            else:
                item = self.source.local("v")
                self._value(element, item)
            self._flush()
            self.source.line(f"{items}.append({item})")
        self.source.line(f"{target} = {items}")

    # Tagged fields

    def _tags(self, slots: list[Slot], var: str) -> None:
        count = self.source.local("n")
        self._fixed("B", count)
        self._flush()
        if not slots:
            self.source.line(f"if {count}: pos = skip_tags(buf, pos, end, {count})")
            return
        tag, stop = self.source.local("t"), self.source.local("e")
        with self.source.block(f"if {count}:"):
            self.source.line(f"if {count} > 127: {count}, pos = more_varint(buf, pos, {count}); check_tags({count})")
            self.source.line(f"{tag} = -1")
            with self.source.block(f"for _ in range({count}):"):
                self.source.line(f"{tag}, pos, {stop} = tag_head(buf, pos, end, {tag})")
                for index, slot in enumerate(slots):
                    with self.source.block(f"{'elif' if index else 'if'} {tag} == {slot.tag}:"):
                        self._value(slot, f"{var}.{slot.name}")
                        self._flush()
                        self.source.line(f"if pos != {stop}: tag_size({slot.name!r})")
                self.source.line(f"else: pos = {stop}")

    def _default(self, kind: str, default: object, of: object) -> str:
        if default is None:
            return "None"
        if kind == "array":
            return "[]"
        if kind == "struct":
            assert isinstance(of, type)
            if is_shared(of):
                return self.source.bind(f"default_{of.__name__}", default_of(of))
            return f"{self.source.bind(of.__name__, of)}()"
        return repr(default)
