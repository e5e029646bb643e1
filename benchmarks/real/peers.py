"""Libraries of nearest neighbours on a softmax layer, each by its own Python package, compared with l2s.

    peers.py made FOLDER [--labels 60000] [--dim 256]
    peers.py dump FOLDER --head model.gguf --states train.npy --contexts test.npy
    peers.py build FOLDER [--only NAME,...]
    peers.py measure FOLDER [--most 500] [--only NAME,...]

made and dump put a layer and its states into FOLDER: rows.npy (labels x dim, float32), states.npy, of which indexes may
learn, and contexts.npy, which ask. made draws clusters of rows, and states near rows; dump has the head of a model by the
program of this folder (REAL names it), and l2s searches the model's own file. build makes an index with each library and
keeps it. measure prints a row for each setting: the share of the exact best label (P@1) and of the exact best five (P@5)
that is found, the median and the 99th percentile of the time per query in microseconds, one query at a time, the time per
query in batches of 64, the seconds that building took, and the megabytes of memory that loading and searching take besides
the rows. Building has all CPUs, all else one thread, and each library a process of its own. Times are of the CPU, of all
threads together, because other work disturbs them less; that of a query is the least of up to three passes over all of
them. A library that is missing, or that refuses this CPU, is left out with a message.
"""

import argparse
import importlib
import os
import subprocess
import sys
import time

import numpy as np

K, BATCH, PASSES, MOST_SECONDS = 5, 64, 3, 60


