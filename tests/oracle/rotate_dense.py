"""Makes tiny/qwen3_rot_f32.gguf: tiny/qwen3_yarn_f32.gguf with every matrix but the embedding stored
in a rotated basis (blocks of 32, random signs). The same network, so the same logits: its entry in
tiny.json names those of the other.
Remake: python3 rotate_dense.py tests/data/tiny
"""
import json
import pathlib
import sys

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from hadamard import blockwise

BLOCK, FROM, TO = 32, "qwen3_yarn_f32", "qwen3_rot_f32"


def copy_keys(reader, writer):
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind, inner = field.types[0], field.types[-1]
        writer.add_key_value(field.name, field.contents(), kind,
                             inner if kind == GGUFValueType.ARRAY else None)


def main(folder):
    reader = GGUFReader(folder / f"{FROM}.gguf")
    writer = GGUFWriter(folder / f"{TO}.gguf", "qwen3")
    copy_keys(reader, writer)
    rotated = [t.name for t in reader.tensors if len(t.shape) == 2 and t.name.startswith("blk.")]
    widths = sorted({int(t.shape[0]) for t in reader.tensors if t.name in rotated})
    rng = np.random.default_rng(7)
    signs = {width: rng.choice([-1, 1], width) for width in widths}
    at = "prism.hadamard."
    writer.add_uint32(f"{at}version", 1)
    writer.add_uint32(f"{at}block_size", BLOCK)
    writer.add_string(f"{at}transform", "normalized-sylvester-walsh-hadamard")
    writer.add_string(f"{at}axis", "input-last-dimension")
    writer.add_string(f"{at}sign_mode", "explicit")
    writer.add_array(f"{at}sign_widths", widths)
    writer.add_array(f"{at}sign_values", np.concatenate([signs[w] for w in widths]).tolist())
    writer.add_array(f"{at}weight_names", rotated)
    for tensor in reader.tensors:
        data = np.asarray(tensor.data)
        if tensor.name in rotated:
            width = int(tensor.shape[0])
            data = blockwise(data.reshape(-1, width) * signs[width], BLOCK).astype(np.float32)
        writer.add_tensor(tensor.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    listing = folder / "tiny.json"
    models = json.loads(listing.read_text())
    models[TO] = models[FROM] | {"logits": f"{FROM}.logits"}
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in models.items())
    listing.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
