"""Makes the text that the demo model is trained on, from Debian 12 packages.

    demo_corpus.py WORK

downloads the packages with apt-get into WORK/deb, unpacks them there without installing and
writes WORK/train.txt and WORK/heldout.txt (UTF-8; documents end with an END character). English
prose under licences that allow any use, with notices kept:

| source   | package                | licence                         |
|----------|------------------------|---------------------------------|
| austen   | r-cran-janeaustenr     | public domain (package: MIT)    |
| kjv      | bible-kjv-text         | public domain (outside the UK)  |
| wordnet  | wordnet-base           | WordNet 3.0 licence             |
| postgres | postgresql-doc-15      | PostgreSQL licence              |
| python   | python3.11-doc         | PSF-2.0                         |
| rust     | rust-doc               | MIT or Apache-2.0               |

Every document is cut into pieces of about 6000 characters; one piece in 80, chosen by the crc32 of
its source and number, is held out, so both parts are of the same kinds.
"""
import hashlib
import html.parser
import json
import pathlib
import re
import subprocess
import sys
import zlib

END = "\x1e"          # between documents; <|endoftext|> for the model
PIECE = 6000          # characters
HELD_OUT = 80         # one piece in so many
# Synsets whose gloss has one of these are left out.
COARSE = re.compile(r"slur|offensive|disparag|obscen|vulgar|sexual|intercourse|prostitut|whore"
                    r"|rape")
SECTIONS = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}
HTML = {"postgres": "usr/share/doc/postgresql-doc-15/html",
        "python": "usr/share/doc/python3.11/html",
        "rust": "usr/share/doc/rust-doc/html"}
# Pages to read: reference entries and release notes are lists rather than prose.
PAGES = {"postgres": r"(?!release|sql-|app-|errcodes|libpq|spi-|ecpg)",
         "python": r"(tutorial|howto|faq|reference|extending|using|glossary|library/[a-m])",
         "rust": r"(book/(?!.*edition/|print)|embedded-book|edition-guide|reference/|nomicon)"}
PACKAGES = ["r-cran-janeaustenr", "bible-kjv", "bible-kjv-text", "wordnet-base",
            "postgresql-doc-15", "python3.11-doc", "rust-doc"]


def plain(text):
    """One paragraph on one line, in plain ASCII punctuation."""
    for old, new in [("\u2018", "'"), ("\u2019", "'"), ("\u201c", '"'), ("\u201d", '"'),
                     ("\u2014", "--"), ("\u2013", "-"), ("\u2026", "..."), ("\u00a0", " "),
                     ("\u200b", ""), ("\u00b6", "")]:
        text = text.replace(old, new)
    return re.sub(r"\s+", " ", text).strip()


def r_strings(data):
    """The strings of a serialised character vector of R (XDR, version 3)."""
    at = data.index(b"UTF-8", 0, 64) + 5
    kind, count = int.from_bytes(data[at:at + 4], "big"), int.from_bytes(data[at + 4:at + 8], "big")
    assert kind & 0xff == 16
    at += 8
    for _ in range(count):
        size = int.from_bytes(data[at + 4:at + 8], "big")
        yield data[at + 8:at + 8 + size].decode()
        at += 8 + size


