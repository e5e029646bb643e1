"""The k largest logits W h + b of a large softmax layer, such as a language model's head, on a CPU,
without computing them all.

    import l2s

    layer = l2s.open("model.gguf")            # or l2s.Layer(W, b), over arrays that are not copied
    index = l2s.make_preview(layer, states)   # from 4,000 contexts of the text to come, or more
    ids, logits = index.topk(H, 5)            # one context, or one a row
    index.save("m.l2p")                       # later: l2s.load("m.l2p", layer)

Layers and indexes never change, and any number of threads may search them: the library works without
the interpreter's lock. ``layer.topk`` is the exact search, which misses no label. All logits are exact
in any case, and equal bit for bit on every CPU.

Errors are TypeError, ValueError, OSError, LayerError (an index of another layer) and TargetError (an
index that was made and misses too much). RuntimeError is raised in a process that was made by fork:
start processes by "spawn", and open the layer there.
"""
from __future__ import annotations

import ctypes
import json
import os
import threading
from types import TracebackType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Type, Union

import numpy as np

from . import _arrays, _library
from ._library import LayerError, TargetError

__all__ = ["Answer", "Estimate", "Index", "Layer", "LayerError", "Step", "TargetError", "library_version", "load", "make_preview", "open", "train_screen"]
__version__ = "0.9.0"

_float32, _int64, _float64 = np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.float64)
_ndarray, _frombuffer, _byref = np.ndarray, np.frombuffer, ctypes.byref
_answers = np.dtype({"names": ["count", "log_sum", "exact"], "formats": [np.uint64, np.float64, np.int32], "offsets": [0, 8, 16], "itemsize": 24})
_chunk = 256  # contexts of a call, between which Python looks for signals


class Estimate(NamedTuple):
    """A measured number with its 95% interval."""

    value: float
    low: float
    high: float


class Step(NamedTuple):
    """A budget of an index, with its precision on contexts that the index was not made from."""

    budget: float
    mean_scored: float
    """The mean number of labels that a query scores in full."""
    precision_1: Estimate
    """P@1, the share of contexts whose best label was found."""
    precision_k: Estimate
    """P@k, the found share of the k best labels: Index.k is that k."""
    own: Estimate
    """The found share of own states, of a preview."""


class Answer(NamedTuple):
    """The answers of a search: of n contexts n rows, of one context alone no rows but its own numbers."""

    ids: np.ndarray
    """int64, n x k, best first; -1 behind the labels of a row, if it has fewer."""
    logits: np.ndarray
    """float64, n x k; -inf behind the labels of a row."""
    log_sum: Optional[Any]
    """The log of the sum of e^(x/temperature), None unless it was asked for."""
    log_probs: Optional[np.ndarray]
    """logits/temperature - log_sum, None unless it was asked for."""
    count: Any
    """The number of labels of each row."""
    exact: Any
    """Whether the row was chosen among all labels: none is missed."""


def _out_of(k: int) -> Any:
    """The memory of one answer of k labels, ids before logits, k as ctypes passes it, and the place of the logits."""
    return ctypes.c_double * (2 * k), ctypes.c_size_t.from_param(k), 8 * k


_outs: Dict[int, Any] = {}
_most_outs = 128  # a k above has its arrays from numpy


