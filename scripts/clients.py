"""Asks a server of `l2s-llama serve` by OpenAI's Python package, and compares its answers with `l2s-llama generate`.

clients.py URL L2S-LLAMA MODEL.gguf
"""

import math
import subprocess
import sys
import threading
import time
import urllib.request

import openai
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

url, command, model = sys.argv[1:]
client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=1200)
name = client.models.list().data[0].id
failures = 0


def check(what, found, wanted=True):
    global failures
    ok = found == wanted
    failures += not ok
    print(("ok    " if ok else "FAIL  ") + what + ("" if ok else f": found {found!r}, expected {wanted!r}"), flush=True)


def generate(prompt, n, *flags):
    """What generate writes; it ends with a line feed of its own."""
    out = subprocess.run([command, "generate", "--quiet", "--model", model, "--threads", "1", "--temp", "0", "-n", str(n), "--prompt", prompt, *flags], capture_output=True, text=True, check=True)
    return out.stdout[:-1]


def refused(what, kind, call, **wanted):
    try:
        call()
        check(what, "an answer", kind.__name__)
    except openai.APIStatusError as e:
        check(what, type(e).__name__, kind.__name__)
        for field, value in wanted.items():
            check(what + ", " + field, getattr(e, field), value)


prompts = ["The capital of France is", "def fibonacci(n):\n", "Once upon a time there was a fox who", "Die Hauptstadt von Italien ist"]
wanted = [generate(p, 24) for p in prompts]
for p, want in zip(prompts, wanted):
    check(f"temperature 0 as generate: {p!r}", client.completions.create(model=name, prompt=p, max_tokens=24, temperature=0).choices[0].text, want)
    parts = [c.choices[0].text for c in client.completions.create(model=name, prompt=p, max_tokens=24, temperature=0, stream=True)]
    check("the same in a stream", "".join(parts), want)
    check("in more than one part", len(parts) > 3)

questions = ["What is the capital of France?", "Name three colours.", "Write one line of Python that prints hello."]
for q in questions:
    want = generate(q, 40, "--chat")
    message = [{"role": "user", "content": q}]
    a = client.chat.completions.create(model=name, messages=message, max_tokens=40, temperature=0)
    check(f"a chat as generate --chat: {q!r}", a.choices[0].message.content, want)
    check("why it ended", a.choices[0].finish_reason, "stop" if a.usage.completion_tokens < 40 else "length")
    chunks = list(client.chat.completions.create(model=name, messages=message, max_tokens=40, temperature=0, stream=True, stream_options={"include_usage": True}))
    check("the same in a stream", "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), want)
    # The second request finds the prompt of the first in the server's memory.
    counts = lambda u: (u.prompt_tokens, u.completion_tokens, u.total_tokens)
    check("its usage", counts(chunks[-1].usage), counts(a.usage))
    check("its cached prompt", chunks[-1].usage.prompt_tokens_details.cached_tokens, a.usage.prompt_tokens - 1)
    check("its role", chunks[0].choices[0].delta.role, "assistant")

# By the helper of the package that puts streams together, which takes no answer that is cut.
with client.chat.completions.stream(model=name, messages=[{"role": "user", "content": questions[2]}], max_tokens=200, temperature=0) as stream:
    for _ in stream:
        pass
    check("the stream helper", stream.get_final_completion().choices[0].message.content, generate(questions[2], 200, "--chat"))

message = [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "What is the capital of Italy?"}]
a = client.chat.completions.create(model=name, messages=message, max_tokens=8, temperature=0, logprobs=True, top_logprobs=5)
tokens = a.choices[0].logprobs.content
check("tokens of log-probabilities make the text", "".join(t.token for t in tokens), a.choices[0].message.content)
check("the best comes first", all(t.top_logprobs[0].logprob == t.logprob and len(t.top_logprobs) == 5 for t in tokens))
check("they ascend nowhere, and are no more than 1 together", all(sum(math.exp(x.logprob) for x in t.top_logprobs) <= 1.000001 and all(x.logprob >= y.logprob for x, y in zip(t.top_logprobs, t.top_logprobs[1:])) for t in tokens))
a = client.chat.completions.create(model=name, messages=message, max_tokens=8, temperature=0, logprobs=True, extra_body={"deterministic": True})
check("the error of a request that is computed alone", a.choices[0].logprobs.logprob_error >= 0)
a = client.completions.create(model=name, prompt=prompts[0], max_tokens=6, temperature=0, logprobs=3)
check("log-probabilities of a completion", [len(x) for x in a.choices[0].logprobs.top_logprobs], [3] * 6)

