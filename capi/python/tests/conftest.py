import numpy as np
import pytest

import l2s

LABELS, DIM, STATES = 8000, 32, 4000


class Data:
    """A layer whose states are near rows, so that some label leads, as in a model."""

    def __init__(self):
        r = np.random.default_rng(1)
        self.W = r.standard_normal((LABELS, DIM)).astype(np.float32)
        self.b = r.standard_normal(LABELS).astype(np.float32)
        near = self.W[r.integers(0, LABELS, STATES + 500)]
        self.states = (near + 0.3 * r.standard_normal(near.shape)).astype(np.float32)
        self.H, self.states = self.states[STATES:].copy(), self.states[:STATES].copy()

    def logits(self, H):
        """All logits, by numpy."""
        return np.asarray(H, np.float64) @ self.W.T.astype(np.float64) + self.b


def best(logits, k):
    """The ids of the k largest, the lower one first of equal ones."""
    return np.argsort(-logits, axis=-1, kind="stable")[..., :k]


@pytest.fixture(scope="session")
def data():
    return Data()


@pytest.fixture(scope="session")
def layer(data):
    return l2s.Layer(data.W, data.b)


@pytest.fixture(scope="session")
def index(data, layer):
    return l2s.make_preview(layer, data.states, progress=False)