class _Pool:
    """Searches over a layer with an index, or without one."""

    def __init__(self, layer: "Layer", index: int, budget: float, over_tail: bool, copies: int) -> None:
        self.handle = ctypes.c_uint64()
        lib = _library.library()
        options = _library.PoolOptions(ctypes.sizeof(_library.PoolOptions), budget, over_tail, copies)
        _library.check(lib.l2s_pool_new(layer._layer.value, index, ctypes.byref(options), ctypes.byref(self.handle)))
        self.argument = ctypes.c_uint64.from_param(self.handle.value)  # as ctypes passes it, which it would make in each call
        self._lib, self.call = lib, lib.topk
        self.labels, self.dim = layer.labels, layer.dim
        self.one = (self.dim,)

    def close(self) -> None:
        # The handle stays: a thread that asks meanwhile is told that it was closed.
        self._lib.l2s_pool_close(self.handle.value)

    def topk(self, h: Any, k: int) -> Tuple[np.ndarray, np.ndarray]:
        answer = self.search(h, k, None)
        if 0 < answer[0].shape[-1] <= _most_outs and k not in _outs:
            _outs[int(k)] = _out_of(int(k))
        return answer[:2]

    def search(self, h: Any, k: Any, request: Optional[_library.Request]) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        k = _arrays.count_of(k)
        if k > self.labels:
            raise ValueError(f"k: found {k}, expected at most {self.labels}, the number of labels")
        m, keep, one = _arrays.matrix_of(h, "H", self.dim)
        n = m.rows
        ids, logits, answers = np.empty((n, k), np.int64), np.empty((n, k), np.float64), np.empty(n, _answers)
        ask = None if request is None else ctypes.byref(request)

        def part(first: int, rows: _library.Matrix) -> int:
            status: int = self._lib.l2s_search(self.handle.value, rows, k, ask, ids[first:].ctypes.data, logits[first:].ctypes.data, answers[first:].ctypes.data)
            return status

        _parts(m, part)
        del keep
        if one:
            return ids[0], logits[0], answers[0]
        return ids, logits, answers

    def logits(self, h: Any, ids: Any) -> np.ndarray:
        m, keep, one = _arrays.matrix_of(h, "H", self.dim)
        of = _arrays.ids_of(ids, "ids")
        found = np.empty((m.rows, of.size), np.float64)
        _parts(m, lambda first, rows: int(self._lib.l2s_logits(self.handle.value, rows, of.ctypes.data, of.size, found[first:].ctypes.data)))
        del keep
        return found[0] if one else found

    def log_probs(self, h: Any, ids: Any, temperature: float) -> Any:
        m, keep, one = _arrays.matrix_of(h, "H", self.dim)
        of = _arrays.ids_of([ids] if one and np.ndim(ids) == 0 else ids, "ids")
        if of.size != m.rows:
            raise ValueError(f"ids: found {of.size}, expected one for each of {m.rows} contexts")
        found = np.empty(m.rows, np.float64)
        _parts(m, lambda first, rows: int(self._lib.l2s_log_probs(self.handle.value, rows, of[first:].ctypes.data, temperature, found[first:].ctypes.data)))
        del keep
        return float(found[0]) if one else found

    def log_sum(self, h: Any, temperature: float, confidence: float) -> Any:
        m, keep, one = _arrays.matrix_of(h, "H", self.dim)
        found = np.empty((3, m.rows), np.float64)
        _parts(m, lambda first, rows: int(self._lib.l2s_log_sums(self.handle.value, rows, temperature, confidence, *(x[first:].ctypes.data for x in found))))
        del keep
        return Estimate(*map(float, found[:, 0])) if one else Estimate(*found)

    def stats(self) -> Dict[str, int]:
        found = _library.Stats()
        _library.check(self._lib.l2s_pool_stats(self.handle.value, ctypes.byref(found)))
        return {name: int(getattr(found, name)) for name in _library.Stats.names}


def _parts(m: _library.Matrix, call: Callable[[int, _library.Matrix], int]) -> None:
    """Call with the rows of a matrix, some at a time, so that Ctrl-C ends a long work."""
    step = m.stride or 0
    for first in range(0, m.rows, _chunk):
        rows = m if m.rows <= _chunk else _library.Matrix(m.data + first * step, min(_chunk, m.rows - first), m.dim, m.stride, m.type)
        _library.check(call(first, rows), f"from row {first} on: " if first else "")


