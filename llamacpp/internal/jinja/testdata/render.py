"""Renders chat templates by jinja2, set up as transformers' apply_chat_template does.

Reads {"templates": {name: source}, "chats": {name: variables}} and writes
{template: {chat: {"text": ...} or {"error": ...}}}, both JSON.
"""

import datetime
import json
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


NOW = datetime.datetime(2024, 7, 6, 14, 5, 9)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(source, chats):
    try:
        template = environment().from_string(source)
    except Exception as e:
        return {c: {"error": f"{type(e).__name__}: {e}"} for c in chats}
    results = {}
    for c, variables in chats.items():
        try:
            results[c] = {"text": template.render(**variables)}
        except Exception as e:
            results[c] = {"error": f"{type(e).__name__}: {e}"}
    return results


def main():
    asked = json.load(sys.stdin)
    chats = asked["chats"]
    json.dump(
        {t: render(source, chats) for t, source in asked["templates"].items()},
        sys.stdout,
        ensure_ascii=False,
        indent=1,
    )


if __name__ == "__main__":
    main()
