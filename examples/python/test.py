"""The parts of the script test that need Python: test.py make DIR, test.py wait URL, test.py check DIR."""
import json
import random
import sys
import time
import urllib.request

import numpy as np


def make(folder):
    """Write a tiny model of random weights with a tokenizer of words, and two texts."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = [f"w{i}" for i in range(2000)]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0").save_pretrained(folder + "/model")
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=2000, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, initializer_range=0.3)
    LlamaForCausalLM(config).save_pretrained(folder + "/model")
    r = random.Random(1)
    for name, n in ("train", 8000), ("test", 400):
        with open(f"{folder}/{name}.txt", "w") as f:
            f.write(" ".join(r.choice(words) for _ in range(n)))


def wait(url):
    for _ in range(200):
        try:
            urllib.request.urlopen(url)
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{url}: found no service in 20 s")


def check(folder):
    """The command and the service have the labels and logits of transformers' own model."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder + "/model").eval()
    h = np.load(folder + "/T.npy").astype(np.float64)
    w = model.get_output_embeddings().weight.detach().double().numpy()
    logits = h @ w.T
    want = np.argsort(-logits, axis=1)[:, :5]
    # The states are the head's inputs: the model's own logits agree, up to their float16.
    ids = [int(x[1:]) for x in open(folder + "/test.txt").read().split()][:256]
    with torch.no_grad():
        own = model(torch.tensor([ids])).logits[0, : min(len(h), 255)].numpy()
    assert np.abs(own - logits[: len(own)]).max() < 0.05 * np.abs(own).max(), np.abs(own - logits[: len(own)]).max()
    command = [json.loads(line) for line in open(folder + "/topk.json")]
    service = [json.loads(line) for line in open(folder + "/ask.json")]
    assert len(command) == len(service) == len(h) > 100, (len(command), len(service), len(h))
    for i in range(len(h)):
        labels = service[i]["labels"]
        assert command[i]["ids"] == [x["id"] for x in labels] == want[i].tolist(), i
        assert np.allclose([x["logit"] for x in labels], logits[i, want[i]], atol=1e-9), i
        assert command[i]["logits"] == [x["logit"] for x in labels], i
    print(f"test-python: {len(h)} contexts: the command and the service answer as the model does")


globals()[sys.argv[1]](sys.argv[2])
