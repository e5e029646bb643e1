"""Every mistake is an exception that names what was found and what was expected."""
import gc
import pickle
import weakref

import numpy as np
import pytest
from conftest import DIM, LABELS

import l2s


def calls(layer):
    h = np.ones(DIM, np.float32)
    W = np.ones((10, 4), np.float32)
    inf = h.copy()
    inf[3] = np.inf
    return {
        "float64": (TypeError, r"H: found float64, expected float32.*astype", lambda: layer.topk(h.astype(float), 5)),
        "ints": (TypeError, "H: found int64", lambda: layer.topk(np.ones(DIM, int), 5)),
        "a list": (TypeError, r"H: found list, expected an array.*: np.asarray\(H, np.float32\)", lambda: layer.topk(list(h), 5)),
        "None": (TypeError, "H: found NoneType", lambda: layer.topk(None, 5)),
        "objects": (TypeError, "H: found object", lambda: layer.topk(np.array([None] * DIM), 5)),
        "big-endian": (TypeError, "another order", lambda: layer.topk(h.astype(">f4"), 5)),
        "dimension": (ValueError, r"H: found the shape \(31,\), expected 32", lambda: layer.topk(h[:31], 5)),
        "dimension of rows": (ValueError, r"H: found the shape \(2, 31\), expected 32", lambda: layer.topk(np.ones((2, 31), np.float32), 5)),
        "three axes": (ValueError, r"H: found the shape \(1, 1, 32\).*: H.reshape\(-1, 32\)", lambda: layer.topk(h[None, None], 5)),
        "a number": (ValueError, r"H: found the shape \(\)", lambda: layer.topk(np.float32(1), 5)),
        "transposed": (ValueError, "next to each other: np.ascontiguousarray", lambda: layer.topk(np.ones((DIM, 7), np.float32).T, 5)),
        "gaps": (ValueError, "next to each other", lambda: layer.topk(np.ones((3, 2 * DIM), np.float32)[:, ::2], 5)),
        "NaN": (ValueError, "NaN", lambda: layer.topk(h * np.nan, 5)),
        "Inf": (ValueError, "Inf", lambda: layer.topk(inf, 5)),
        "NaN in a part": (ValueError, "from row 256 on: .*NaN", lambda: layer.topk(np.repeat(h[None], 300, 0) * np.where(np.arange(300) == 280, np.nan, 1).astype(np.float32)[:, None], 5)),
        "k above the labels": (ValueError, f"k: found {LABELS + 1}, expected at most {LABELS}", lambda: layer.topk(h, LABELS + 1)),
        "huge k": (ValueError, "k: found", lambda: layer.topk(h, 1 << 70)),
        "negative k": (ValueError, "k: found -1", lambda: layer.topk(h, -1)),
        "k no int": (TypeError, "k: found float, expected an int", lambda: layer.topk(h, 5.5)),
        "k no int after the same int": (TypeError, "k: found float, expected an int", lambda: [layer.topk(h, k) for k in (5, 5.0)]),
        "allowed outside": (ValueError, f"allowed.1.: found {LABELS}", lambda: layer.search(h, 5, allowed=[0, LABELS])),
        "banned below 0": (ValueError, "banned.0.: found -1", lambda: layer.search(h, 5, banned=[-1])),
        "among outside": (ValueError, str(LABELS), lambda: layer.search(h, 5, among=[LABELS])),
        "a mask of another layer": (ValueError, r"allowed: found a mask of the shape \(7,\)", lambda: layer.search(h, 5, allowed=np.ones(7, bool))),
        "ids of floats": (TypeError, "allowed: found float64", lambda: layer.search(h, 5, allowed=[1.5])),
        "biases twice": (ValueError, "bias", lambda: layer.search(h, 5, biases=([4, 4], [1, 1]))),
        "biases NaN": (ValueError, "bias", lambda: layer.search(h, 5, biases={4: np.nan})),
        "biases of other lengths": (ValueError, "one for each id", lambda: layer.search(h, 5, biases=([4, 5], [1]))),
        "budget": (ValueError, "budget", lambda: layer.search(h, 5, budget=-1)),
        "within": (ValueError, "(?i)within", lambda: layer.search(h, 5, within=np.nan)),
        "temperature": (ValueError, "temperature", lambda: layer.search(h, 5, log_sum=True, temperature=-1)),
        "temperature 0": (ValueError, "temperature: found 0", lambda: layer.search(h, 5, log_probs=True, temperature=0)),
        "threads no int": (TypeError, "threads: found str", lambda: layer.set_threads("2")),
        "too many coordinates": (ValueError, "coordinates", lambda: l2s.make_preview(layer, np.ones((1000, DIM), np.float32), coordinates=1 << 40)),
        "a null character": (ValueError, "source: found a null character", lambda: l2s.open("a\0b")),
        "logits of no label": (ValueError, str(LABELS), lambda: layer.logits(h, [LABELS])),
        "one id for two contexts": (ValueError, "one for each of 2", lambda: layer.log_probs(np.stack([h, h]), [1])),
        "weights of NaN": (ValueError, "NaN", lambda: l2s.Layer(W * np.nan)),
        "weights of float64": (TypeError, "W: found float64", lambda: l2s.Layer(W.astype(float))),
        "weights transposed": (ValueError, "next to each other", lambda: l2s.Layer(np.ones((4, 10), np.float32).T)),
        "weights with gaps": (ValueError, "rows 32 bytes apart, expected 16", lambda: l2s.Layer(W[::2])),
        "one row": (ValueError, "one label a row", lambda: l2s.Layer(W[0])),
        "no row": (ValueError, "rows: found none", lambda: l2s.Layer(W[:0])),
        "bias of another length": (ValueError, r"b: found float32 of the shape \(9,\)", lambda: l2s.Layer(W, np.ones(9, np.float32))),
        "bias of float64": (ValueError, "b: found float64", lambda: l2s.Layer(W, np.ones(10))),
        "scale": (ValueError, "scale", lambda: l2s.Layer(W, scale=0)),
        "quantised": (ValueError, "expected one of q4_0", lambda: l2s.Layer(W, quantised="q9")),
        "quantised floats": (ValueError, "expected uint8", lambda: l2s.Layer(W, quantised="q8_0")),
        "threads": (ValueError, "threads: found 0", lambda: layer.set_threads(0)),
        "no file": (FileNotFoundError, "no/such", lambda: l2s.open("/no/such/file.npy")),
        "no index": (FileNotFoundError, "no/such", lambda: l2s.load("/no/such/m.l2p", layer)),
        "no states": (ValueError, "64", lambda: l2s.make_preview(layer, np.ones((10, DIM), np.float32), progress=False)),
        "states of NaN": (ValueError, "NaN", lambda: l2s.make_preview(layer, np.full((1000, DIM), np.nan, np.float32), progress=False)),
        "states of another layer": (ValueError, "expected 32", lambda: l2s.make_preview(layer, np.ones((1000, 8), np.float32))),
        "an array for a layer": (TypeError, r"layer: found ndarray, expected an l2s.Layer, from l2s.Layer\(W, b\)", lambda: l2s.make_preview(W, W)),
        "load the wrong way round": (TypeError, "layer: found str, expected an l2s.Layer", lambda: l2s.load(layer, "m.l2p")),
        "pickle": (TypeError, "pickle", lambda: pickle.dumps(layer)),
    }