class _Searches:
    """The searches of a layer and of an index."""

    _pool: Optional[_Pool] = None
    _open = False  # the handle, which stays when it is closed
    _sums: Optional[str] = None  # why there are no sums over all labels

    def _asked(self) -> _Pool:
        if self._pool is None:
            raise ValueError(f"{type(self).__name__}: found it closed, expected it open")
        return self._pool

    def topk(self, H: Any, k: int = 1) -> Tuple[np.ndarray, np.ndarray]:
        """Return the ids and the logits of the k largest logits, best first.

        H is one context (dim numbers) or one a row (n x dim): float32, float16 or bfloat16; numpy, torch on the
        CPU, or dlpack. The results are int64 and float64, k or n x k. Of equal logits the lower id is first.
        """
        pool = self._pool
        if pool is None:
            pool = self._asked()
        # One context of float32, as a decoder asks, in two microseconds: numpy takes longer to tell the address
        # of an array than to copy it, so the context goes as bytes, and the answer comes in memory of ctypes.
        if type(H) is _ndarray and H.dtype is _float32 and H.shape == pool.one and type(k) is int and k in _outs and k <= pool.labels:
            out, size, middle = _outs[k]
            found = out()
            status = pool.call(pool.argument, H.tobytes(), size, found, _byref(found, middle))
            if status:
                _library.fail(status)
            return _frombuffer(found, _int64, k), _frombuffer(found, _float64, k, middle)
        return pool.topk(H, k)

    def search(self, H: Any, k: int = 1, *, budget: float = 0, exact: bool = False, within: float = 0, among: Any = None,
               also: Any = None, allowed: Any = None, banned: Any = None, biases: Any = None, log_probs: bool = False, log_sum: bool = False,
               exact_sum: bool = False, temperature: float = 1) -> Answer:
        """Answer a request about contexts, as topk has them.

        budget: the mean number of labels to score in full, a budget of Index.steps; 0 is the index's own.
        exact: miss no label.
        within: leave out labels farther below the best logit.
        among: ids, the only labels to choose among, which is always exact.
        also: ids that the index looks at besides the labels that it finds: none of them is missed.
        allowed, banned: ids, or a mask of bool over all labels: part of the search, and of sums.
        biases: a dict {id: number}, or a pair of arrays: added to logits.
        log_probs, log_sum: log-probabilities, and the log of the sum of e^(x/temperature), over all labels that
        may be answered. exact_sum computes the sum by a pass over all weights, without an estimate.
        k may be 0 for a log_sum alone, and large at no cost with within.
        """
        pool = self._asked()
        sums = log_probs or log_sum or exact_sum
        if not temperature > 0:  # 0 is no temperature in C
            raise ValueError(f"temperature: found {temperature}, expected a number above 0")
        if sums and self._sums and not exact:
            raise ValueError(self._sums)
        r = _library.Request(ctypes.sizeof(_library.Request), float(budget), float(within), float(temperature), bool(exact), bool(sums), bool(exact_sum))
        keep = []
        for name, x in (("among", among), ("also", also), ("allowed", allowed), ("banned", banned)):
            labels, array = _arrays.labels_of(x, name, pool.labels, name not in ("among", "also"))
            setattr(r, name, labels)
            keep.append(array)
        if biases is not None:
            ids, add = _arrays.biases_of(biases)
            r.bias_ids, r.biases, r.bias_count = ids.ctypes.data, add.ctypes.data, ids.size
            keep += [ids, add]
        ids, logits, answers = pool.search(H, k, r)
        del keep
        total = answers["log_sum"] if sums else None
        probs = None
        if log_probs:
            probs = logits / temperature - np.expand_dims(np.asarray(total), -1)
        if ids.ndim == 1:
            return Answer(ids, logits, None if total is None else float(total), probs, int(answers["count"]), bool(answers["exact"]))
        return Answer(ids, logits, total, probs, answers["count"].astype(np.int64), answers["exact"].astype(bool))

    def logits(self, H: Any, ids: Any) -> np.ndarray:
        """Return the exact logits of some labels, from their rows alone: len(ids), or n x len(ids)."""
        return self._asked().logits(H, ids)

    def log_probs(self, H: Any, ids: Any, temperature: float = 1) -> Any:
        """Return the log-probability of one label for each context, over all labels: ids has one id a context."""
        if self._sums:
            raise ValueError(self._sums)
        return self._asked().log_probs(H, ids, temperature)

    def log_sum(self, H: Any, temperature: float = 1, confidence: float = 0.95) -> Estimate:
        """Return the log of the sum of e^(x/temperature) over all labels, with an interval for it.

        The ends are equal if the sum is exact, and infinite if nothing is known, as of a preview.
        """
        if self._sums:
            raise ValueError(self._sums)
        found: Estimate = self._asked().log_sum(H, temperature, confidence)
        return found

    def stats(self) -> Dict[str, int]:
        """Return counts of the work of topk and search.

        queries: contexts answered. looked: cheap looks by codes. scored: labels that answers were chosen among.
        exact: contexts answered exactly. fallback: of those, the ones that the request does not explain. far:
        contexts unlike those that a preview was made from.
        """
        return self._asked().stats()

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__}: it cannot be pickled: open the layer in each process, by l2s.open or l2s.Layer, and l2s.load")


