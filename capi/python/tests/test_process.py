"""Threads, signals, processes."""
import io
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from conftest import DIM

import l2s


def test_threads_search_while_layers_close(data, index):
    want = index.topk(data.H, 5)
    bad, done = [], threading.Event()

    def search(seed):
        r = np.random.default_rng(seed)
        while not done.is_set():
            i = r.integers(0, len(data.H))
            got = index.topk(data.H[i], 5)
            if not ((got[0] == want[0][i]).all() and (got[1] == want[1][i]).all()):
                bad.append(i)

    def close():
        for _ in range(30):
            w = data.W.copy()
            layer = l2s.Layer(w, data.b)
            helpers = [threading.Thread(target=until_closed, args=(layer,)) for _ in range(3)]
            for h in helpers:
                h.start()
            layer.close()
            w[:] = np.nan
            for h in helpers:
                h.join()

    def until_closed(layer):
        try:
            while True:
                layer.topk(data.H[:50], 5)
        except ValueError as e:
            if "closed" not in str(e):
                bad.append(str(e))

    threads = [threading.Thread(target=search, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    close()
    done.set()
    for t in threads:
        t.join()
    assert not bad


def test_the_interpreter_runs_while_it_searches(data):
    """A long call leaves the interpreter to other threads: a counter runs meanwhile."""
    layer = l2s.Layer(np.random.default_rng(5).standard_normal((300000, DIM)).astype(np.float32))
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0)

    t = threading.Thread(target=count)
    t.start()
    try:
        before, calls = counted[0], 0
        while counted[0] < before + 100:
            layer.search(data.H[:100], 5, exact_sum=True)
            calls += 1
            assert calls < 1000
    finally:
        done.set()
        t.join()


def test_progress_and_its_exception(data, layer):
    seen = []
    l2s.make_preview(layer, data.states, progress=lambda stage, done: seen.append((stage, done)))
    assert seen and all(0 <= done <= 1 for _, done in seen)

    class Enough(Exception):
        pass

    def stop(stage, done):
        raise Enough

    with pytest.raises(Enough):
        l2s.make_preview(layer, data.states, progress=stop)


def test_a_bar_of_tqdm_shows_the_progress(data, layer, monkeypatch):
    auto = pytest.importorskip("tqdm.auto")
    bar, shown = auto.tqdm, io.StringIO()
    monkeypatch.setattr(auto, "tqdm", lambda **o: bar(**{**o, "disable": False, "file": shown}))  # as on a terminal
    l2s.make_preview(layer, data.states)
    assert re.search(r"[a-z]+ .*100%", shown.getvalue()), shown.getvalue()
    found = run("import conftest, l2s; d = conftest.Data(); l2s.make_preview(l2s.Layer(d.W, d.b), d.states)", cwd=os.path.dirname(__file__))
    assert found.returncode == 0 and not found.stdout + found.stderr, found  # and nothing into a file


def run(code, *args, **kwargs):
    # A shell that starts tests in the background has them ignore SIGINT, which Python then leaves so.
    code = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=300, **kwargs)


def test_ctrl_c_ends_a_long_work():
    code = """
        import numpy as np, os, signal, threading, time, l2s
        r = np.random.default_rng(0)
        layer = l2s.Layer(r.standard_normal((200000, 64)).astype(np.float32))
        begun = threading.Event()
        def kill():
            begun.wait()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=kill).start()
        try:
            l2s.make_preview(layer, r.standard_normal((40000, 64)).astype(np.float32), progress=lambda *_: begun.set())
            print("made")
        except KeyboardInterrupt:
            print("interrupted")
        print(layer.topk(np.ones(64, np.float32), 1)[0].shape)
        """
    found = run(code)
    assert found.stdout.split("\n")[:2] == ["interrupted", "(1,)"], found


def test_ctrl_c_ends_a_long_search():
    code = """
        import numpy as np, os, signal, threading, time, l2s
        r = np.random.default_rng(0)
        layer = l2s.Layer(r.standard_normal((50000, 64)).astype(np.float32))
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                layer.search(np.ones((20000, 64), np.float32), 5, exact_sum=True, log_sum=True)
        except KeyboardInterrupt:
            print("interrupted")
        """
    assert run(code).stdout == "interrupted\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="found no fork")
def test_a_fork_is_refused():
    code = """
        import numpy as np, os, l2s, sys
        before = os.fork()  # before the library is loaded
        layer = l2s.Layer(np.eye(64, dtype=np.float32))
        assert layer.topk(np.arange(64, dtype=np.float32), 1)[0] == [63]
        if before:
            assert os.waitpid(before, 0)[1] == 0
            child = os.fork()
            if child == 0:
                try:
                    layer.topk(np.ones(64, np.float32), 1)
                except RuntimeError as e:
                    del layer
                    sys.exit(0 if "fork" in str(e) and "spawn" in str(e) else 1)
                sys.exit(2)
            assert os.waitpid(child, 0)[1] == 0
            assert layer.topk(np.arange(64, dtype=np.float32), 1)[0] == [63]
            print("right")
        """
    found = run(code)
    assert found.stdout == "right\n", found


def ask(args):
    W, h = args
    return l2s.Layer(W).topk(h, 3)[0].tolist()


def test_processes_by_spawn(data):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        got = pool.map(ask, [(data.W, h) for h in data.H[:4]])
    want = [ask((data.W, h)) for h in data.H[:4]]
    assert got == want


def test_another_library_is_refused(tmp_path):
    other = tmp_path / "libl2s.so"
    source = tmp_path / "other.c"
    source.write_text("unsigned l2s_abi(void) { return 99; }\n")
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source], check=True)
    except FileNotFoundError:
        pytest.skip("found no C compiler")
    found = run("import numpy, l2s; l2s.Layer(numpy.ones((2, 2), numpy.float32))", env={**os.environ, "L2S_LIBRARY": str(other)})
    assert "ImportError" in found.stderr and "found the interface 99, expected 1" in found.stderr, found


def test_signals_of_the_host_arrive(data, index):
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        while len(seen) < 20:
            index.topk(data.H, 5)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
