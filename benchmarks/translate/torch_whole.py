"""Whole translations with PyTorch and its dense softmax layer, to compare with

    go run ./translate --whole

The same model, from the safetensors file, the same sentences and the same search: beam
search that ranks ended hypotheses by their log-probability divided by their length. One
run a number of threads; times are times of one translation of all sentences, after one
that warms up. Debian has PyTorch as python3-torch.

    /usr/bin/python3 translate/torch_whole.py --threads 1 --sentences 60
"""

import argparse
import json
import sys
import time

try:
    import numpy as np
    import torch
    from torch import nn
except ImportError as missing:
    print(f"skipped: {missing}; Debian's python3-torch has it")
    sys.exit(0)


def tensors(path):
    """The tensors of a safetensors file, as float32."""
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[:8], "little")
    types = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
    out = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        first, end = entry["data_offsets"]
        array = np.frombuffer(data[8 + size + first : 8 + size + end], types[entry["dtype"]])
        out[name] = torch.from_numpy(array.astype(np.float32).reshape(entry["shape"]))
    return out


class Model:
    def __init__(self, folder):
        t = tensors(folder + "/model.safetensors")
        self.source = [line.rstrip("\n") for line in open(folder + "/vocab.de", encoding="utf-8")]
        self.target = [line.rstrip("\n") for line in open(folder + "/vocab.en", encoding="utf-8")]
        self.ids = {word: i for i, word in enumerate(self.source)}
        self.start, self.end = self.target.index("<s>"), self.target.index("</s>")
        self.embed = {half: t[half + ".embeddings.weight"] for half in ("encoder", "decoder")}
        self.rnn = {half: self.layers(t, half + ".rnn.") for half in ("encoder", "decoder")}
        self.attn_in, self.attn_out = t["decoder.attn.linear_in.weight"], t["decoder.attn.linear_out.weight"]
        self.weight, self.bias = t["generator.weight"], t["generator.bias"]

    @staticmethod
    def layers(t, prefix):
        own = {name[len(prefix) :]: x for name, x in t.items() if name.startswith(prefix)}
        count = sum(name.startswith("bias_ih_l") for name in own)
        rnn = nn.LSTM(own["weight_ih_l0"].shape[1], own["weight_hh_l0"].shape[1], count)
        rnn.load_state_dict(own)
        return rnn.eval()

    def encode(self, sentences):
        ids = [[self.ids.get(w, self.ids["<unk>"]) for w in s] + [self.ids["</s>"]] for s in sentences]
        lengths = torch.tensor([len(s) for s in ids])
        padded = nn.utils.rnn.pad_sequence([torch.tensor(s) for s in ids])
        x = nn.functional.embedding(padded, self.embed["encoder"])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, state = self.rnn["encoder"](packed)
        y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
        mask = torch.arange(y.shape[1])[None, :] >= lengths[:, None]
        return y, mask, state

    def step(self, tokens, state, y, mask):
        """The contexts (n x d) of n hypotheses that read a token each."""
        x = nn.functional.embedding(tokens, self.embed["decoder"])[None]
        q, state = self.rnn["decoder"](x, state)
        q = q[0]
        scores = torch.bmm(y, (q @ self.attn_in.T)[:, :, None])[:, :, 0]
        weights = torch.softmax(scores.masked_fill(mask, -np.inf), dim=1)
        c = torch.bmm(weights[:, None], y)[:, 0]
        return torch.tanh(torch.cat([c, q], dim=1) @ self.attn_out.T), state


def translate(m, sentences, width, longest, clock):
    """The translations of sentences that are decoded together."""
    start = time.perf_counter()
    y, mask, state = m.encode(sentences)
    clock["decoder"] += time.perf_counter() - start
    live = [(s, 0.0, []) for s in range(len(sentences))]  # sentence, log-probability, words
    ended = [[] for _ in sentences]
    parents = list(range(len(sentences)))
    for length in range(1, longest + 1):
        start = time.perf_counter()
        tokens = torch.tensor([words[-1] if words else m.start for _, _, words in live])
        at, of = torch.tensor(parents), torch.tensor([s for s, _, _ in live])
        state = tuple(x[:, at] for x in state)
        h, state = m.step(tokens, state, y[of], mask[of])
        middle = time.perf_counter()
        logp, best = torch.log_softmax(torch.addmm(m.bias, h, m.weight.T), dim=1).topk(width)
        logp, best = logp.tolist(), best.tolist()
        clock["decoder"] += middle - start
        clock["layer"] += time.perf_counter() - middle
        pool = [[] for _ in sentences]
        for i, (s, before, words) in enumerate(live):
            pool[s] += [(before + p, i, word, words) for p, word in zip(logp[i], best[i])]
        live, parents = [], []
        for s, found in enumerate(pool):
            found.sort(key=lambda x: (-x[0], x[1], x[2]))
            for p, i, word, words in found[: width - len(ended[s])]:
                if word == m.end:
                    ended[s].append((p / length, words))
                else:
                    live.append((s, p, words + [word]))
                    parents.append(i)
        if not live:
            break
    for s, p, words in live:
        if not ended[s]:
            ended[s].append((p / longest, words))
    return [" ".join(m.target[w] for w in max(e, key=lambda x: x[0])[1]) for e in ended]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="../../shared/data/nmt-multi30k")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--longest", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", help="file for the translations")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    m = Model(o.model)
    lines = [line.split() for line in open(o.model + "/test.de", encoding="utf-8")][: o.sentences]
    times = []
    with torch.inference_mode():
        for _ in range(o.rounds + 1):
            clock, text, start = {"decoder": 0.0, "layer": 0.0}, [], time.perf_counter()
            for i in range(0, len(lines), o.batch):
                text += translate(m, lines[i : i + o.batch], o.beam, o.longest, clock)
            times.append((time.perf_counter() - start, clock["decoder"], clock["layer"]))
    whole, decoder, layer = (1e3 * x / len(lines) for x in sorted(times[1:])[(o.rounds - 1) // 2])
    print(f"PyTorch {torch.__version__}, {o.threads} threads, {len(lines)} sentences by {o.batch}, beam {o.beam}: "
          f"{whole:.2f} ms a sentence: decoder {decoder:.2f}, dense layer {layer:.2f}, search in Python {whole - decoder - layer:.2f}")
    if o.out:
        with open(o.out, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in text))


main()