class Layer(_Searches):
    """A softmax layer with the logits W h + b. Its own searches are exact.

    W: labels x dim, in C order, of float32, float16 or bfloat16 (ml_dtypes or torch); numpy, torch on the CPU,
    or dlpack. With quantised, a type of ggml such as "q8_0": uint8, labels x bytes of a row.
    b: float32, one number a label, or None.
    scale, soft_cap: logits times a scale; c tanh(x/c) by a cap c other than 0.
    threads: of an exact search.

    W and b are not copied. They must not change while the layer lives, which keeps a reference to both.
    """

    def __init__(self, W: Any, b: Any = None, *, quantised: Optional[str] = None, scale: float = 1, soft_cap: float = 0, threads: int = 1) -> None:
        m, w = _arrays.weights_of(W, quantised)
        bias = None if b is None else _arrays.floats_of(b, "b", m.rows)
        handle = ctypes.c_uint64()
        lib = _library.library()
        _library.check(lib.l2s_layer_new(m, None if bias is None else bias.ctypes.data, scale, soft_cap, ctypes.byref(handle)))
        self._begin(lib, handle, threads, (w, bias))

    def _begin(self, lib: Any, handle: ctypes.c_uint64, threads: int, keep: Any) -> None:
        self._lib, self._layer, self._keep = lib, handle, keep
        self._open = True
        labels, dim = ctypes.c_size_t(), ctypes.c_size_t()
        _library.check(lib.l2s_layer_shape(handle.value, ctypes.byref(labels), ctypes.byref(dim)))
        self.labels, self.dim = int(labels.value), int(dim.value)
        if threads != 1:
            self.set_threads(threads)
        self._pool = _Pool(self, 0, 0, False, 0)

    @property
    def shape(self) -> Tuple[int, int]:
        """The number of labels and the dimension of a context."""
        return self.labels, self.dim

    @property
    def info(self) -> Dict[str, Any]:
        """The file and the tensor of the layer, its type, scale and cap, and why it is taken for the head."""
        found: Dict[str, Any] = json.loads(_library.text_of(self._lib.l2s_layer_info, self._layer.value))
        return found

    def set_threads(self, n: int) -> None:
        """Let exact searches run on up to n threads, while nothing searches. Answers are the same."""
        _library.check(self._lib.l2s_layer_set_threads(self._layer.value, _arrays.int32_of(n, "threads")))

    def close(self) -> None:
        """Close the layer, after the searches under way. It closes itself when nothing refers to it."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        if self._open:
            self._open = False
            _library.check(self._lib.l2s_layer_close(self._layer.value))
        self._keep = None

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # in a child of fork, or at the end of the interpreter
            pass

    def __enter__(self) -> "Layer":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._pool is None:
            return "l2s.Layer(closed)"
        return f"l2s.Layer({self.info['text']})"


def _layer_of(x: Any) -> Layer:
    """Return x, which is an open layer."""
    if not isinstance(x, Layer):
        raise TypeError(f"layer: found {type(x).__name__}, expected an l2s.Layer, from l2s.Layer(W, b) or l2s.open(path)")
    x._asked()
    return x


class Index(_Searches):
    """A preview or a screen over a layer, with its searches. make_preview, train_screen and load return one."""

    def __init__(self, layer: Layer, handle: ctypes.c_uint64, budget: float = 0, copies: int = 0) -> None:
        self._lib, self._index = layer._lib, handle
        self._open = True
        self.layer = layer
        self.info: Dict[str, Any] = json.loads(_library.text_of(self._lib.l2s_index_info, handle.value))
        if self.kind == "screen" and not self.info["has_tail"]:
            self._sums = "index: found a screen without a tail, expected one for sums over all labels: train it with its tail, or search with exact=True"
        self._pool = _Pool(layer, handle.value, budget, self.kind == "screen" and self.info["has_tail"], copies)

    @property
    def kind(self) -> str:
        """"preview" or "screen"."""
        return str(self.info["kind"])

    @property
    def k(self) -> int:
        """The k of precision_k."""
        return int(self.info["k"])

    @property
    def labels(self) -> int:
        return self.layer.labels

    @property
    def dim(self) -> int:
        return self.layer.dim

    def _steps(self) -> Tuple[List[Step], int]:
        total, normal = ctypes.c_size_t(), ctypes.c_size_t()
        _library.check(self._lib.l2s_index_steps(self._index.value, None, 0, ctypes.byref(total), ctypes.byref(normal)))
        found = (_library.Step * total.value)()
        _library.check(self._lib.l2s_index_steps(self._index.value, found, total.value, ctypes.byref(total), ctypes.byref(normal)))
        steps = [Step(s.budget, s.mean_scored, *(Estimate(e.value, e.low, e.high) for e in (s.precision_1, s.precision_k, s.own))) for s in found]
        return steps, int(normal.value)

    @property
    def steps(self) -> List[Step]:
        """The budgets, ascending, with their precision on contexts that the index was not made from."""
        return self._steps()[0]

    @property
    def step(self) -> Step:
        """The step of requests that name no budget."""
        steps, normal = self._steps()
        return steps[normal]

    def save(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Write the index to a file, which appears when it is complete."""
        _library.check(self._lib.l2s_index_save(self._index.value, _arrays.path_of(path, "path")))

    def close(self) -> None:
        """Release the memory of the index. It does so itself when nothing refers to it."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        if self._open:
            self._open = False
            _library.check(self._lib.l2s_index_close(self._index.value))

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # in a child of fork, or at the end of the interpreter
            pass

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._pool is None:
            return "l2s.Index(closed)"
        text = f"l2s.Index({self.kind}, {self.labels} x {self.dim}"
        if self.info["held_out"]:
            s = self.step
            text += f", P@1 {s.precision_1.value:.4f}, P@{self.k} {s.precision_k.value:.4f} on {self.info['held_out']} held-out contexts"
            if s.own.high > 0:
                text += f", finds {s.own.value:.4f} ({s.own.low:.4f} to {s.own.high:.4f}) of own states"
        else:
            text += ", precision not measured: no held-out contexts"
        return text + ")"


def open(source: "Union[str, os.PathLike[str]]", *, bias: Optional[str] = None, copy: bool = False, threads: int = 1) -> Layer:
    """Open the head of a language model, or a matrix.

    source: a folder of Hugging Face, a GGUF file, FILE.safetensors:name, FILE.npy or FILE.npz:name. Layer.info
    tells which tensor is the head, and why. bias: its source, "none", or None for the model's. The rows stay in
    the file, which must not change, unless copy is true. threads: of an exact search.
    """
    lib = _library.library()
    handle = ctypes.c_uint64()
    _library.check(lib.l2s_layer_open(_arrays.path_of(source, "source"), None if bias is None else _arrays.path_of(bias, "bias"), copy, ctypes.byref(handle)))
    layer = Layer.__new__(Layer)
    layer._begin(lib, handle, threads, None)
    return layer


def load(path: "Union[str, os.PathLike[str]]", layer: Layer, *, budget: float = 0, copies: int = 0) -> Index:
    """Load a preview or a screen of a layer. Raise LayerError if it was made for another one.

    budget: of requests that name none, one of Index.steps; 0 is the normal step. copies: the most bytes of
    copied codes of a screen; 0 is 256 MiB, -1 none.
    """
    _layer_of(layer)
    lib = _library.library()
    handle = ctypes.c_uint64()
    _library.check(lib.l2s_index_load(_arrays.path_of(path, "path"), ctypes.byref(handle)))
    try:
        return Index(layer, handle, budget, copies)
    except BaseException:
        lib.l2s_index_close(handle.value)
        raise


Progress = Union[bool, Callable[[str, float], Any]]


def _work(function: Any, layer: Layer, states: _library.Matrix, options: Any, progress: Progress) -> Index:
    """Run a maker in a thread of its own, so that this one sees Ctrl-C, and shows the progress."""
    handle = ctypes.c_uint64()
    now: List[Tuple[str, float]] = [("", 0.0)]
    stop = threading.Event()
    ended: List[BaseException] = []

    def report(_: Any, stage: bytes, done: float) -> int:
        now[0] = stage.decode(), done
        return int(stop.is_set())

    def run() -> None:
        try:
            _library.check(function(layer._layer.value, states, ctypes.byref(options), _library.Progress(report), None, ctypes.byref(handle)))
        except BaseException as e:  # it belongs to the caller's thread
            ended.append(e)

    show, close = _shown(progress)
    thread = threading.Thread(target=run, name="l2s", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
            show(*now[0])
        if ended:
            raise ended[0]
        return Index(layer, handle)
    except BaseException:
        stop.set()
        while thread.is_alive():  # it still reads the arrays
            try:
                thread.join()
            except KeyboardInterrupt:
                pass
        if handle.value:
            layer._lib.l2s_index_close(handle.value)
        raise
    finally:
        close()


def _shown(progress: Progress) -> Tuple[Callable[[str, float], Any], Callable[[], Any]]:
    """Return what shows progress, and what ends it."""
    if callable(progress):
        return progress, lambda: None
    if progress:
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError:
            pass
        else:
            # Not into files: disable=None.
            bar = tqdm(total=1.0, bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}", leave=False, disable=None)

            def show(stage: str, done: float) -> None:
                bar.n = done
                bar.set_description_str(stage)

            return show, bar.close
    return lambda stage, done: None, lambda: None


def make_preview(layer: Layer, states: Any, *, held_out: Any = None, k: int = 5, coordinates: int = 0, precision: Tuple[float, float] = (0, 0),
                 least_own: float = 0, threads: int = 0, progress: Progress = True) -> Index:
    """Make a preview of a layer from states: contexts of the text to come, n x dim, 4,000 for one language.

    held_out: states that measure the steps; None is a quarter of the states. k: of precision_k. precision: the
    least P@1 and P@k of the normal step; 0 is .9995 and .998. least_own: the found share of own states below
    which TargetError is raised; 0 is .9. threads: 0 is all CPUs. progress: True for a bar of tqdm, if it is
    installed, or a function of the stage and the finished share, which may raise to end the work; so does Ctrl-C.
    """
    m, keep, _ = _arrays.matrix_of(states, "states", _layer_of(layer).dim)
    options = _library.PreviewOptions(ctypes.sizeof(_library.PreviewOptions), _arrays.int32_of(coordinates, "coordinates"), _arrays.int32_of(k, "k"), *precision, least_own, _arrays.int32_of(threads, "threads"))
    kept = None
    if held_out is not None:
        h, kept, _ = _arrays.matrix_of(held_out, "held_out", layer.dim)
        options.held_out = ctypes.pointer(h)
    index = _work(layer._lib.l2s_preview_make, layer, m, options, progress)
    del keep, kept
    return index


def train_screen(layer: Layer, states: Any, *, validation: Any = None, checkpoint: "Union[str, os.PathLike[str], None]" = None, any_precision: bool = False,
                 threads: int = 0, progress: Progress = True, **options: Any) -> Index:
    """Train a screen for a layer from states in the order of their text, n x dim, 100,000 or more.

    validation: states that measure; None is some of the states. checkpoint: a file from which an interrupted run
    continues. any_precision: accept a screen that misses its target (TargetError). Other options have the JSON
    names of train.Options in Go, such as clusters, budget, k, seed, held_out; tail=None leaves out the tail,
    which sums over all labels need.
    """
    m, keep, _ = _arrays.matrix_of(states, "states", _layer_of(layer).dim)
    text = json.dumps(options).encode() if options else None
    o = _library.ScreenOptions(ctypes.sizeof(_library.ScreenOptions), text, None, None if checkpoint is None else _arrays.path_of(checkpoint, "checkpoint"), _arrays.int32_of(threads, "threads"), any_precision)
    kept = None
    if validation is not None:
        v, kept, _ = _arrays.matrix_of(validation, "validation", layer.dim)
        o.validation = ctypes.pointer(v)
    index = _work(layer._lib.l2s_screen_train, layer, m, o, progress)
    del keep, kept
    return index


def library_version() -> str:
    """Return the version of libl2s.so, such as "v0.9.0+devel"."""
    return _library.version()
