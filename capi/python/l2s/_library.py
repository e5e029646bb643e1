"""libl2s.so by ctypes: its structs, its functions, and its errors as exceptions."""
from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, NoReturn, Optional

ABI = 1


class LayerError(ValueError):
    """An index was made for another layer."""


class TargetError(ValueError):
    """An index was made, and misses far too many labels."""


class Matrix(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("rows", c_size_t), ("dim", c_size_t), ("stride", ctypes.c_ssize_t), ("type", c_int32)]


class PreviewOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("coordinates", c_int32), ("k", c_int32), ("precision_1", c_double), ("precision_k", c_double),
                ("least_own", c_double), ("threads", c_int32), ("held_out", POINTER(Matrix))]


class ScreenOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("json", c_char_p), ("validation", POINTER(Matrix)), ("checkpoint", c_char_p), ("threads", c_int32),
                ("any_precision", c_int32)]


class PoolOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("budget", c_double), ("over_tail", c_int32), ("copies", c_int64)]


class Labels(ctypes.Structure):
    _fields_ = [("ids", c_void_p), ("count", c_size_t), ("bits", c_void_p)]


class Request(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("budget", c_double), ("within", c_double), ("temperature", c_double), ("exact", c_int32),
                ("log_sum", c_int32), ("exact_sum", c_int32), ("among", Labels), ("also", Labels), ("allowed", Labels), ("banned", Labels),
                ("bias_ids", c_void_p), ("biases", c_void_p), ("bias_count", c_size_t)]


class Estimate(ctypes.Structure):
    _fields_ = [("value", c_double), ("low", c_double), ("high", c_double)]


class Step(ctypes.Structure):
    _fields_ = [("budget", c_double), ("mean_scored", c_double), ("precision_1", Estimate), ("precision_k", Estimate), ("own", Estimate)]


class Stats(ctypes.Structure):
    names = ("queries", "looked", "scored", "exact", "fallback", "far")
    _fields_ = [(name, c_uint64) for name in names]


Progress = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_double)

# The arguments of the functions that return a status. A handle is a number, and a handle to write is
# the address of one.
_handle, _to_handle, _to_size = c_uint64, POINTER(c_uint64), POINTER(c_size_t)
_functions: "dict[str, list[Any]]" = {
    "l2s_layer_open": [c_char_p, c_char_p, c_int32, _to_handle],
    "l2s_layer_new": [POINTER(Matrix), c_void_p, c_double, c_double, _to_handle],
    "l2s_layer_shape": [_handle, _to_size, _to_size],
    "l2s_layer_info": [_handle, c_char_p, c_size_t, _to_size],
    "l2s_layer_set_threads": [_handle, c_int32],
    "l2s_layer_close": [_handle],
    "l2s_preview_make": [_handle, POINTER(Matrix), POINTER(PreviewOptions), Progress, c_void_p, _to_handle],
    "l2s_screen_train": [_handle, POINTER(Matrix), POINTER(ScreenOptions), Progress, c_void_p, _to_handle],
    "l2s_index_load": [c_char_p, _to_handle],
    "l2s_index_save": [_handle, c_char_p],
    "l2s_index_info": [_handle, c_char_p, c_size_t, _to_size],
    "l2s_index_steps": [_handle, POINTER(Step), c_size_t, _to_size, _to_size],
    "l2s_index_close": [_handle],
    "l2s_pool_new": [_handle, _handle, POINTER(PoolOptions), _to_handle],
    "l2s_search": [_handle, POINTER(Matrix), c_size_t, POINTER(Request), c_void_p, c_void_p, c_void_p],
    "l2s_logits": [_handle, POINTER(Matrix), c_void_p, c_size_t, c_void_p],
    "l2s_log_probs": [_handle, POINTER(Matrix), c_void_p, c_double, c_void_p],
    "l2s_log_sums": [_handle, POINTER(Matrix), c_double, c_double, c_void_p, c_void_p, c_void_p],
    "l2s_pool_stats": [_handle, POINTER(Stats)],
    "l2s_pool_close": [_handle],
}

_lock = threading.Lock()
_loaded: Any = None


def library() -> Any:
    """Return the library, which is loaded at its first use: a process that forks before may use it.

    ctypes releases the interpreter's lock in each call, so that threads search at the same time.
    """
    global _loaded
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is None:
            path = os.environ.get("L2S_LIBRARY") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "libl2s.so")
            found: Any = ctypes.CDLL(path, use_errno=True)
            found.l2s_abi.restype = c_uint32
            if found.l2s_abi() != ABI:
                raise ImportError(f"{path}: found the interface {found.l2s_abi()}, expected {ABI}: install the package l2s anew")
            for name, arguments in _functions.items():
                function = getattr(found, name)
                function.argtypes, function.restype = arguments, c_int32
            found.l2s_version.restype = found.l2s_error.restype = c_char_p
            # Called for each context: without argtypes, which take half a microsecond, it gets ctypes' objects
            # alone. And without errno.
            fast = ctypes.CDLL(path)
            fast.l2s_topk.restype = c_int32
            found.topk = fast.l2s_topk
            _loaded = found
    return _loaded


IO, CANCELLED = 8, 10
_exceptions: "dict[int, type[Exception]]" = {
    1: ValueError, 2: ValueError, 3: ValueError, 4: ValueError, 5: LayerError, 6: ValueError, 7: TargetError, 9: ValueError,
    10: RuntimeError, 11: RuntimeError, 12: RuntimeError,
}


def fail(status: int, before: str = "") -> NoReturn:
    """Raise the exception of a status of this thread's last call."""
    number = ctypes.get_errno()
    text = before + library().l2s_error().decode("utf-8", "replace").removeprefix("l2s: ")
    if status == IO:
        raise OSError(number, text)
    raise _exceptions.get(status, RuntimeError)(text)


def check(status: int, before: str = "") -> None:
    if status != 0:
        fail(status, before)


def text_of(function: Any, handle: int) -> str:
    """Return the text that a function writes into a buffer."""
    length = c_size_t()
    check(function(handle, None, 0, ctypes.byref(length)))
    buffer = ctypes.create_string_buffer(length.value + 1)
    check(function(handle, buffer, len(buffer), ctypes.byref(length)))
    return buffer.value.decode("utf-8")


def version() -> str:
    """Return the version of libl2s.so."""
    found: Optional[bytes] = library().l2s_version()
    return (found or b"").decode()