def threads_of_one():
    """Sets the number of threads of all that reads it at its start."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def best_rows(w, h, ids, k=K):
    """The k best of each row of ids, by the products of float32."""
    x = np.einsum("nmd,nd->nm", w[ids], h)
    return np.take_along_axis(ids, np.argsort(-x, axis=1)[:, :k], 1)


# A library has the name of its module, which becomes lib; build(w, folder, path), which leaves a file or a folder at path;
# load(w, folder, path); and settings(), which yields the name of a setting with its search of n contexts, n x dim: n x 5
# ids. One query is n = 1.


class L2S:
    """A preview, made from states, at each of its budgets."""

    module = "l2s"

    def layer(self, w, folder):
        return self.lib.open(os.path.join(folder, "head")) if os.path.exists(os.path.join(folder, "head")) else self.lib.Layer(w)

    def build(self, w, folder, path):
        self.lib.make_preview(self.layer(w, folder), np.load(os.path.join(folder, "states.npy")), progress=False).save(path)

    def load(self, w, folder, path):
        self.index = self.lib.load(path, self.layer(w, folder))

    def settings(self):
        steps, normal = self.index.steps, self.index.step
        for s in steps:
            name = f"budget {s.budget:g}" + (", the default" if s == normal else "")
            yield name, lambda h: self.index.search(h, K, budget=s.budget).ids


class L2SExact(L2S):
    def build(self, w, folder, path):
        open(path, "w").close()

    def load(self, w, folder, path):
        self.searches = self.layer(w, folder)

    def settings(self):
        yield "", lambda h: self.searches.topk(h, K)[0]


class Torch:
    """The whole product, and the best of it."""

    module = "torch"

    def build(self, w, folder, path):
        open(path, "w").close()

    def load(self, w, folder, path):
        self.lib.set_num_threads(1)
        self.w = self.lib.from_numpy(w)

    def settings(self):
        t = self.lib
        yield "product and topk", lambda h: t.topk(t.mm(t.from_numpy(h), self.w.T), K)[1].numpy()


class Faiss:
    """An index of faiss by inner product, from a description of its factory, which may have half the dimension."""

    module = "faiss"

    def __init__(self, description, efs=None, probes=None, refine=0):
        self.description, self.efs, self.probes, self.refine = description, efs, probes, refine

    def build(self, w, folder, path):
        self.lib.omp_set_num_threads(os.cpu_count())
        index = self.lib.index_factory(w.shape[1], self.description.format(half=w.shape[1] // 2), self.lib.METRIC_INNER_PRODUCT)
        if self.efs:
            index.hnsw.efConstruction = 40
        rng = np.random.default_rng(1)
        index.train(w[rng.choice(len(w), min(len(w), 40_000), replace=False)])
        index.add(w)
        self.lib.write_index(index, path)

    def load(self, w, folder, path):
        self.lib.omp_set_num_threads(1)
        self.index = self.lib.read_index(path)
        # The float32 rows for a refinement are not of the index: the head is there anyway.
        self.top = self.lib.IndexRefineFlat(self.index, self.lib.swig_ptr(w)) if self.refine else self.index

    def settings(self):
        if self.efs:
            for ef in self.efs:
                self.index.hnsw.efSearch = ef
                yield f"ef {ef}", lambda h: self.top.search(h, K)[1]
            return
        inner = self.index
        for probes in self.probes:
            inner.nprobe = probes
            if not self.refine:
                yield f"{probes} of {inner.nlist} lists", lambda h: self.top.search(h, K)[1]
                continue
            for factor in self.refine:
                self.top.k_factor = factor
                yield f"{probes} of {inner.nlist} lists, {int(factor * K)} refined", lambda h: self.top.search(h, K)[1]


class Hnswlib:
    module = "hnswlib"
    efs = (50, 100, 200, 400, 800)

    def build(self, w, folder, path):
        index = self.lib.Index(space="ip", dim=w.shape[1])
        index.init_index(max_elements=len(w), M=16, ef_construction=100)
        index.add_items(w, num_threads=os.cpu_count())
        index.save_index(path)

    def load(self, w, folder, path):
        self.index = self.lib.Index(space="ip", dim=w.shape[1])
        self.index.load_index(path)
        self.index.set_num_threads(1)

    def settings(self):
        for ef in self.efs:
            self.index.set_ef(ef)
            yield f"M 16, ef {ef}", lambda h: self.index.knn_query(h, k=K, num_threads=1)[0].astype(np.int64)


class Usearch:
    module = "usearch.index"
    efs = (64, 128, 256, 512)

    def build(self, w, folder, path):
        index = self.lib.Index(ndim=w.shape[1], metric="ip", dtype="i8", connectivity=16, expansion_add=128)
        # Its codes of 8 bits are for values of -1 to 1.
        index.add(np.arange(len(w)), w / np.abs(w).max(), threads=os.cpu_count())
        index.save(path)

    def load(self, w, folder, path):
        self.index, self.rows = self.lib.Index.restore(path), w

    def settings(self):
        for ef in self.efs:
            self.index.expansion_search = ef
            yield f"i8, ef {ef}, 50 refined", self.refined

    def refined(self, h):
        found = self.index.search(h / np.abs(h).max(axis=1, keepdims=True), 50, threads=1).keys
        return best_rows(self.rows, h, np.atleast_2d(found).astype(np.int64))


class ScaNN:
    module = "scann"
    leaves = (20, 50, 100, 200)

    def build(self, w, folder, path):
        s = self.lib.scann_ops_pybind.builder(w, K, "dot_product").tree(num_leaves=1000, num_leaves_to_search=50, training_sample_size=100_000)
        s = s.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(200).build()
        os.makedirs(path, exist_ok=True)
        s.serialize(path)

    def load(self, w, folder, path):
        self.index = self.lib.scann_ops_pybind.load_searcher(path)

    def settings(self):
        for leaves in self.leaves:
            how = {"final_num_neighbors": K, "pre_reorder_num_neighbors": 200, "leaves_to_search": leaves}
            yield f"{leaves} of 1000 leaves, 200 refined", lambda h: self.index.search_batched(h, **how)[0] if len(h) > 1 else self.index.search(h[0], **how)[0][None]


class SVS:
    """A Vamana graph over LeanVec codes."""

    module = "svs"
    windows = (10, 20, 50, 100, 200)

    def build(self, w, folder, path):
        svs = self.lib
        os.makedirs(path, exist_ok=True)
        svs.write_vecs(w, path + "/rows.fvecs")
        loader = svs.VectorDataLoader(path + "/rows.fvecs", svs.DataType.float32, w.shape[1])
        data = svs.LeanVecLoader(loader, w.shape[1] // 4, primary_kind=svs.LeanVecKind.lvq8, secondary_kind=svs.LeanVecKind.lvq8)
        p = svs.VamanaBuildParameters(alpha=0.95, graph_max_degree=64, window_size=100)
        svs.Vamana.build(p, data, svs.DistanceType.MIP, num_threads=os.cpu_count()).save(path + "/config", path + "/graph", path + "/data")
        os.remove(path + "/rows.fvecs")

    def load(self, w, folder, path):
        svs = self.lib
        self.index = svs.Vamana(path + "/config", path + "/graph", svs.LeanVecLoader(path + "/data"), svs.DistanceType.MIP, num_threads=1)

    def settings(self):
        for window in self.windows:
            self.index.search_window_size = window
            yield f"LeanVec, window {window}", lambda h: self.index.search(h, K)[0].astype(np.int64)


PEERS = {
    "l2s preview": L2S(),
    "l2s exact": L2SExact(),
    "torch": Torch(),
    "hnswlib": Hnswlib(),
    "usearch i8": Usearch(),
    "ScaNN": ScaNN(),
    "faiss PQ fast scan": Faiss("IVF1024,PQ{half}x4fs", probes=(16, 64, 256), refine=(20, 100)),
    "faiss IVF1024": Faiss("IVF1024,Flat", probes=(4, 16, 64, 128)),
    "faiss HNSW32": Faiss("HNSW32", efs=(64, 128, 256, 512)),
    "SVS": SVS(),
}


def made(folder, labels, dim, states=6000):
    """A layer of clusters: a row is the centre of its cluster and as much noise, with a length between 1 and 2; a state is
    near the row of a label, as frequent as words of a text."""
    r = np.random.default_rng(1)
    centres = r.standard_normal((max(labels // 100, 1), dim))
    w = centres[r.integers(0, len(centres), labels)] + r.standard_normal((labels, dim))
    w *= (r.uniform(1, 2, labels) / np.linalg.norm(w, axis=1))[:, None]
    share = 1 / np.arange(10, labels + 10)
    near = w[r.permutation(labels)[r.choice(labels, states + 1000, p=share / share.sum())]]
    h = near / np.linalg.norm(near, axis=1, keepdims=True) + 0.8 * r.standard_normal(near.shape) / np.sqrt(dim)
    np.save(os.path.join(folder, "rows.npy"), w.astype(np.float32))
    np.save(os.path.join(folder, "states.npy"), h[:states].astype(np.float32))
    np.save(os.path.join(folder, "contexts.npy"), h[states:].astype(np.float32))


def dump(folder, head, states, contexts):
    """The head of a model, by the program of this folder, and its states."""
    h = np.load(contexts)
    raw = os.path.join(folder, "rows.f32")
    subprocess.run([os.environ.get("REAL", "real"), "-model", head, "-dump", raw], check=True)
    np.save(os.path.join(folder, "rows.npy"), np.fromfile(raw, np.float32).reshape(-1, h.shape[1]))
    os.remove(raw)
    np.save(os.path.join(folder, "contexts.npy"), h.astype(np.float32))
    np.save(os.path.join(folder, "states.npy"), np.load(states).astype(np.float32))
    os.symlink(os.path.realpath(head), os.path.join(folder, "head"))


def file_of(folder, name):
    return os.path.join(folder, name.replace(" ", "-").replace(",", ""))


def best_of(folder, w, h):
    """The exact best labels of each context, which are kept: in float64 among the best 50 of float32."""
    path = os.path.join(folder, f"best.{len(h)}.npy")
    if not os.path.exists(path):
        best = []
        for at in range(0, len(h), 100):
            part = h[at : at + 100]
            near = np.argpartition(-(part @ w.T), 50, axis=1)[:, :50]
            for row, ids in zip(part, near):
                exact = w[ids].astype(np.float64) @ row.astype(np.float64)
                best.append(ids[np.lexsort((ids, -exact))[:K]])
        np.save(path, np.array(best))
    return np.load(path)


def one_by_one(names):
    """Does the same for each library in a process of its own: one may end the process on CPUs of other makers."""
    for name in names:
        if subprocess.run([sys.executable, *sys.argv, "--only", name]).returncode:
            print(f"{name}: left out: its process failed", file=sys.stderr, flush=True)


def loaded(name):
    """The library by name, with its module, or None if it is missing."""
    try:
        PEERS[name].lib = importlib.import_module(PEERS[name].module)
    except Exception as e:
        print(f"{name}: left out: {e}", file=sys.stderr, flush=True)
        return None
    return PEERS[name]


def build(folder, name):
    path, peer = file_of(folder, name), loaded(name)
    if peer is None or os.path.exists(path + ".seconds"):
        return
    w = np.load(os.path.join(folder, "rows.npy"))
    start = time.process_time()
    peer.build(w, folder, path)
    with open(path + ".seconds", "w") as f:
        f.write(f"{time.process_time() - start:.0f}")
    print(f"{name}: built in {time.process_time() - start:.0f} s", file=sys.stderr, flush=True)


def resident():
    """The megabytes of this process that are in memory."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def timed(search, parts):
    """The ids that a search returns for each of the parts, and the least seconds of it."""
    found, least, begin = [search(p) for p in parts], np.full(len(parts), np.inf), time.time()
    for n in range(PASSES):
        if n > 0 and time.time() - begin > MOST_SECONDS:
            break
        for i, p in enumerate(parts):
            start = time.process_time()
            search(p)
            least[i] = min(least[i], time.process_time() - start)
    return np.concatenate(found), least


