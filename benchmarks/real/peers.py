"""Libraries of nearest neighbours on the head of a real model, compared with l2s.

    peers.py build --weights W.f32 --dim 640 --folder FOLDER [--only NAME,...]
    peers.py measure --weights W.f32 --dim 640 --folder FOLDER --contexts test.npy [--most 1000]

W.f32 holds the rows as little-endian float32, as `go run ./real -dump W.f32` writes them. build makes an index with each
library and keeps it; measure loads them, and prints a row for each setting: the share of the exact best label (P@1) and
of the exact best five (P@5) that is found, the median and the 99th percentile of the time per query in microseconds,
one query at a time on one thread, and the size of the index. A library that is missing, or that refuses this CPU, is
left out with a message.
"""

import argparse
import os
import subprocess
import sys
import time

import numpy as np

K = 5


def threads_of_one():
    """Sets the number of threads of all that reads it at its start."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


class Faiss:
    """An index of faiss by inner product, from a description of its factory."""

    def __init__(self, description, efs=None, probes=None, refine=0):
        self.description, self.efs, self.probes, self.refine = description, efs, probes, refine

    def build(self, w, path):
        import faiss

        faiss.omp_set_num_threads(os.cpu_count())
        index = faiss.index_factory(w.shape[1], self.description, faiss.METRIC_INNER_PRODUCT)
        if self.efs:
            index.hnsw.efConstruction = 40
        rng = np.random.default_rng(1)
        index.train(w[rng.choice(len(w), min(len(w), 40_000), replace=False)])
        index.add(w)
        faiss.write_index(index, path)

    def load(self, w, path):
        import faiss

        faiss.omp_set_num_threads(1)
        self.index = faiss.read_index(path)
        # The float32 rows for a refinement are not of the index: the head is there anyway.
        self.top = faiss.IndexRefineFlat(self.index, faiss.swig_ptr(w)) if self.refine else self.index

    def settings(self):
        if self.efs:
            for ef in self.efs:
                self.index.hnsw.efSearch = ef
                yield f"ef {ef}", lambda h: self.top.search(h[None], K)[1][0]
            return
        inner = self.index
        for probes in self.probes:
            inner.nprobe = probes
            if not self.refine:
                yield f"{probes} of {inner.nlist} lists", lambda h: self.top.search(h[None], K)[1][0]
                continue
            for factor in self.refine:
                self.top.k_factor = factor
                yield f"{probes} of {inner.nlist} lists, {int(factor * K)} refined", lambda h: self.top.search(h[None], K)[1][0]


class Hnswlib:
    efs = (50, 100, 200, 400)

    def build(self, w, path):
        import hnswlib

        index = hnswlib.Index(space="ip", dim=w.shape[1])
        index.init_index(max_elements=len(w), M=16, ef_construction=100)
        index.add_items(w, num_threads=os.cpu_count())
        index.save_index(path)

    def load(self, w, path):
        import hnswlib

        self.index = hnswlib.Index(space="ip", dim=w.shape[1])
        self.index.load_index(path)
        self.index.set_num_threads(1)

    def settings(self):
        for ef in self.efs:
            self.index.set_ef(ef)
            yield f"M 16, ef {ef}", lambda h: self.index.knn_query(h, k=K, num_threads=1)[0][0]


class Usearch:
    efs = (64, 128, 256, 512)

    def build(self, w, path):
        from usearch.index import Index

        index = Index(ndim=w.shape[1], metric="ip", dtype="i8", connectivity=16, expansion_add=128)
        # Its codes of 8 bits are for values of -1 to 1.
        index.add(np.arange(len(w)), w / np.abs(w).max(), threads=os.cpu_count())
        index.save(path)

    def load(self, w, path):
        from usearch.index import Index

        self.index, self.rows = Index.restore(path), w

    def settings(self):
        for ef in self.efs:
            self.index.expansion_search = ef
            yield f"i8, ef {ef}, 50 refined", self.refined

    def refined(self, h):
        ids = self.index.search(h / np.abs(h).max(), 50, threads=1).keys
        x = self.rows[ids] @ h
        return ids[np.argsort(-x)[:K]]


class ScaNN:
    leaves = (20, 50, 100, 200)

    def build(self, w, path):
        import scann

        s = scann.scann_ops_pybind.builder(w, K, "dot_product").tree(num_leaves=1000, num_leaves_to_search=50, training_sample_size=100_000)
        s = s.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(200).build()
        os.makedirs(path, exist_ok=True)
        s.serialize(path)

    def load(self, w, path):
        import scann

        self.index = scann.scann_ops_pybind.load_searcher(path)

    def settings(self):
        for leaves in self.leaves:
            yield f"{leaves} of 1000 leaves, 200 refined", lambda h: self.index.search(h, final_num_neighbors=K, pre_reorder_num_neighbors=200, leaves_to_search=leaves)[0]


class SVS:
    """A Vamana graph over LeanVec codes."""

    windows = (10, 20, 50, 100, 200)

    def build(self, w, path):
        import svs

        loader = svs.VectorDataLoader(self.vectors(w, path), svs.DataType.float32, w.shape[1])
        data = svs.LeanVecLoader(loader, 160, primary_kind=svs.LeanVecKind.lvq8, secondary_kind=svs.LeanVecKind.lvq8)
        p = svs.VamanaBuildParameters(alpha=0.95, graph_max_degree=64, window_size=100)
        index = svs.Vamana.build(p, data, svs.DistanceType.MIP, num_threads=os.cpu_count())
        index.save(path + "/config", path + "/graph", path + "/data")

    @staticmethod
    def vectors(w, path):
        import svs

        os.makedirs(path, exist_ok=True)
        name = path + "/rows.fvecs"
        svs.write_vecs(w, name)
        return name

    def load(self, w, path):
        import svs

        data = svs.LeanVecLoader.load(path + "/data") if hasattr(svs.LeanVecLoader, "load") else svs.LeanVecLoader(path + "/data")
        self.index = svs.Vamana(path + "/config", path + "/graph", data, svs.DistanceType.MIP, num_threads=1)

    def settings(self):
        for window in self.windows:
            self.index.search_window_size = window
            yield f"LeanVec 160, window {window}", lambda h: self.index.search(h[None], K)[0][0]


PEERS = {
    "faiss HNSW32": Faiss("HNSW32", efs=(64, 128, 256, 512)),
    "faiss IVF1024": Faiss("IVF1024,Flat", probes=(4, 16, 64, 128)),
    "faiss IVF1024 PQ320 fast scan, refined": Faiss("IVF1024,PQ320x4fs", probes=(16, 64, 256), refine=(20, 100)),
    "hnswlib": Hnswlib(),
    "usearch": Usearch(),
    "ScaNN": ScaNN(),
    "SVS": SVS(),
}


def file_of(name):
    return name.replace(" ", "-").replace(",", "")


def size_of(path):
    if os.path.isdir(path):
        return sum(size_of(os.path.join(path, f)) for f in os.listdir(path) if not f.endswith(".fvecs"))
    return os.path.getsize(path)


def best_of(w, h, path):
    """The exact best labels of each context, kept in path: in float64 among the best 50 of float32."""
    if os.path.exists(path):
        kept = np.load(path)
        if len(kept) == len(h):
            return kept
    best = []
    for at in range(0, len(h), 200):
        part = h[at : at + 200]
        x = part @ w.T
        near = np.argpartition(-x, 50, axis=1)[:, :50]
        for row, ids in zip(part, near):
            exact = w[ids].astype(np.float64) @ row.astype(np.float64)
            best.append(ids[np.lexsort((ids, -exact))[:K]])
    np.save(path, np.array(best))
    return np.array(best)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("do", choices=("build", "measure"))
    p.add_argument("--weights", required=True)
    p.add_argument("--dim", type=int, required=True)
    p.add_argument("--folder", required=True)
    p.add_argument("--contexts")
    p.add_argument("--most", type=int, default=1000)
    p.add_argument("--only", default="", help="a name, or parts of names with commas")
    o = p.parse_args()
    o.folder = os.path.abspath(o.folder)  # ScaNN keeps the names of its files as it was given them
    w = np.fromfile(o.weights, np.float32).reshape(-1, o.dim)
    chosen = [o.only] if o.only in PEERS else [n for n in PEERS if not o.only or any(part in n for part in o.only.split(","))]
    if o.do == "build":
        for name in chosen:
            path = os.path.join(o.folder, file_of(name))
            if os.path.exists(path + ".seconds"):
                continue
            if len(chosen) > 1:  # in a process of its own: SVS ends the process on CPUs of other makers
                if subprocess.run([sys.executable, *sys.argv, "--only", name]).returncode:
                    print(f"{name}: left out: the library ended the process", file=sys.stderr, flush=True)
                continue
            start = time.time()
            try:
                PEERS[name].build(w, path)
            except Exception as e:  # a library may be missing, or of another version
                print(f"{name}: left out: {e}", file=sys.stderr, flush=True)
                continue
            with open(path + ".seconds", "w") as f:
                f.write(f"{time.time() - start:.0f}")
            print(f"{name}: built in {time.time() - start:.0f} s", flush=True)
        return
    h = np.load(o.contexts).astype(np.float32)
    h = np.ascontiguousarray(h[np.arange(min(o.most, len(h))) * len(h) // min(o.most, len(h))])
    best = best_of(w, h, os.path.join(o.folder, "best.npy"))
    print("| method | setting | P@1 | P@5 | median, us | 99th | index, MB |\n|---|---|---:|---:|---:|---:|---:|")
    for name in chosen:
        path = os.path.join(o.folder, file_of(name))
        if not os.path.exists(path + ".seconds"):
            continue  # build said why
        try:
            PEERS[name].load(w, path)
        except Exception as e:
            print(f"{name}: left out: {e}", file=sys.stderr, flush=True)
            continue
        for setting, search in PEERS[name].settings():
            for row in h[:20]:
                search(row)
            times, first, all_five = [], 0, 0
            for row, want in zip(h, best):
                start = time.perf_counter()
                got = search(row)
                times.append(time.perf_counter() - start)
                got = [int(i) for i in got]
                first += got[0] == int(want[0])
                all_five += len(set(got) & {int(i) for i in want})
            us = np.array(times) * 1e6
            print(f"| {name} | {setting} | {first / len(h):.4f} | {all_five / len(h) / K:.4f} | {np.median(us):,.0f} | {np.percentile(us, 99):,.0f} | {size_of(path) / 1e6:,.0f} |", flush=True)


if __name__ == "__main__":
    if "measure" in sys.argv:
        threads_of_one()
    main()
