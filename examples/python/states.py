"""Take hidden states of a text with transformers, for l2s train --contexts.

    python states.py --model models/x --text corpus.txt --out H.npy [--targets T.npy]

A state is the vector that the model's last matrix multiplies: a hook on that layer sees it, after
the last normalisation. T.npy has the token after each state. Needs torch, transformers and numpy.
"""
import argparse

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def states(model, windows, dtype=torch.float16):
    """Return the states of windows of token ids, and the token after each state."""
    rows, targets = [], []

    def collect(head, inputs):
        # detach: without it each state would hold its whole graph in memory.
        rows.append(inputs[0].detach().reshape(-1, inputs[0].shape[-1]).to("cpu", dtype)[:-1])

    hook = model.get_output_embeddings().register_forward_pre_hook(collect)
    try:
        with torch.no_grad():
            for ids in windows:
                # Call the model: generate computes the state of the last position only.
                model(torch.tensor([ids], device=model.device), use_cache=False)
                targets.extend(ids[1:])
    finally:
        hook.remove()
    found = torch.cat(rows)
    if not torch.isfinite(found).all():
        raise SystemExit("states: found a number beyond float16: take --float32")
    return found.numpy(), np.array(targets, dtype=np.int32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder, or a name on Hugging Face")
    parser.add_argument("--text", required=True, help="a file of UTF-8 text, like the text to come")
    parser.add_argument("--out", required=True, help="the .npy file of states to write")
    parser.add_argument("--targets", help="the .npy file of the next tokens to write")
    parser.add_argument("--window", type=int, default=256, help="tokens that the model sees together")
    parser.add_argument("--most", type=int, default=100_000, help="states to take at most")
    parser.add_argument("--float32", action="store_true", help="write float32, not float16")
    args = parser.parse_args()

    model = AutoModelForCausalLM.from_pretrained(args.model).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    with open(args.text, encoding="utf-8") as f:
        ids = tokenizer(f.read(), add_special_tokens=False)["input_ids"][: args.most + args.most // args.window + 1]
    windows = [ids[at : at + args.window] for at in range(0, len(ids) - 1, args.window)]
    h, targets = states(model, [w for w in windows if len(w) > 1], torch.float32 if args.float32 else torch.float16)
    np.save(args.out, h)
    if args.targets:
        np.save(args.targets, targets)
    print(f"{args.out}: {h.shape[0]} states of {h.shape[1]} numbers, {h.dtype}")


if __name__ == "__main__":
    main()
