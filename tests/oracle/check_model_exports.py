"""Loads exports of `trine convert` in transformers: no missing and no unexpected keys, and the
logits of the model that was exported, from the fixtures that make_tiny_qwen35.py wrote.

python3 check_model_exports.py build/trine tests/data/tiny
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

FILES = ["qwen35_a_rot_ptq1_0", "qwen35_a_rot_tiled_pq2_0", "qwen35_b_rot_ptq1_0",
         "qwen35_c_rot_ptq1_0", "qwen35_a_mtp_pq2_0", "llama3_bf16", "llama_f16", "qwen2_q8_0",
         "qwen3_q4_0", "qwen3_yarn_f32"]


def main(trine, data):
    data = pathlib.Path(data)
    index = json.loads((data / "tiny.json").read_text()) | json.loads((data / "qwen35.json").read_text())
    failed = 0
    for name in FILES:
        for kind in ("f32", "f16"):
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / name
                subprocess.run([trine, "convert", data / f"{name}.gguf", out, "--type", kind,
                                "--shard-size", "300KB"], check=True, capture_output=True)
                model, info = AutoModelForCausalLM.from_pretrained(
                    out, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
                tokenizer = AutoTokenizer.from_pretrained(out)
            keys = [len(info[part]) for part in ("missing_keys", "unexpected_keys", "mismatched_keys")]
            entry = index[name]
            logits = np.fromfile(data / entry.get("logits", f"{name}.logits"), "<f4")
            with torch.no_grad():
                own = model.eval()(torch.tensor([entry["tokens"]]), use_cache=False).logits[0].numpy()
            error = own.ravel() - logits
            worst = abs(error).max() / abs(logits).max()
            mean = np.sqrt((error ** 2).mean() / (logits ** 2).mean())
            print(f"{name} {kind}: missing, unexpected, mismatched {keys}, logits off by "
                  f"{worst:.1e}, mean square {mean:.1e}, {len(tokenizer)} tokens", flush=True)
            failed += keys != [0, 0, 0] or (kind == "f32" and worst > 1e-3) or mean > 3.6e-3
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
