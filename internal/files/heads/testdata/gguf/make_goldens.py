"""Writes the goldens of internal/files/heads/testdata/gguf with gguf of PyPI, which llama.cpp's converter uses.

    python3 -m venv venv && venv/bin/pip install gguf numpy && venv/bin/python internal/files/heads/testdata/gguf/make_goldens.py internal/files/heads/testdata/gguf

head-f32, head-f16 and head-bf16.gguf are written anew. ggml's own quantisers wrote the other head-*.gguf, which are
read. sums.txt has the shape of each head, without rows of padding, and the SHA-256 of the values that gguf.quants
reads back from it: float32, little-endian, row by row. With a second folder the values go there, as head-TYPE.npy.
"""

import hashlib
import pathlib
import sys

import gguf
import numpy as np

folder = pathlib.Path(sys.argv[1])
rng = np.random.default_rng(44)
labels, dim = 48, 96

for kind, padded in (
    (gguf.GGMLQuantizationType.F32, 0),
    (gguf.GGMLQuantizationType.F16, 0),
    (gguf.GGMLQuantizationType.BF16, 4),
):
    name = kind.name.lower()
    w = (rng.standard_normal((labels, dim)) * rng.lognormal(-2, 1, (labels, 1))).astype(np.float32)
    writer = gguf.GGUFWriter(str(folder / f"head-{name}.gguf"), "llama")
    writer.add_name(f"head {name}")
    writer.add_vocab_size(labels - padded)
    writer.add_embedding_length(dim)
    if padded:
        writer.add_token_list([f"<t{i}>" for i in range(labels - padded)])
    writer.add_tensor("output_norm.weight", np.ones(dim, np.float32))
    head = "token_embd.weight" if padded else "output.weight"
    writer.add_tensor(head, gguf.quants.quantize(w, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

with open(folder / "sums.txt", "w") as sums:
    for path in sorted(folder.glob("head-*.gguf")):
        file = gguf.GGUFReader(path)
        tensors = {t.name: t for t in file.tensors}
        head = tensors.get("output.weight") or tensors["token_embd.weight"]
        x = gguf.quants.dequantize(head.data, head.tensor_type).astype("<f4")
        if tokens := file.get_field("tokenizer.ggml.tokens"):
            x = x[: len(tokens.contents())]
        rows, columns = x.shape
        print(f"{path.stem} {rows} x {columns} {hashlib.sha256(x.tobytes()).hexdigest()}", file=sums)
        if len(sys.argv) > 2:
            np.save(pathlib.Path(sys.argv[2]) / f"{path.stem}.npy", x)
