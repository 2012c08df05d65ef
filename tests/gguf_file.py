"""A writer of GGUF files whose fields may be spoilt, and the cases made with it. For
make_malformed.py and make_malformed_qwen35.py (standard library only).
"""
import struct

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 5, 6, 7, 8, 9, 10
DAMAGED = "; it is truncated or damaged, get it again"
# type: (values, bytes) a block
FORMATS = {0: (1, 4), 1: (1, 2), 8: (32, 34), 12: (256, 144), 30: (1, 2), 42: (64, 18),
           142: (128, 34), 143: (128, 28)}


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def strings(values):
    return ARRAY, array(STRING, [text(v) for v in values])


def ints(values, kind=I32):
    return ARRAY, array(kind, [struct.pack("<i" if kind == I32 else "<I", v) for v in values])


def u32(value):
    return U32, struct.pack("<I", value)


def f32(value):
    return F32, struct.pack("<f", value)


class GgufFile:
    """Keys [name, type, bytes] and tensors {name: shape}; every field may be spoilt. A tensor's
    "data" is the type that its data is laid out by, if not its own."""

    def __init__(self, keys, shapes):
        self.magic, self.version, self.alignment = b"GGUF", 3, 32
        self.tensor_count = self.key_count = None
        self.keys = keys
        self.tensors = [{"name": n, "dims": d, "type": 0, "offset": None, "n_dims": None}
                        for n, d in shapes.items()]
        self.patch = {}  # tensor name: bytes over the start of its data

    def key(self, name):
        return next(k for k in self.keys if k[0] == name)

    def tensor(self, name):
        return next(t for t in self.tensors if t["name"] == name)

    def build(self):
        """The file, and where its fields lie: [(offset, bytes, field, kind)]."""
        out, marks = bytearray(), []

        def put(field, raw, kind="value"):
            marks.append((len(out), len(raw), field, kind))
            out.extend(raw)

        def put_text(field, raw):
            put(field, raw[:8])
            if len(raw) > 8:
                put(field, raw[8:], "text")

        put("magic", self.magic)
        put("version", struct.pack("<I", self.version))
        put("tensor count", struct.pack("<Q", self.tensor_count if self.tensor_count is not None
                                        else len(self.tensors)), "tensors")
        put("metadata count", struct.pack("<Q", self.key_count if self.key_count is not None
                                          else len(self.keys)), "keys")
        for i, (name, kind, value) in enumerate(self.keys):
            put_text(f"metadata key {i}", text(name))
            quoted = "'" + (name if isinstance(name, str) else name.decode("latin1")) + "'"
            put(quoted, struct.pack("<I", kind))
            if kind == STRING:
                put_text(quoted, value)
            elif kind == ARRAY:
                put(quoted, value[:4])
                put(quoted + " (length)", value[4:12], "array")
                out.extend(value[12:])
            else:
                put(quoted, value)
        offset, data = 0, bytearray()
        for i, tensor in enumerate(self.tensors):
            put_text(f"name of tensor {i}", text(tensor["name"]))
            quoted = f"tensor '{tensor['name']}'"
            dims = tensor["dims"]
            put(quoted, struct.pack("<I", len(dims) if tensor["n_dims"] is None
                                    else tensor["n_dims"]))
            for size in dims:
                put(quoted, struct.pack("<Q", size))
            put(quoted, struct.pack("<I", tensor["type"]))
            put(quoted, struct.pack("<Q", offset if tensor["offset"] is None
                                    else tensor["offset"]))
            data.extend(self.data_of(tensor))
            data.extend(b"\0" * (-len(data) % self.alignment))
            offset = len(data)
        marks.append((len(out), 0, "data", "end"))
        out.extend(b"\0" * (-len(out) % self.alignment))
        self.data_start = len(out)
        return bytes(out + data), marks

    def data_of(self, tensor):
        values, width = FORMATS.get(tensor.get("data", tensor["type"]), (1, 4))
        elements = 1
        for size in tensor["dims"]:
            elements = min(elements * max(size, 1), 1 << 20)
        raw = bytearray(struct.pack("<f", 0.5) * (elements // values * width // 4 + 1))
        del raw[elements // values * width:]
        spoilt = self.patch.get(tensor["name"], b"")
        raw[:len(spoilt)] = spoilt
        return raw

    def cut_error(self, end):
        """What a built file that ends at `end`, inside its data, is refused with."""
        at = self.data_start
        for tensor in self.tensors:
            size = len(self.data_of(tensor))
            if at + size > end:
                return (f": tensor '{tensor['name']}' needs bytes {at} to {at + size}, the file "
                        f"ends at {end}{DAMAGED}")
            at += size + -size % self.alignment
        raise AssertionError("the cut is after the last tensor")


def set_key(name, kind, raw):
    """A function that spoils a file, as are the next three."""
    return lambda m: m.key(name).__setitem__(slice(1, 3), [kind, raw])


def drop_key(name):
    return lambda m: m.keys.remove(m.key(name))


def add_key(name, kind, raw):
    return lambda m: m.keys.append([name, kind, raw])


def set_tensor(target, **values):
    return lambda m: m.tensor(target).update(values)


class Cases:
    """Files in `folder`, and the message for each; PREFIX begins the names of those made by
    spoiling make()."""

    def __init__(self, folder, make, prefix="", manifest=None):
        self.folder, self.make, self.prefix = folder, make, prefix
        self.manifest = [] if manifest is None else manifest

    def write(self, name, raw, error):
        (self.folder / (name + ".gguf")).write_bytes(raw)
        self.manifest.append({"file": name + ".gguf", "error": error})

    def model(self, name, spoil, error):
        model = self.make()
        spoil(model)
        raw, _ = model.build()
        self.write(self.prefix + name, raw, error(model, len(raw)) if callable(error) else error)
