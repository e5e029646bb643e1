"""The cost of a call: on a layer of one label with one number the search itself takes next to nothing."""
import timeit

import numpy as np

import l2s

layer = l2s.Layer(np.ones((1, 1), np.float32))
h = np.ones(1, np.float32)
H = np.ones((64, 1), np.float32)
layer.topk(h, 1)
for name, call in ("topk of one context", lambda: layer.topk(h, 1)), ("topk of 64 contexts", lambda: layer.topk(H, 1)):
    print(f"{name}: {min(timeit.repeat(call, number=100, repeat=2000)) / 100 * 1e6:.2f} us")
