"""The part of Python in the measurement of bench/main.go: it answers commands of the standard input."""
import sys
import threading
import time

import numpy as np

import l2s

BATCH = 64


def main():
    source, index, contexts, dim, k = sys.argv[1:]
    k, layer = int(k), l2s.open(source)
    searches = l2s.load(index, layer) if index else layer
    H = np.fromfile(contexts, np.float32).reshape(-1, int(dim))
    rows, parts = list(H), [H[i : i + BATCH] for i in range(0, len(H), BATCH)]

    def ones():
        for h in rows:
            searches.topk(h, k)

    def batches():
        for part in parts:
            searches.topk(part, k)

    def threads(n):
        started = [threading.Thread(target=ones) for _ in range(n)]
        for t in started:
            t.start()
        for t in started:
            t.join()

    def hashed():
        """FNV-1a of the ids and the logits of all contexts, one by one and by batches."""
        found = 0xCBF29CE484222325
        for part in rows + parts:
            ids, logits = searches.topk(part, k)
            for byte in np.stack([ids.reshape(-1), logits.reshape(-1).view(np.int64)], 1).tobytes():
                found = (found ^ byte) * 0x100000001B3 % 2**64
        return found

    commands = {"one": ones, "batches": batches, "threads 1": lambda: threads(1), "threads 2": lambda: threads(2)}
    ones()
    for line in sys.stdin:
        if line == "sum\n":
            print(hashed(), flush=True)
            continue
        clock = time.perf_counter_ns if line.startswith("threads") else time.process_time_ns
        begin = clock()
        commands[line.strip()]()
        print(clock() - begin, flush=True)


main()
