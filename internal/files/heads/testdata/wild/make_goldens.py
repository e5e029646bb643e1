"""Writes the golden files of internal/files/heads/testdata/wild with gguf of PyPI, which llama.cpp's converter uses.

    python3 -m venv venv && venv/bin/pip install gguf numpy && venv/bin/python internal/files/heads/testdata/wild/make_goldens.py internal/files/heads/testdata/wild

head-TYPE.gguf has a head in a quantised type, and head-TYPE.npy the values that gguf.quants reads back. The
split-*.gguf are one model in two files, whose head is in the second; split.npy is its head.
"""

import pathlib
import sys

import gguf
import numpy as np

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
rng = np.random.default_rng(41)

for kind in (gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q5_1):
    name = kind.name.lower()
    w = (rng.standard_normal((24, 64)) * rng.lognormal(0, 1, (24, 1)) + 0.1).astype(np.float32)
    data = gguf.quants.quantize(w, kind)
    writer = gguf.GGUFWriter(str(out / f"head-{name}.gguf"), "llama")
    writer.add_tensor("output.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.save(out / f"head-{name}.npy", gguf.quants.dequantize(data, kind).astype(np.float32))

writer = gguf.GGUFWriter(str(out / "split.gguf"), "granite", split_max_tensors=2)
writer.add_logit_scale(8.0)
writer.add_token_list(["a", "b", "c", "d", "[PAD4]"])
writer.add_suppress_tokens([3, 1]) if hasattr(writer, "add_suppress_tokens") else writer.add_array("tokenizer.ggml.suppress_tokens", [3, 1])
head = rng.standard_normal((5, 8)).astype(np.float32)
for name, x in (
    ("token_embd.weight", rng.standard_normal((5, 8)).astype(np.float32)),
    ("blk.0.attn_q.weight", np.zeros((8, 8), np.float32)),
    ("output_norm.weight", np.ones(8, np.float32)),
    ("output.weight", head),
):
    writer.add_tensor(name, x)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
np.save(out / "split.npy", head)
