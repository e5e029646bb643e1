"""Arrays of callers as matrices of the library: nothing is copied."""
from __future__ import annotations

import ctypes
import operator
import os
from typing import Any, Optional, Tuple

import numpy as np

from ._library import Labels, Matrix

FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 2
QUANTISED = {  # the number of the type, and the elements and the bytes of a block
    "q4_0": (8, 32, 18), "q4_1": (9, 32, 20), "q5_0": (10, 32, 22), "q5_1": (11, 32, 24), "q8_0": (12, 32, 34),
    "q4_k": (13, 256, 144), "q5_k": (14, 256, 176), "q6_k": (15, 256, 210),
}
_types = {"float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16}


def array_of(x: Any, what: str) -> "Tuple[np.ndarray, str]":
    """Return an array over the memory of x, and the name of its dtype, which numpy may lack."""
    if isinstance(x, np.ndarray):
        return x, x.dtype.name
    if type(x).__module__.partition(".")[0] == "torch":
        if x.device.type != "cpu":
            raise ValueError(f"{what}: found a tensor on {x.device}, expected one on the CPU: {what}.cpu()")
        x, name = x.detach(), str(x.dtype).rpartition(".")[2]
        if name == "bfloat16":  # which numpy has not
            import torch  # type: ignore[import-not-found,unused-ignore]

            return x.view(torch.int16).numpy(), name
        return x.numpy(), name
    if hasattr(x, "__array_interface__"):
        x = np.asarray(x)
        return x, x.dtype.name
    if hasattr(x, "__dlpack__"):
        try:
            x = np.from_dlpack(x)
        except (BufferError, RuntimeError) as cause:
            raise TypeError(f"{what}: found a {type(x).__name__} that numpy cannot see: {cause}") from cause
        return x, x.dtype.name
    way = f": np.asarray({what}, np.float32)" if isinstance(x, (list, tuple)) else ""
    raise TypeError(f"{what}: found {type(x).__name__}, expected an array of numpy, a tensor of torch, or another array with dlpack{way}")


def matrix_of(x: Any, what: str, dim: Optional[int] = None) -> "Tuple[Matrix, np.ndarray, bool]":
    """Return the matrix of x, the array that keeps its memory, and whether x is one row alone."""
    a, name = array_of(x, what)
    if name not in _types:
        way = f": {what}.astype(np.float32)" if name in ("float64", "int64", "int32", "longdouble", "float128") else ""
        raise TypeError(f"{what}: found {name}, expected float32, float16 or bfloat16{way}")
    if not a.dtype.isnative:
        raise TypeError(f"{what}: found bytes in another order, expected this machine's: {what}.astype(np.float32)")
    if a.ndim not in (1, 2):
        way = f": {what}.reshape(-1, {a.shape[-1]})" if a.ndim > 2 else ""
        raise ValueError(f"{what}: found the shape {a.shape}, expected one context, or one context a row{way}")
    one = a.ndim == 1
    if dim is not None and a.shape[-1] != dim:
        raise ValueError(f"{what}: found the shape {a.shape}, expected {dim} numbers for a context, the dimension of the layer")
    if one:
        a = np.ascontiguousarray(a)
    elif a.shape[-1] > 1 and a.size and a.strides[-1] != a.itemsize:
        raise ValueError(f"{what}: found the shape {a.shape} with strides of {a.strides} bytes, expected the numbers of a row next to each other: np.ascontiguousarray({what})")
    rows = 1 if one else a.shape[0]
    stride = 0 if one or rows <= 1 else a.strides[0]
    if rows > 1 and stride == 0:  # a row that is broadcast
        a = np.ascontiguousarray(a)
        stride = a.strides[0]
    return Matrix(a.ctypes.data, rows, a.shape[-1], stride, _types[name]), a, one


def weights_of(w: Any, quantised: Optional[str]) -> "Tuple[Matrix, np.ndarray]":
    """Return the matrix of weights, and the array that keeps its memory."""
    if quantised is None:
        m, a, one = matrix_of(w, "W")
        if one:
            raise ValueError(f"W: found the shape {a.shape}, expected a matrix with one label a row")
        if m.rows > 1 and m.stride != a.shape[1] * a.itemsize:
            raise ValueError(f"W: found rows {m.stride} bytes apart, expected {a.shape[1] * a.itemsize}: np.ascontiguousarray(W), and keep it")
        return m, a
    if quantised.lower() not in QUANTISED:
        raise ValueError(f"quantised: found {quantised!r}, expected one of {', '.join(QUANTISED)}")
    number, elements, size = QUANTISED[quantised.lower()]
    a, name = array_of(w, "W")
    if name != "uint8" or a.ndim != 2 or not a.flags.c_contiguous or a.shape[1] % size != 0:
        raise ValueError(f"W: found {name} of the shape {a.shape}, expected uint8 in C order, labels x a multiple of {size} bytes, for {quantised}")
    return Matrix(a.ctypes.data, a.shape[0], a.shape[1] // size * elements, 0, number), a


def floats_of(x: Any, what: str, n: int) -> np.ndarray:
    """Return n numbers of float32, in place if they are."""
    a, name = array_of(x, what)
    if name != "float32" or a.shape != (n,) or not a.flags.c_contiguous:
        raise ValueError(f"{what}: found {name} of the shape {a.shape}, expected float32 of ({n},), next to each other")
    return a


def ids_of(x: Any, what: str) -> np.ndarray:
    """Return ids as int64, next to each other."""
    if isinstance(x, (set, frozenset)):
        x = sorted(x)
    a = np.asarray(x)
    if a.size == 0:
        return np.empty(0, np.int64)
    if a.ndim != 1 or a.dtype.kind not in "iu":
        raise TypeError(f"{what}: found {a.dtype} of the shape {a.shape}, expected ids of labels")
    if a.dtype == np.uint64 and a.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{what}: found {a.max()}, expected ids of labels")
    return np.ascontiguousarray(a, np.int64)


def labels_of(x: Any, what: str, labels: int, bits: bool = True) -> "Tuple[Labels, Optional[np.ndarray]]":
    """Return a set of labels, from ids or from a mask of bool, and the array that keeps its memory."""
    if x is None:
        return Labels(), None
    if not isinstance(x, (set, frozenset, list, tuple, range, dict)):
        x, _ = array_of(x, what)
        if x.dtype == np.bool_:
            if x.shape != (labels,):
                raise ValueError(f"{what}: found a mask of the shape {x.shape}, expected ({labels},)")
            if bits:
                packed = np.packbits(x, bitorder="little")
                return Labels(None, packed.size, packed.ctypes.data), packed
            x = np.flatnonzero(x)
    a = ids_of(x, what)
    # An empty list has an address, too: NULL is no set.
    return Labels(a.ctypes.data or ctypes.addressof(_somewhere), a.size, None), a


_somewhere = ctypes.c_int64()


def biases_of(x: Any) -> "Tuple[np.ndarray, np.ndarray]":
    """Return ascending ids and their biases, from a dict or from two arrays."""
    if isinstance(x, dict):
        ids, add = ids_of(list(x.keys()), "biases"), np.array(list(x.values()), np.float32)
    else:
        try:
            ids, add = x
        except (TypeError, ValueError):
            raise TypeError("biases: expected a dict of ids and numbers, or a pair of arrays") from None
        ids, add = ids_of(ids, "biases"), np.asarray(add, np.float32)
    if ids.shape != add.shape:
        raise ValueError(f"biases: found {ids.size} ids and numbers of the shape {add.shape}, expected one for each id")
    order = np.argsort(ids, kind="stable")
    return np.ascontiguousarray(ids[order]), np.ascontiguousarray(add[order])


def count_of(k: Any, what: str = "k", most: Optional[int] = None) -> int:
    """Return k as an int of at least 0, and at most most."""
    try:
        k = operator.index(k)
    except TypeError:
        raise TypeError(f"{what}: found {type(k).__name__}, expected an int") from None
    if k < 0 or most is not None and k > most:
        raise ValueError(f"{what}: found {k}, expected at least 0" + ("" if most is None else f", and at most {most}"))
    return int(k)


def int32_of(x: Any, what: str) -> int:
    return count_of(x, what, 2**31 - 1)


def path_of(path: Any, what: str) -> bytes:
    """Return a path as C has it."""
    found = os.fsencode(path)
    if b"\0" in found:
        raise ValueError(f"{what}: found a null character in {path!r}")
    return found
