"""Ask the example service for the best labels of contexts.

    python ask.py --url http://127.0.0.1:8080 --contexts T.npy [--k 5] [--logprobs] [--exact]

Prints a line of JSON for each context. Needs numpy.
"""
import argparse
import base64
import json
import os
import sys
import urllib.error
import urllib.request

import numpy as np


def ask(url, contexts, k=5, logprobs=False, **fields):
    """Return the answers to contexts, an n x d array: [{"source": ..., "labels": [{"id": ..., "logit": ...}]}]."""
    rows = np.ascontiguousarray(contexts, dtype="<f4")
    body = {"contexts": [base64.b64encode(row.tobytes()).decode() for row in rows], "k": k, **fields}
    try:
        request = urllib.request.Request(url + ("/logprobs" if logprobs else "/topk"), json.dumps(body).encode())
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["answers"]
    except urllib.error.HTTPError as e:
        raise SystemExit(f"{url}: {e.code}: {e.read().decode().strip()}")
    except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError) as e:
        raise SystemExit(f"{url}: found no service: {getattr(e, 'reason', e)}: start examples/serve, or give its address by --url")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--contexts", required=True, help="a .npy file, one context per row")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--logprobs", action="store_true", help="ask for log-probabilities over all labels too")
    parser.add_argument("--exact", action="store_true", help="ask the exact layer")
    args = parser.parse_args()
    try:
        contexts = np.load(args.contexts, mmap_mode="r")
    except (OSError, ValueError) as e:
        raise SystemExit(f"{args.contexts}: {e}: expected a .npy file of numbers")
    for at in range(0, len(contexts), 100):  # the service takes 256 in a request
        fields = {"exact": True} if args.exact else {}
        for answer in ask(args.url, contexts[at : at + 100], args.k, args.logprobs, **fields):
            print(json.dumps(answer))


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        sys.exit(1)
