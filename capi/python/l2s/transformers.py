"""Models of transformers on a CPU: their states, and their next tokens from an index.

    from l2s.transformers import attach, states

    layer = l2s.Layer(model.get_output_embeddings().weight)
    index = l2s.make_preview(layer, states(model, windows))
    with attach(model, index):
        model.generate(...)  # without computing lm_head

It needs torch, and a model with set_output_embeddings, as all causal models of transformers have.
"""
from __future__ import annotations

from types import TracebackType
from typing import Any, Iterable, List, Optional, Type, Union

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from . import Index, Layer

__all__ = ["Head", "attach", "states"]


def states(model: Any, windows: Iterable[Any], most: Optional[int] = None) -> np.ndarray:
    """Return the states of windows of token ids: the vectors that the model's head multiplies, n x dim, float32.

    windows: each a list or a tensor of ids, of one text without padding. A hook on the head sees each state, after
    the last normalisation and with the model's scale. most: the number of states to stop at.
    """
    rows: List[Any] = []

    def collect(head: Any, inputs: Any) -> None:
        rows.append(inputs[0].detach().reshape(-1, inputs[0].shape[-1]).float().cpu())

    hook = model.get_output_embeddings().register_forward_pre_hook(collect)
    count = 0
    try:
        with torch.no_grad():
            for ids in windows:
                # Call the model: generate computes the state of the last position only.
                model(torch.as_tensor(ids, device=model.device).reshape(1, -1), use_cache=False)
                count += len(rows[-1])
                if most is not None and count >= most:
                    break
    finally:
        hook.remove()
    if not rows:
        raise ValueError("windows: found none")
    found = torch.cat(rows)[:most]
    if not torch.isfinite(found).all():
        raise ValueError("states: found NaN or an infinity, expected finite numbers")
    return np.asarray(found)


class Head(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A head that computes the k largest logits, and gives -inf to all other labels.

    In training, and where gradients are asked for, the model's own head answers.
    """

    def __init__(self, own: Any, searches: Union[Index, Layer], k: int) -> None:
        super().__init__()
        self.own = own
        self.searches, self.k = searches, k
        self.out_features = int(own.weight.shape[0])

    @property
    def weight(self) -> Any:
        return self.own.weight

    @property
    def bias(self) -> Any:
        return getattr(self.own, "bias", None)

    def forward(self, hidden: Any) -> Any:
        if self.training or torch.is_grad_enabled() and hidden.requires_grad:
            return self.own(hidden)
        rows = hidden.reshape(-1, hidden.shape[-1])
        ids, logits = self.searches.topk(rows, self.k)
        out = torch.full((len(ids), self.out_features), -torch.inf)
        out.scatter_(1, torch.from_numpy(ids), torch.from_numpy(logits).float())
        return out.reshape(*hidden.shape[:-1], self.out_features)


class Attached:
    """A model with an index in its head's place, until detach, or the end of a with block."""

    def __init__(self, model: Any, own: Any, head: Head) -> None:
        self.model, self.own, self.head = model, own, head

    def detach(self) -> None:
        """Give the model its own head back."""
        if self.model.get_output_embeddings() is self.head:
            self.model.set_output_embeddings(self.own)

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.detach()


def attach(model: Any, index: Union[Index, Layer], k: int = 64) -> Attached:
    """Let a causal model on a CPU take its next tokens from an index of its head, or from the exact layer.

    Greedy texts are those of the k largest logits by the index. Sampling draws among the k labels: with top_k of
    at most k, as transformers' default of 50 is, it draws as from all labels. Scores of other labels are -inf.
    The layer is over the weights of the head, without a scale or a cap, which the model applies by itself.
    """
    own = model.get_output_embeddings()
    if isinstance(own, Head):
        raise ValueError("model: found an index attached, expected the model's own head: detach it first")
    if own is None or getattr(own, "weight", None) is None:
        raise TypeError(f"model: found {type(model).__name__} without a head, expected a causal language model")
    if own.weight.device.type != "cpu":
        raise ValueError(f"model: found its head on {own.weight.device}, expected it on the CPU")
    if not isinstance(index, (Index, Layer)):
        raise TypeError(f"index: found {type(index).__name__}, expected an l2s.Index or an l2s.Layer")
    labels, dim = own.weight.shape
    if index.dim != dim or index.labels > labels:
        raise ValueError(f"index: found {index.labels} x {index.dim}, expected {labels} x {dim}, the head of the model")
    if not 1 <= k <= index.labels:
        raise ValueError(f"k: found {k}, expected 1 to {index.labels}")
    head = Head(own, index, k)
    head.train(model.training)
    model.set_output_embeddings(head)
    return Attached(model, own, head)
