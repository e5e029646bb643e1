"""Asks a server of `l2s-llama serve` for JSON by schemas and for calls of tools, by OpenAI's Python package, and has jsonschema judge the answers.

forms.py URL ANSWERS
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import jsonschema
from openai import OpenAI

url, answers = sys.argv[1], int(sys.argv[2])
client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=1200)
name = client.models.list().data[0].id
failures = 0


def check(what, found, wanted=True):
    global failures
    ok = found == wanted
    failures += not ok
    print(("ok    " if ok else "FAIL  ") + what + ("" if ok else f": found {found!r}, expected {wanted!r}"), flush=True)


def closed(**properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


text = lambda most: {"type": "string", "maxLength": most}
whole = lambda low, high: {"type": "integer", "minimum": low, "maximum": high}
server = closed(
    name=text(24),
    kind={"enum": ["server", "proxy", "database", "queue"]},
    state={"enum": ["running", "stopped", "restarting"]},
    port=whole(1, 65535),
    weight={"type": "number", "minimum": 0, "maximum": 100},
    secure={"type": "boolean"},
    protocols={"type": "array", "items": {"enum": ["http", "https", "grpc", "tcp"]}, "minItems": 1, "maxItems": 4},
    since={"type": "string", "format": "date-time"},
    owner={"anyOf": [{"type": "null"}, closed(id={"type": "string", "pattern": "^[a-z]{2,6}-[0-9]{3}$"}, mail={"type": "string", "format": "email"})]},
    limits={"$ref": "#/$defs/limits"},
)
server["$defs"] = {"limits": closed(memory=whole(1, 1024), unit={"enum": ["MB", "GB"]})}
subjects = ["a web server", "a database in Lisbon", "a queue of letters", "a proxy that is stopped", "the machine under my desk"]
judge = jsonschema.Draft202012Validator(server, format_checker=jsonschema.FormatChecker())


def valid(i, **options):
    a = client.chat.completions.create(
        model=name, messages=[{"role": "user", "content": f"Describe {subjects[i % len(subjects)]}, number {i}, in JSON."}], max_tokens=700,
        response_format={"type": "json_schema", "json_schema": {"name": "server", "strict": True, "schema": server}}, **options,
    ).choices[0]
    try:
        judge.validate(json.loads(a.message.content))
        return "" if a.finish_reason == "stop" else a.finish_reason
    except ValueError as e:
        return f"{e}: {a.message.content!r}"
    except jsonschema.ValidationError as e:
        return f"{e.message}: {a.message.content!r}"


with ThreadPoolExecutor(4) as pool:
    for what, options in (("greedy", lambda i: {"temperature": 0}), ("at temperature 1", lambda i: {"temperature": 1, "seed": i, "top_p": 1, "extra_body": {"top_k": 0, "min_p": 0}}), ("at the server's own options", lambda i: {"seed": i})):
        wrong = [x for x in pool.map(lambda i: valid(i, **options(i)), range(answers)) if x]
        check(f"{answers} answers {what} are valid", wrong, [])

a = client.chat.completions.create(model=name, messages=[{"role": "user", "content": "An object, in JSON."}], response_format={"type": "json_object"}, max_tokens=300, temperature=0)
check("an object", a.choices[0].finish_reason == "length" or isinstance(json.loads(a.choices[0].message.content), dict))
a = client.completions.create(model=name, prompt="Is water wet?", max_tokens=8, extra_body={"grammar": 'root ::= " " ("yes" | "no")'})
check("a grammar", a.choices[0].text in (" yes", " no"))

cities = closed(city=text(30), unit={"enum": ["celsius", "fahrenheit"]})
tools = [{"type": "function", "function": {"name": "get_weather", "description": "The weather in a city now", "parameters": cities, "strict": True}},
         {"type": "function", "function": {"name": "get_time", "description": "The time in a city now", "parameters": closed(city=text(30))}}]


def ask(messages, stream, **options):
    """A message of the assistant, in one piece or put together from a stream."""
    options = dict(model=name, messages=messages, tools=tools, temperature=0, max_tokens=200, **options)
    if not stream:
        c = client.chat.completions.create(**options).choices[0]
        return c.message.model_dump(exclude_none=True), c.finish_reason
    message, calls, reason = {"role": "assistant", "content": ""}, [], None
    for chunk in client.chat.completions.create(stream=True, **options):
        for c in chunk.choices:
            message["content"] += c.delta.content or ""
            reason = c.finish_reason or reason
            for d in c.delta.tool_calls or []:
                if d.index == len(calls):
                    calls.append({"id": d.id, "type": d.type, "function": {"name": d.function.name, "arguments": ""}})
                calls[d.index]["function"]["arguments"] += d.function.arguments or ""
    if calls:
        message["tool_calls"] = calls
        message["content"] = message["content"] or None
    return message, reason


def loop(stream, first, **options):
    """The loop of an agent: calls are answered until the model writes text."""
    messages, made = [{"role": "user", "content": "What is the weather in Paris, in celsius?"}], []
    for turn in range(4):
        message, reason = ask(messages, stream, tool_choice=first if turn == 0 else "auto" if turn < 3 else "none", **options)
        messages.append(message)
        if not message.get("tool_calls"):
            return made, message["content"], reason
        for call in message["tool_calls"]:
            f = call["function"]
            made.append((f["name"], f["arguments"], reason))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps({"celsius": 21, "sky": "clear"})})
    return made, None, reason


for first in ("auto", "required", {"type": "function", "function": {"name": "get_weather"}}):
    whole_, stream_ = loop(False, first, parallel_tool_calls=False), loop(True, first, parallel_tool_calls=False)
    what = first if isinstance(first, str) else "a name"
    check(f"the loop ends with text, {what}", bool(whole_[1]) and whole_[2] in ("stop", "length"))
    check("and so in streams", bool(stream_[1]))
    if first != "auto":
        n, arguments, reason = whole_[0][0]
        jsonschema.validate(json.loads(arguments), tools[[t["function"]["name"] for t in tools].index(n)]["function"]["parameters"])
        check("the first call has its reason", reason, "tool_calls")
        check("a stream has the same call", stream_[0][0], whole_[0][0])
    print("      " + json.dumps(whole_)[:300])
check("none", ask([{"role": "user", "content": "What is the weather in Paris?"}], False, tool_choice="none")[0].get("tool_calls"), None)
with client.chat.completions.stream(model=name, messages=[{"role": "user", "content": "What is the weather in Paris?"}], tools=tools, tool_choice="required", parallel_tool_calls=False, temperature=0, max_tokens=200) as stream:
    for _ in stream:
        pass
    call = stream.get_final_completion().choices[0].message.tool_calls[0].function
    check("the stream helper of the package has a call", call.name in ("get_weather", "get_time") and bool(json.loads(call.arguments)["city"]))
try:
    client.chat.completions.create(model=name, messages=[{"role": "user", "content": "a"}], response_format={"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": closed(a={"oneOf": []})}})
    check("a keyword that is not known", "an answer", "an error")
except Exception as e:
    check("a keyword that is not known is named", "#/properties/a/oneOf" in str(e))
print(f"forms: {failures} failures")
sys.exit(failures > 0)
