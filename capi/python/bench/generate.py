"""A model of transformers that takes its next tokens from its own head, from the exact search and from a preview, in turns.

    python generate.py MODEL TEXT [--tokens 64] [--prompts 4] [--preview m.l2p]

MODEL is a folder of Hugging Face or a GGUF file, TEXT a file of text. The preview is made from states of the first three
quarters, prompts are of the last one. It prints the tokens per second of greedy
texts, and how many tokens are those of the model's own head. One thread; seconds are of the CPU, and the ratio is the
median over prompts, each of which is continued in all ways in turn.
"""
import argparse
import os
import statistics
import time

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import l2s
from l2s.transformers import attach, states


def load(path, text, most):
    """The model, the ids that a text of it begins with, and the ids of at most most tokens of a text."""
    where = {"gguf_file": os.path.basename(path)} if path.endswith(".gguf") else {}
    folder = os.path.dirname(os.path.abspath(path)) if where else path
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, **where).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, **where)
    with open(text, encoding="utf-8") as f:
        ids = tokenizer(f.read(8 * most), add_special_tokens=False)["input_ids"]
    return model, np.array(tokenizer("")["input_ids"], np.int64), np.array(ids[:most], np.int64)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--prompts", type=int, default=4)
    p.add_argument("--prompt", type=int, default=32, help="tokens of a prompt")
    p.add_argument("--states", type=int, default=6000)
    p.add_argument("--preview", help="a file: the preview is loaded from it, or made and saved to it")
    o = p.parse_args()
    torch.set_num_threads(1)
    begin = time.process_time()
    model, first, text = load(o.model, o.text, 4 * o.states)
    head = model.get_output_embeddings().weight
    print(f"{type(model).__name__}: loaded in {time.process_time() - begin:.0f} s; head {tuple(head.shape)} {head.dtype}", flush=True)
    layer = l2s.Layer(head)
    learnt = len(text) * 3 // 4
    begin = time.process_time()
    if o.preview and os.path.exists(o.preview):
        index = l2s.load(o.preview, layer)
    else:
        found = states(model, [np.r_[first, text[i : i + 255]] for i in range(0, learnt, 255)], most=o.states)
        print(f"{len(found)} states in {time.process_time() - begin:.0f} s", flush=True)
        begin = time.process_time()
        index = l2s.make_preview(layer, found, progress=False)
        if o.preview:
            index.save(o.preview)
    print(f"{index} in {time.process_time() - begin:.0f} s", flush=True)

    def write(prompt):
        begin = time.process_time()
        found = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=o.tokens, min_new_tokens=o.tokens, pad_token_id=0)
        return found[0, prompt.shape[1] :], time.process_time() - begin

    ways = {"own head": None, "exact search": layer, "preview": index}
    seconds, same = {w: [] for w in ways}, {w: 0 for w in ways}
    write(torch.as_tensor(np.r_[first, text[: o.prompt]][None]))
    for at in np.linspace(learnt, len(text) - o.prompt, o.prompts).astype(int):
        prompt = torch.as_tensor(np.r_[first, text[at : at + o.prompt]][None])
        for way, searches in ways.items():
            if searches is None:
                found, took = own, _ = write(prompt)
            else:
                with attach(model, searches):
                    found, took = write(prompt)
            seconds[way].append(took)
            same[way] += int((found == own).sum())
    for way in ways:
        ratio = statistics.median(a / b for a, b in zip(seconds["own head"], seconds[way]))
        print(f"{way}: {o.tokens / statistics.median(seconds[way]):.1f} tokens per second, times {ratio:.2f}; {same[way]} of {o.tokens * o.prompts} tokens the same")


main()