@pytest.mark.parametrize("name", sorted(calls(None)))
def test_mistakes(layer, name):
    error, text, call = calls(layer)[name]
    with pytest.raises(error, match=text):
        call()
    assert layer.topk(np.ones(DIM, np.float32), 1)[0].shape == (1,)  # it goes on


def test_an_index_of_another_layer(data, index, tmp_path):
    index.save(tmp_path / "m.l2p")
    with pytest.raises(l2s.LayerError):
        l2s.load(tmp_path / "m.l2p", l2s.Layer(data.W[:, ::-1].copy(), data.b))
    assert issubclass(l2s.LayerError, ValueError)
    (tmp_path / "bad.l2p").write_bytes((tmp_path / "m.l2p").read_bytes()[:-100])
    with pytest.raises(ValueError, match="bad.l2p"):
        l2s.load(tmp_path / "bad.l2p", index.layer)


def test_flat_states_have_no_preview():
    r = np.random.default_rng(4)
    layer = l2s.Layer(r.standard_normal((20000, 64)).astype(np.float32) * 1e-3)
    with pytest.raises(l2s.TargetError):
        l2s.make_preview(layer, r.standard_normal((2000, 64)).astype(np.float32), coordinates=16, progress=False)


def test_closed(data, layer, index, tmp_path):
    index.save(tmp_path / "m.l2p")
    own = l2s.Layer(data.W, data.b)
    of = l2s.load(tmp_path / "m.l2p", own)
    own.close()
    own.close()
    for closed in own, of:
        with pytest.raises(ValueError, match="closed"):
            closed.topk(data.H[0], 5)
        with pytest.raises(ValueError, match="closed"):
            closed.search(data.H, 5)
    for call in (lambda: own.set_threads(2), lambda: own.info, lambda: own.stats()):
        with pytest.raises(ValueError, match="closed"):
            call()
    with pytest.raises(ValueError, match="closed"):
        l2s.load(tmp_path / "m.l2p", own)
    with pytest.raises(ValueError, match="closed"):
        l2s.make_preview(own, data.states)
    of.close()
    of.close()
    with pytest.raises(ValueError, match="closed"):
        of.topk(data.H[0], 5)
    for call in (lambda: of.save(tmp_path / "again.l2p"), lambda: of.steps, lambda: of.stats()):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert repr(of) == "l2s.Index(closed)" and repr(own) == "l2s.Layer(closed)"


def test_closed_by_another_thread_in_the_middle_of_a_call(data):
    for ask in (lambda pool, h: pool.search(h, 5, None), lambda pool, h: pool.logits(h, [1]), lambda pool, h: pool.stats()):
        layer = l2s.Layer(data.W, data.b)
        pool = layer._pool  # as a call has it when the other thread comes
        layer.close()
        with pytest.raises(ValueError, match="closed"):
            ask(pool, data.H[0])
    layer = l2s.Layer(data.W, data.b)
    layer.topk(data.H[0], 5)

    class Closing:
        """The number of labels, and the moment between the checks of a call and its search."""

        def __eq__(self, shape):
            layer.close()
            return shape == (DIM,)

    layer._pool.one = Closing()
    with pytest.raises(ValueError, match="closed"):
        layer.topk(data.H[0], 5)


def test_arrays_live_as_long_as_their_layer(data):
    w = data.W.copy()
    of = weakref.ref(w)
    layer = l2s.Layer(w)
    want = layer.topk(data.H[0], 5)[1]
    del w
    gc.collect()
    assert of() is not None
    junk = [np.full_like(data.W, 9) for _ in range(4)]  # which would have its memory
    assert (layer.topk(data.H[0], 5)[1] == want).all()
    del layer, junk
    gc.collect()
    assert of() is None


def test_what_an_index_is_made_of_lives_as_long(data):
    index = l2s.make_preview(l2s.Layer(data.W.copy(), data.b.copy()), data.states, progress=False)
    gc.collect()
    assert (index.search(data.H, 5, exact=True).ids[:, 0] == data.logits(data.H).argmax(1)).all()
