"""A model of transformers writes the same text without its head."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import l2s  # noqa: E402
from l2s.transformers import attach, states  # noqa: E402

VOCAB = 3000
torch.set_num_threads(1)  # the models are tiny


def make(kind, tied):
    torch.manual_seed(1)
    common = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, tie_word_embeddings=tied, initializer_range=0.3, max_position_embeddings=512)
    if kind == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**common)).eval()
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(head_dim=8, final_logit_softcapping=30.0, **common)).eval()


@pytest.fixture(params=[("llama", True), ("llama", False), ("gemma2", True)], ids=str)
def model(request):
    return make(*request.param)


def layer_of(model):
    return l2s.Layer(model.get_output_embeddings().weight)


def generate(model, prompts, **options):
    return model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=30, pad_token_id=0, eos_token_id=None, **options)


def test_greedy_text_is_the_models(model):
    prompts = torch.randint(0, VOCAB, (3, 7))
    want = generate(model, prompts, do_sample=False)
    own = model.get_output_embeddings()
    calls = []
    hook = own.register_forward_hook(lambda *_: calls.append(1))
    with attach(model, layer_of(model)):
        got = generate(model, prompts, do_sample=False)
    assert (got == want).all()
    assert not calls  # without computing the head
    hook.remove()
    assert model.get_output_embeddings() is own
    assert (generate(model, prompts, do_sample=False) == want).all()


def test_a_preview_writes_the_same(model):
    layer = layer_of(model)
    windows = torch.randint(0, VOCAB, (40, 50))
    found = states(model, windows, most=1900)
    assert found.shape == (1900, 32) and found.dtype == np.float32
    index = l2s.make_preview(layer, found, progress=False)
    prompts = torch.randint(0, VOCAB, (2, 7))
    want = generate(model, prompts, do_sample=False)
    with attach(model, index):
        got = generate(model, prompts, do_sample=False)
    assert (got == want).float().mean() > 0.9  # a preview may miss


def test_draws_are_of_the_models_distribution():
    model = make("llama", True)
    prompts = torch.randint(0, VOCAB, (1, 7))
    torch.manual_seed(2)
    want = generate(model, prompts, do_sample=True, top_k=20, temperature=0.8)
    torch.manual_seed(2)
    with attach(model, layer_of(model), k=20):
        got = generate(model, prompts, do_sample=True, top_k=20, temperature=0.8)
    assert (got == want).all()


def test_states_are_the_inputs_of_the_head():
    model = make("llama", False)
    ids = torch.randint(0, VOCAB, (1, 40))
    with torch.no_grad():
        want = model(ids).logits[0].numpy()
    layer = layer_of(model)
    got = layer.logits(states(model, ids), list(range(VOCAB)))
    np.testing.assert_allclose(got, want, atol=1e-3)


def test_training_has_the_models_head():
    model = make("llama", True)
    ids = torch.randint(0, VOCAB, (1, 20))
    want = model(ids, labels=ids).loss
    with attach(model, layer_of(model)):
        assert torch.isclose(model(ids, labels=ids).loss, want)
        model.train()
        assert torch.isfinite(model(ids, labels=ids).loss)


def test_mistakes():
    model = make("llama", True)
    layer = layer_of(model)
    with pytest.raises(ValueError, match="expected 3000 x 32"):
        attach(model, l2s.Layer(np.ones((10, 16), np.float32)))
    with pytest.raises(ValueError, match="k: found 0"):
        attach(model, layer, k=0)
    with pytest.raises(TypeError, match="index: found ndarray"):
        attach(model, np.ones((VOCAB, 32), np.float32))
    with pytest.raises(TypeError, match="without a head"):
        attach(transformers.LlamaModel(model.config), layer)
    with attach(model, layer):
        with pytest.raises(ValueError, match="attached"):
            attach(model, layer)
    with pytest.raises(ValueError, match="windows: found none"):
        states(model, [])
