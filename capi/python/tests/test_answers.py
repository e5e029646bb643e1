"""Answers are numpy's."""
import numpy as np
import pytest
from conftest import DIM, LABELS, best

import l2s

K = 5


def test_one_context(data, layer):
    for h in data.H[:20]:
        for k in (1, K, 200, K):  # each k twice: the first call makes the memory of the next ones
            ids, logits = layer.topk(h, k)
            want = best(data.logits(h), k)
            assert ids.dtype == np.int64 and logits.dtype == np.float64
            assert ids.shape == logits.shape == (k,)
            assert (ids == want).all()
            np.testing.assert_allclose(logits, data.logits(h)[want], atol=1e-9)


def test_a_batch_is_its_contexts(data, layer, index):
    H = data.H[:300]  # more than one part
    for searches in layer, index:
        ids, logits = searches.topk(H, K)
        assert ids.shape == logits.shape == (300, K)
        for h, i, x in zip(H, ids, logits):
            one = searches.topk(h, K)
            assert (one[0] == i).all() and (one[1] == x).all()
    assert (layer.topk(H, K)[0] == best(data.logits(H), K)).all()


def test_results_are_arrays_of_their_own(data, layer):
    first = layer.topk(data.H[0], K)
    kept = first[0].copy(), first[1].copy()
    layer.topk(data.H[1], K)
    assert (first[0] == kept[0]).all() and (first[1] == kept[1]).all()
    first[0][0] = 7  # and may be written


def test_memory_of_contexts(data, layer):
    H = data.H[:30]
    want = layer.topk(H, K)
    wide = np.zeros((30, 2 * DIM), np.float32)
    wide[:, :DIM] = H
    readonly = H.copy()
    readonly.flags.writeable = False
    for same in (wide[:, :DIM], readonly, np.repeat(H, 2, axis=0)[::2], H[::-1][::-1]):
        got = layer.topk(same, K)
        assert (got[0] == want[0]).all() and (got[1] == want[1]).all()
    backwards = layer.topk(H[::-1], K)
    assert (backwards[0] == want[0][::-1]).all()
    for one in readonly[0], np.repeat(H[0], 2)[::2], H[:1].T[:, 0]:
        for k in (K, 7, 7):  # 7: without and with the memory of an earlier call
            assert (layer.topk(one, k)[1][:K] == want[1][0]).all()
    same_row = layer.topk(np.broadcast_to(H[0], (4, DIM)), K)
    assert (same_row[0] == want[0][0]).all()
    empty = layer.topk(H[:0], K)
    assert empty[0].shape == (0, K)


def test_types_of_contexts(data, layer):
    h = data.H[:10].astype(np.float16)
    a, b = layer.topk(h, K), layer.topk(h.astype(np.float32), K)
    assert (a[0] == b[0]).all() and (a[1] == b[1]).all()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    h = data.H[:10].astype(ml_dtypes.bfloat16)
    a, b = layer.topk(h, K), layer.topk(h.astype(np.float32), K)
    assert (a[0] == b[0]).all() and (a[1] == b[1]).all()


class Interface:
    """An array of another library, which tells numpy its memory."""

    def __init__(self, a):
        self.a = a

    @property
    def __array_interface__(self):
        return self.a.__array_interface__


class DLPack:
    def __init__(self, a):
        self.a = a

    def __dlpack__(self, **options):
        return self.a.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()


@pytest.mark.parametrize("Other", [Interface, DLPack])
def test_arrays_of_other_libraries(data, layer, Other):
    if Other is DLPack and not hasattr(np, "from_dlpack"):
        pytest.skip("found a numpy without dlpack")
    want = layer.topk(data.H, K)
    for searches in layer, l2s.Layer(Other(data.W), Other(data.b)):
        got = searches.topk(Other(data.H), K)
        assert (got[0] == want[0]).all() and (got[1] == want[1]).all()
    assert (layer.topk(Other(data.H[0]), K)[0] == want[0][0]).all()