def austen(root):
    """Six novels; a chapter is a document."""
    data = (root / "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    while data:
        inflate = zlib.decompressobj()
        book = "\n".join(r_strings(inflate.decompress(data[4:])))
        data = inflate.unused_data
        for chapter in re.split(r"\nchapter [^\n]*\n", book, flags=re.IGNORECASE)[1:]:
            paragraphs = [plain(p.replace("_", "")) for p in re.split(r"\n\s*\n", chapter)]
            yield [p for p in paragraphs
                   if len(p) > 1 and not re.match(r"(volume|finis|the end|end of)\b", p, re.I)]


def kjv(root):
    """A chapter is a document of paragraphs of about six verses."""
    program, data = root / "usr/bin/bible", root / "usr/lib"
    text = subprocess.run([program, "-p", data, "-f", "Gen1:1-Rev22:21"], check=True,
                          capture_output=True, text=True).stdout
    chapters = {}
    for line in text.splitlines():
        place, verse = line.split(" ", 1)
        chapters.setdefault(place.split(":")[0], []).append(plain(re.sub(r"[<>\[\]{}]", "", verse)))
    for verses in chapters.values():
        yield [" ".join(verses[i:i + 6]) for i in range(0, len(verses), 6)]


def wordnet(root):
    """Definitions of the synsets that have an example; 40 lines are a document."""
    for part in ("noun", "verb", "adj", "adv"):
        lines = []
        for line in (root / f"usr/share/wordnet/data.{part}").read_text().splitlines():
            if line.startswith(" ") or '"' not in line or COARSE.search(line):
                continue
            fields, gloss = line.split(" | ", 1)
            fields = fields.split(" ")
            word = re.sub(r"\(.*\)", "", fields[4]).replace("_", " ")
            lines.append(plain(f"{word} ({SECTIONS[fields[2]]}): {gloss}"))
        for i in range(0, len(lines), 40):
            yield ["\n".join(lines[i:i + 40])]


class Paragraphs(html.parser.HTMLParser):
    """Collects the text of <p> elements that are not in tables or listings."""

    def __init__(self):
        super().__init__()
        self.found, self.text, self.inside = [], None, 0

    def handle_starttag(self, tag, attributes):
        if tag == "p":
            self.text = []
        self.inside += tag in ("table", "pre", "nav", "script", "style")

    def handle_endtag(self, tag):
        self.inside -= tag in ("table", "pre", "nav", "script", "style")
        if tag in ("p", "div") and self.text is not None:
            self.found.append(plain("".join(self.text)))
            self.text = None

    def handle_data(self, data):
        if self.text is not None and not self.inside:
            self.text.append(data)


def is_prose(text):
    letters = sum(c.isalpha() or c == " " for c in text)
    return (len(text) >= 80 and text[-1] in ".!?:" and letters >= 0.92 * len(text)
            and text.isascii())


def manual(root, source):
    """The paragraphs of a manual that are prose; a page is a document."""
    top = root / HTML[source]
    seen = set()
    for page in sorted(top.rglob("*.html")):
        if not re.match(PAGES[source], str(page.relative_to(top))) or page.name == "print.html":
            continue
        parser = Paragraphs()
        parser.feed(page.read_text(errors="replace"))
        found = [p for p in parser.found if is_prose(p) and p not in seen]
        seen.update(found)
        if len(found) >= 2:
            yield found


def documents(root):
    yield from (("austen", d) for d in austen(root))
    yield from (("kjv", d) for d in kjv(root))
    yield from (("wordnet", d) for d in wordnet(root))
    for source in HTML:
        yield from ((source, d) for d in manual(root, source))


def pieces(paragraphs):
    """Joins paragraphs to pieces of about PIECE characters."""
    out = [[]]
    for p in paragraphs:
        if sum(map(len, out[-1])) > PIECE:
            out.append([])
        out[-1].append(p)
    return ["\n\n".join(p) for p in out if p]


def split(root):
    """(source, training texts, held-out texts) of every document."""
    number = {}
    for source, paragraphs in documents(root):
        train, held = [[]], []
        for piece in pieces(paragraphs):
            number[source] = number.get(source, -1) + 1
            if zlib.crc32(f"{source} {number[source]}".encode()) % HELD_OUT == 0:
                held.append(piece)
                train.append([])
            else:
                train[-1].append(piece)
        yield source, ["\n\n".join(t) for t in train if t], held


def fetch(work):
    root, debs = work / "deb" / "root", work / "deb"
    if not root.exists():
        debs.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", *PACKAGES], check=True, cwd=debs)
        for deb in sorted(debs.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
    return root


def main(work):
    work = pathlib.Path(work)
    parts, sizes = {"train": [], "heldout": []}, {}
    for source, train, held in split(fetch(work)):
        parts["train"] += train
        parts["heldout"] += held
        sizes.setdefault(source, [0, 0])
        sizes[source][0] += sum(map(len, train))
        sizes[source][1] += sum(map(len, held))
    print("characters for training and held out:", json.dumps(sizes))
    for part, texts in parts.items():
        data = "".join(t + END for t in texts).encode()
        (work / f"{part}.txt").write_bytes(data)
        print(f"{part}.txt: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main(sys.argv[1])