want = wanted[0]
stop = want[5:8]
for form in (stop, ["no such text", stop]):
    a = client.completions.create(model=name, prompt=prompts[0], max_tokens=24, temperature=0, stop=form)
    check(f"stop {form!r}", (a.choices[0].text, a.choices[0].finish_reason), (want[: want.index(stop)], "stop"))
    parts = [c.choices[0].text for c in client.completions.create(model=name, prompt=prompts[0], max_tokens=24, temperature=0, stop=form, stream=True)]
    check("the same in a stream", "".join(parts), want[: want.index(stop)])

draw = lambda seed: client.completions.create(model=name, prompt=prompts[2], max_tokens=16, temperature=1.2, seed=seed).choices[0].text
check("one seed, one text", draw(5), draw(5))
check("another seed, another text", draw(5) != draw(6))
one = client.completions.create(model=name, prompt=prompts[0], max_tokens=4, extra_body={"allowed_tokens": [7042, 4528]})
check("allowed tokens alone", set(one.choices[0].text.split()) <= {"Paris", "London"})

bad = lambda **fields: lambda: client.completions.create(**{"model": name, "prompt": "a", "max_tokens": 2, **fields})
refused("a temperature that is a text", openai.BadRequestError, bad(temperature="hot"), param="temperature", type="invalid_request_error")
refused("more answers than places", openai.BadRequestError, bad(n=5), param="n")
refused("a field that is mistyped", openai.BadRequestError, bad(extra_body={"max_token": 2}), param="max_token", code="unknown_field")
refused("a prompt that is too long", openai.BadRequestError, bad(prompt="word " * 20000), code="context_length_exceeded")
refused("a model that is not there", openai.NotFoundError, lambda: client.models.retrieve("other"), code="model_not_found")
check("the model that is there", client.models.retrieve(name).id, name)

a = client.completions.create(model=name, prompt=prompts[0], max_tokens=8, temperature=1.5, seed=3, n=3)
check("three answers", ([c.index for c in a.choices], a.usage.completion_tokens <= 24), ([0, 1, 2], True))
check("their timings", a.timings["predicted_n"], a.usage.completion_tokens)
texts = ["", ""]
for event in client.chat.completions.create(model=name, messages=[{"role": "user", "content": questions[0]}], max_tokens=12, temperature=1, n=2, stream=True):
    for c in event.choices:
        texts[c.index] += c.delta.content or ""
check("two answers in a stream", [bool(t) for t in texts], [True, True])
raw = client.completions.with_raw_response.create(model=name, prompt="a", max_tokens=1, extra_body={"frobnicate": 1})
check("a field that nothing reads", raw.headers["x-l2s-ignored"], "frobnicate")
a = client.completions.create(model=name, prompt=prompts[0], max_tokens=1, temperature=0, logprobs=0, extra_body={"logprob_token_ids": [7042, 4528], "return_tokens_as_token_ids": True})
check("named tokens", {"token_id:7042", "token_id:4528"} <= set(a.choices[0].logprobs.top_logprobs[0]))

score = client.post("/score", cast_to=object, body={"prompt": prompts[0], "answers": [" Paris", " London", " Rome"]})
check("a score", max(score["answers"], key=lambda a: a["logprob"])["index"], 0)
check("its shares", abs(sum(a["probability_among"] for a in score["answers"]) - 1) < 1e-9)

# Several at once. Roundings of a batch may turn a near tie, but not many of these.
answers = [None] * 8


def ask(i):
    answers[i] = client.completions.create(model=name, prompt=prompts[i % 4], max_tokens=24, temperature=0).choices[0].text


threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
check("8 at once", all(answers))
check("most as alone", sum(a == wanted[i % 4] for i, a in enumerate(answers)) >= 5)

# A client that leaves in the middle of a stream frees its place.
for _ in range(8):
    with client.completions.create(model=name, prompt=prompts[2], max_tokens=4000, temperature=0, stream=True) as stream:
        next(iter(stream))
start = time.time()
metrics = {}
while time.time() - start < 600:
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    metrics = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples if not s.labels}
    if metrics["l2s_requests_active"] == 0:
        break
    time.sleep(0.05)
check("clients that left have no place", (metrics["l2s_requests_active"], metrics["l2s_requests_waiting"]), (0, 0))
check("tokens are counted", metrics["l2s_written_tokens_total"] > 300 and metrics["l2s_token_seconds_count"] > 300)
check("the next request works", bool(client.completions.create(model=name, prompt="a", max_tokens=2).choices[0].text is not None))

print(f"clients: {failures} failures")
sys.exit(failures > 0)