def test_types_of_weights(data):
    half = data.W.astype(np.float16)
    a, b = l2s.Layer(half, data.b), l2s.Layer(half.astype(np.float32), data.b)
    assert (a.topk(data.H, K)[1] == b.topk(data.H, K)[1]).all()
    assert a.info["type"] == "float16"
    # Q8_0 of ggml: a scale of float16 and 32 numbers of int8.
    r = np.random.default_rng(2)
    scales, numbers = r.uniform(0.01, 0.02, (LABELS, 1)).astype(np.float16), r.integers(-127, 128, (LABELS, 32), np.int8)
    blocks = np.concatenate([scales.view(np.uint8), numbers.view(np.uint8)], axis=1)
    a = l2s.Layer(blocks, quantised="q8_0")
    b = l2s.Layer(scales.astype(np.float32) * numbers.astype(np.float32))
    assert a.shape == (LABELS, 32)
    assert (a.topk(data.H, K)[0] == b.topk(data.H, K)[0]).all() and (a.topk(data.H, K)[1] == b.topk(data.H, K)[1]).all()


def test_scale_and_cap(data):
    layer = l2s.Layer(data.W, data.b, scale=0.5, soft_cap=3)
    ids, logits = layer.topk(data.H[0], K)
    np.testing.assert_allclose(logits, 3 * np.tanh(data.logits(data.H[0])[ids] / 2 / 3), atol=1e-9)


def test_edits(data, layer):
    H = data.H[:5]
    r = np.random.default_rng(3)
    mask = r.random(LABELS) < 0.1
    full = data.logits(H)
    want = best(np.where(mask, full, -np.inf), K)
    for allowed in (mask, np.flatnonzero(mask), list(np.flatnonzero(mask)), set(np.flatnonzero(mask).tolist())):
        assert (layer.search(H, K, allowed=allowed).ids == want).all()
        assert (layer.search(H, K, among=allowed).ids == want).all()
    assert (layer.search(H, K, banned=mask).ids == best(np.where(mask, -np.inf, full), K)).all()
    biased = full.copy()
    biased[:, [4, 99]] += [50, 60]
    a = layer.search(H, K, biases={99: 60, 4: 50})
    assert (a.ids == best(biased, K)).all() and (a.ids[:, 0] == 99).all()
    assert (layer.search(H, K, biases=([99, 4], [60, 50])).ids == a.ids).all()
    few = layer.search(H, K, allowed=[3, 5])
    assert (few.count == 2).all() and (few.ids[:, 2:] == -1).all() and (few.logits[:, 2:] == -np.inf).all()
    assert layer.search(H[0], K, allowed=[]).count == 0
    assert layer.search(H[0], K, among=[]).count == 0
    top = np.sort(full[0])[::-1]
    assert layer.search(H[0], 100, within=top[0] - top[2] + 1e-6).count == 3


def test_sums(data, layer, index):
    H = data.H[:5]
    full = data.logits(H)
    for t in (1, 0.7):
        want = np.log(np.exp(full / t).sum(axis=1))
        a = layer.search(H, K, log_probs=True, exact_sum=True, temperature=t)
        np.testing.assert_allclose(a.log_sum, want, atol=1e-9)
        np.testing.assert_allclose(a.log_probs, np.take_along_axis(full, a.ids, 1) / t - want[:, None], atol=1e-9)
        np.testing.assert_allclose(layer.search(H, 0, log_sum=True, exact_sum=True, temperature=t).log_sum, want, atol=1e-9)
        np.testing.assert_allclose(layer.log_probs(H, a.ids[:, 1], t), a.log_probs[:, 1], atol=1e-9)
        np.testing.assert_allclose(layer.log_sum(H, t).value, want, atol=1e-9)
        np.testing.assert_allclose(index.search(H, K, log_probs=True, temperature=t).log_sum, want, atol=0.05)
    one = layer.search(H[0], K, log_probs=True, exact_sum=True)
    assert isinstance(one.log_sum, float) and one.log_probs.shape == (K,) and isinstance(one.exact, bool) and one.exact
    assert layer.search(H[0], K).log_sum is None and layer.search(H[0], K).log_probs is None
    assert isinstance(layer.log_probs(H[0], 3), float)
    np.testing.assert_allclose(layer.logits(H, [7, 3]), full[:, [7, 3]], atol=1e-9)
    assert layer.logits(H[0], [7, 3]).shape == (2,)


