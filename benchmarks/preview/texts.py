"""Writes texts of several languages to measure previews with: texts.py FOLDER.

FOLDER gets X.make.txt, of some 2,500 tokens, and X.test.txt, from another half of the same book, for Japanese, Chinese,
German, French and Italian (the Debian Reference), Russian (pages of man) and Go (its own library). It needs apt-get
download, dpkg-deb and go. Then: l2s-llama contexts --states 0 --most 2500 --text X.test.txt, and so on, and
benchmarks/preview -states A.npy,X.npy -test X.npy.
"""
import glob
import gzip
import os
import re
import subprocess
import sys

BOOKS = {"ja": "ja", "zh-cn": "zh-cn", "de": "de", "fr": "fr", "it": "it"}
WORDS = {"de": "der|die|das|und|ist|nicht|werden|für|eine?", "fr": "le|la|les|des|est|une?|pour|dans|vous", "it": "il|la|di|che|non|per|una?|è|sono"}


def pieces(text, size, n):
    """n parts of a text, evenly spread, of that size together."""
    return "\n".join(text[len(text) * i // n:][:size // n] for i in range(n))


def write(out, name, text, make, test):
    half = len(text) // 2
    for kind, part in (("make", pieces(text[:half], make, 12)), ("test", pieces(text[half:], test, 24))):
        with open(os.path.join(out, f"{name}.{kind}.txt"), "w") as f:
            f.write(part)


def translated(language):
    """Reports whether a paragraph is prose in the language: parts of the books are not translated."""
    def is_prose(p):
        if "|" in p or "+--" in p or len(p) < 60:
            return False
        if language in WORDS:
            found = re.findall(f" ({WORDS[language]}) ", re.sub(r"\s+", "  ", p))
            return 10 * len(found) >= len(p.split())
        return sum(ord(c) > 0x2fff for c in p) > 0.3 * len(re.sub(r"\s", "", p))
    return is_prose


def package(out, name):
    subprocess.run(["apt-get", "download", "-q", name], cwd=out, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["dpkg-deb", "-x", glob.glob(os.path.join(out, name + "_*.deb"))[0], os.path.join(out, "x")], check=True)


def main(out):
    os.makedirs(out, exist_ok=True)
    for name, language in BOOKS.items():
        package(out, "debian-reference-" + language)
        with gzip.open(f"{out}/x/usr/share/debian-reference/debian-reference.{language}.txt.gz", "rt") as f:
            text = "\n\n".join(filter(translated(name), f.read().split("\n\n")))
        write(out, name, text, *((4500, 3600) if name in ("ja", "zh-cn") else (10000, 8000)))
    package(out, "manpages-ru")
    lines = []
    for path in sorted(glob.glob(f"{out}/x/usr/share/man/ru/man*/*.gz"))[:300]:
        with gzip.open(path, "rt") as f:
            lines += [x for x in f.read().split("\n") if sum("а" <= c <= "я" for c in x) > 0.3 * len(x) > 0]
    write(out, "ru", "\n".join(lines), 8000, 6500)
    root = subprocess.check_output(["go", "env", "GOROOT"], text=True).strip()
    code = ""
    for folder in ("net/http", "go/types", "strconv", "encoding/json"):
        for path in sorted(glob.glob(f"{root}/src/{folder}/*.go")):
            if not path.endswith("_test.go"):
                with open(path) as f:
                    code += f.read()
    write(out, "go", code, 9000, 7000)


if __name__ == "__main__":
    main(sys.argv[1])