def measure(folder, name, most):
    path, peer = file_of(folder, name), loaded(name)
    if peer is None or not os.path.exists(path + ".seconds"):
        return  # build said why
    w = np.load(os.path.join(folder, "rows.npy"))
    h = np.load(os.path.join(folder, "contexts.npy"))
    h = np.ascontiguousarray(h[np.arange(min(most, len(h))) * len(h) // min(most, len(h))])
    best = best_of(folder, w, h)
    before = resident()
    peer.load(w, folder, path)
    with open(path + ".seconds") as f:
        seconds = f.read()
    for setting, search in peer.settings():
        got, one = timed(search, [h[i : i + 1] for i in range(len(h))])
        more, batch = timed(search, [h[i : i + BATCH] for i in range(0, len(h) - BATCH + 1, BATCH)])
        if (more == got[: len(more)]).mean() < 0.98:  # sums of another order may swap labels
            print(f"{name}, {setting}: found other answers in batches", file=sys.stderr, flush=True)
        five = np.mean([len(set(a) & set(b)) / K for a, b in zip(got.tolist(), best.tolist())])
        us = one * 1e6
        print(f"{name}\t{setting}\t{np.mean(got[:, 0] == best[:, 0]):.4f}\t{five:.4f}\t{np.median(us):,.0f}\t{np.percentile(us, 99):,.0f}\t"
              f"{np.mean(batch) / BATCH * 1e6:,.0f}\t{seconds}\t{resident() - before:,.0f}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("do", choices=("made", "dump", "build", "measure"))
    p.add_argument("folder")
    p.add_argument("--labels", type=int, default=60_000)
    p.add_argument("--dim", type=int, default=256)
    p.add_argument("--head")
    p.add_argument("--states")
    p.add_argument("--contexts")
    p.add_argument("--most", type=int, default=500)
    p.add_argument("--only", default="", help="a name, or parts of names with commas")
    o = p.parse_args()
    o.folder = os.path.abspath(o.folder)  # ScaNN keeps the names of its files as it was given them
    os.makedirs(o.folder, exist_ok=True)
    names = [o.only] if o.only in PEERS else [n for n in PEERS if not o.only or any(part in n for part in o.only.split(","))]
    if o.do in ("made", "dump"):
        if not os.path.exists(os.path.join(o.folder, "states.npy")):
            made(o.folder, o.labels, o.dim) if o.do == "made" else dump(o.folder, o.head, o.states, o.contexts)
    elif len(names) > 1:
        if o.do == "measure":
            print("method\tsetting\tP@1\tP@5\tmedian, us\t99th\tin batches, us\tbuilt, CPU s\tmemory, MB", flush=True)
        one_by_one(names)
    elif o.do == "build":
        build(o.folder, names[0])
    else:
        measure(o.folder, names[0], o.most)


if __name__ == "__main__":
    if "measure" in sys.argv:
        threads_of_one()
    main()