def test_a_preview(data, layer, index, tmp_path):
    exact = layer.topk(data.H, K)
    found = index.topk(data.H, K)
    assert (found[0][:, 0] == exact[0][:, 0]).mean() > 0.99
    same = found[0] == exact[0]
    assert (found[1][same] == exact[1][same]).all()
    assert (index.search(data.H, K, exact=True).ids == exact[0]).all()
    assert index.kind == "preview" and index.labels == LABELS and index.dim == DIM
    steps = index.steps
    assert len(steps) >= 1 and index.step in steps and [s.budget for s in steps] == sorted(s.budget for s in steps)
    assert index.step.precision_1.value > 0.99 and 0 < index.step.own.value <= 1
    index.save(tmp_path / "m.l2p")
    again = l2s.load(tmp_path / "m.l2p", layer)
    got = again.topk(data.H, K)
    assert (got[0] == found[0]).all() and (got[1] == found[1]).all()
    fast = l2s.load(tmp_path / "m.l2p", layer, budget=steps[0].budget)
    assert (fast.topk(data.H, K)[0] == index.search(data.H, K, budget=steps[0].budget).ids).all()
    assert again.stats()["queries"] == len(data.H)
    assert "preview, 8000 x 32, P@1" in repr(index) and "8000 x 32 float32" in repr(layer)


def test_a_screen(data, layer, tmp_path):
    seen = []
    index = l2s.train_screen(layer, data.states, clusters=20, budget=2000, progress=lambda stage, done: seen.append(stage))
    assert index.kind == "screen" and index.info["record"]["options"]["clusters"] == 20
    budgets = [s.budget for s in index.steps]
    assert len(budgets) > 1 and budgets == sorted(set(budgets)) and index.step in index.steps
    a = index.search(data.H, K, log_probs=True)
    want = np.log(np.exp(data.logits(data.H)).sum(axis=1))
    assert np.median(np.abs(a.log_sum - want)) < 0.1  # such data have no clusters
    s = index.log_sum(data.H[0])
    assert s.low <= s.value <= s.high
    bare = l2s.train_screen(layer, data.states, clusters=20, budget=2000, tail=None, progress=False)
    with pytest.raises(ValueError, match="without a tail"):
        bare.search(data.H[0], K, log_probs=True)
    with pytest.raises(ValueError, match="without a tail"):
        bare.log_sum(data.H[0])
    np.testing.assert_allclose(bare.search(data.H[0], K, log_probs=True, exact=True, exact_sum=True).log_sum, want[0], atol=1e-9)
    assert "P@1" in repr(index) and "precision not measured" in repr(l2s.train_screen(layer, data.states[:2], progress=False))
    with pytest.raises(ValueError, match="cluster"):
        l2s.train_screen(layer, data.states, cluster=20, progress=False)


def test_a_file(data, layer, tmp_path):
    np.save(tmp_path / "W.npy", data.W)
    np.save(tmp_path / "b.npy", data.b)
    with l2s.open(tmp_path / "W.npy", bias=str(tmp_path / "b.npy"), threads=2) as opened:
        assert opened.shape == (LABELS, DIM) and opened.info["mapped"]
        assert (opened.topk(data.H, K)[1] == layer.topk(data.H, K)[1]).all()
    with pytest.raises(ValueError, match="closed"):
        opened.topk(data.H, K)


def test_torch(data, layer):
    torch = pytest.importorskip("torch")
    want = layer.topk(data.H, K)
    H = torch.from_numpy(data.H)
    assert (layer.topk(H, K)[1] == want[1]).all()
    assert (layer.topk(H[0], K)[1] == want[1][0]).all()
    assert (layer.topk(H.clone().requires_grad_(), K)[1] == want[1]).all()
    head = torch.nn.Linear(DIM, LABELS)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(data.W))
        head.bias.copy_(torch.from_numpy(data.b))
    of = l2s.Layer(head.weight, head.bias)
    assert (of.topk(H, K)[1] == want[1]).all()
    half = head.to(torch.bfloat16)
    of = l2s.Layer(half.weight)
    assert of.info["type"] == "bfloat16"
    wide = l2s.Layer(half.weight.float().detach().numpy())
    assert (of.topk(H.to(torch.bfloat16), K)[1] == wide.topk(H.to(torch.bfloat16).float(), K)[1]).all()
    with pytest.raises(ValueError, match="on meta"):
        layer.topk(torch.empty(DIM, device="meta"), K)
