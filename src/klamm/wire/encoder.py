"""Generates the encoder of one message in one version.

The generated function appends chunks to a list. Fixed-size fields that follow each other, and the length of the
string, array or tag section behind them, become one call of a precompiled `struct` packer; nested structs are
inlined. So an element of Produce or Fetch costs two or three calls instead of one for each field.
"""

from __future__ import annotations

from klamm.wire.defaults import default_of
from klamm.wire.layout import FIXED, Layout, Slot, has_records
from klamm.wire.source import FEW, Source


def encoder_source(layout: Layout) -> Source:
    """`encode(m, out, cuts)`: append the chunks of `m` to `out`, and to `cuts` the positions of records among them."""
    return _Encoder(layout).source


class _Encoder:
    def __init__(self, layout: Layout) -> None:
        self.source = Source()
        self.write = "write"  # the name that chunks are given to; another one inside a tagged field
        self._codes = ""  # the run that has not been written yet: struct format and arguments
        self._args: list[str] = []
        if has_records(layout):
            from klamm.core.env import FileRange  # not at the top: it brings asyncio with it

            self.source.bind("FileRange", FileRange)
        with self.source.block("def encode(m, out, cuts):"):
            self.source.line("write = out.append")
            self._struct(layout, "m")
            self._flush()

    # The run of fixed-size values

    def _fixed(self, code: str, arg: str) -> None:
        self._codes += code
        self._args.append(arg)

    def _run(self, code: str = "", arg: str = "") -> str:
        """The statement that writes the run, with one more value behind it."""
        codes = self._codes + code
        args = ", ".join([*self._args, arg] if arg else self._args)
        if not args:
            return f"{self.write}({bytes(len(codes))!r})"  # nothing but pad bytes
        if codes == "B":
            return f"{self.write}(BYTES[{args}])"
        return f"{self.write}({self.source.pack(codes)}({args}))"

    def _clear(self) -> None:
        self._codes = ""
        self._args = []

    def _flush(self) -> None:
        if self._codes:
            self.source.line(self._run())
            self._clear()

    def _length(self, slot: Slot, name: str) -> None:
        """Write the run with a length behind it. In compact form `name` already is length + 1 (0: null)."""
        if not slot.compact:
            self.source.line(self._run("h" if slot.kind == "string" else "i", name))
        else:
            with self.source.block(f"if {name} < 128:"):
                self.source.line(self._run("B", name))
            with self.source.block("else:"):
                if self._codes:
                    self.source.line(self._run())
                long = "string_length" if slot.kind == "string" else "varint"
                self.source.line(f"{self.write}({long}({name}))")
        self._clear()

    # Structs and fields

    def _struct(self, layout: Layout, var: str) -> None:
        for name, field in layout.absent:
            if not field.ignorable:
                with self.source.block(f"if {self._is_set(field.kind, field.default, field.of, f'{var}.{name}')}:"):
                    self.source.line(f"absent({name!r})")
        for slot in layout.fields:
            self._value(slot, f"{var}.{slot.name}")
        if layout.tagged:
            self._tags(layout.tagged, var)
        elif layout.flexible:
            self._codes += "x"  # no tagged fields: a zero byte

    def _value(self, slot: Slot, expr: str) -> None:
        if slot.kind in FIXED:
            if slot.kind == "uuid":  # struct would pad or cut it
                self.source.line(f"if len({expr}) != 16: bad_uuid({slot.name!r})")
            self._fixed(FIXED[slot.kind][0], expr)
        elif slot.kind == "struct":
            self._nested(slot, expr)
        elif slot.kind == "array":
            self._array(slot, expr)
        else:
            self._sized(slot, expr)

    def _nested(self, slot: Slot, expr: str) -> None:
        assert slot.parts is not None
        var = self.source.local("m")
        self.source.line(f"{var} = {expr}")
        if not slot.nullable:
            self._struct(slot.parts, var)
            return
        with self.source.block(f"if {var} is None:"):
            self.source.line(self._run("b", "-1"))
        with self.source.block("else:"):
            self._fixed("b", "1")
            self._struct(slot.parts, var)
            self._flush()
        self._clear()

    def _sized(self, slot: Slot, expr: str) -> None:
        """A string, bytes or records: length, then content."""
        value, length = self.source.local("s"), self.source.local("n")
        plus = " + 1" if slot.compact else ""
        size = f"len({value}){plus}"
        if slot.kind == "string":
            some = f"{value} = {value if slot.nullable else expr}.encode(); {length} = {size}"
        elif slot.kind == "records":
            some = f"{length} = ({value}.size if type({value}) is FileRange else len({value})){plus}"
        else:
            some = f"{length} = {size}"
        if slot.nullable or slot.kind != "string":
            self.source.line(f"{value} = {expr}")
        if slot.nullable:
            self.source.line(f"if {value} is None: {length} = {0 if slot.compact else -1}; {value} = b''")
            self.source.line(f"else: {some}")
        else:
            self.source.line(some)
        self._length(slot, length)
        if slot.kind == "records":
            assert self.write == "write", "records inside a tagged field"
            with self.source.block(f"if {length} > {int(slot.compact)}:"):
                self.source.line(f"cuts.append(len(out)); write({value})")
        else:
            self.source.line(f"{self.write}({value})")

    def _array(self, slot: Slot, expr: str) -> None:
        element = slot.element
        assert element is not None
        items, length = self.source.local("a"), self.source.local("n")
        size = f"len({items})" + (" + 1" if slot.compact else "")
        if slot.nullable:
            size = f"{0 if slot.compact else -1} if {items} is None else {size}"
        self.source.line(f"{items} = {expr}; {length} = {size}")
        if element.kind in FIXED and element.kind != "uuid":
            self._fixed_elements(slot, FIXED[element.kind][0], items, length)
            return
        self._length(slot, length)
        item = self.source.local("m")
        with self.source.block(f"for {item} in {items} or ():" if slot.nullable else f"for {item} in {items}:"):
            if element.kind == "struct":
                assert element.parts is not None
                self._struct(element.parts, item)
            else:
                self._value(element, item)
            self._flush()

    def _fixed_elements(self, slot: Slot, code: str, items: str, length: str) -> None:
        """Numbers: with the run and the length in one call if they are few, as replica lists are."""
        plus = 1 if slot.compact else 0
        few = self.source.pack_few(self._codes + ("B" if slot.compact else "i"), code)
        args = ", ".join([*self._args, length, f"*{items}"])
        is_few = f"{length} < {len(FEW) + plus}"
        if slot.nullable:
            is_few += f" and {items} is not None"
        with self.source.block(f"if {is_few}:"):
            self.source.line(f"{self.write}({few}[{length}{' - 1' * plus}]({args}))")
        with self.source.block("else:"):
            self._length(slot, length)
            with self.source.block(f"if {items}:"):
                self.source.line(f"{self.write}(pack_values('>%d{code}' % len({items}), *{items}))")

    # Tagged fields: written only when they do not hold their default

    def _tags(self, slots: list[Slot], var: str) -> None:
        named = [(slot, f"{var}.{slot.name}", slot.parts.cls if slot.parts else None) for slot in slots]
        maybe = [self._is_set(slot.kind, slot.default, of, expr, quick=True) for slot, expr, of in named]
        with self.source.block(f"if {' or '.join(maybe)}:"):
            flags = [self.source.local("t") for _ in slots]
            for flag, (slot, expr, of) in zip(flags, named, strict=True):
                self.source.line(f"{flag} = {self._is_set(slot.kind, slot.default, of, expr)}")
            self.source.line(self._run("B", " + ".join(flags)))
            codes, args = self._codes, self._args
            self._clear()
            for flag, (slot, expr, _) in zip(flags, named, strict=True):
                with self.source.block(f"if {flag}:"):
                    self._tag(slot, expr)
            self._codes, self._args = codes, args
        with self.source.block("else:"):
            self.source.line(self._run("x"))
        self._clear()

    def _tag(self, slot: Slot, expr: str) -> None:
        chunks, outer = self.source.local("c"), self.write
        self.write = f"{chunks}.append"
        self.source.line(f"{chunks} = []")
        self._value(slot, expr)
        self._flush()
        self.write = outer
        self.source.line(f"{chunks} = b''.join({chunks})")
        self.source.line(f"{outer}(varint({slot.tag}) + varint(len({chunks})) + {chunks})")

    def _is_set(self, kind: str, default: object, of: object, expr: str, *, quick: bool = False) -> str:
        """An expression: the field does not hold its default. The quick form may say so although it does."""
        if default is None:
            return f"{expr} is not None"
        if kind == "array":
            return f"({expr} is None or len({expr}) > 0)"  # a tuple is as good as a list
        if kind == "struct":
            assert isinstance(of, type)
            name = self.source.bind(f"default_{of.__name__}", default_of(of))
            return f"{expr} is not {name}" if quick else f"({expr} is not {name} and {expr} != {name})"
        return f"{expr} != {default!r}"
