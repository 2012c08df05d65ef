"""The texts that make_tokenizer.py encodes (makes nothing itself).

SmolLM2's vocabulary lacks 21 of the 256 byte tokens; implementations drop such
bytes, but differ on whether the neighbours then merge.  So texts with one of those
bytes (U+0004, U+0006, U+0013, U+0014, U+0016, U+001D, or planes 4 to 11) use it only
where nothing could merge across it.
"""

ENGLISH = [
    "", " ", "a", "A", "Hello, world!", "The quick brown fox jumps over the lazy dog.",
    "Hello world", " Hello world", "  Hello world", "Hello  world", "Hello world ", "Hello world  ",
    "It was a bright cold day, and all the clocks were wrong.",
    "antidisestablishmentarianism", "Pneumonoultramicroscopicsilicovolcanoconiosis",
    "e.g., i.e., etc. -- and so on...", "\"Quoted\" and 'single' and `back` ticks",
    "email@example.com", "https://example.com/path?query=1&other=two#frag",
    "UPPER lower MiXeD cAsE", "snake_case camelCase PascalCase kebab-case SCREAMING_CASE",
    "What?! No... Yes; maybe: (perhaps) [or] {not} <at all>",
    "x" * 100, "ab" * 60, "abcdefghijklmnopqrstuvwxyz" * 4, "thethethethethe", "THE THE THE",
]

APOSTROPHES = [
    "I'm you're he's we've they'll I'd don't", "I'M YOU'RE HE'S WE'VE THEY'LL I'D DON'T",
    "'s 't 're 've 'm 'll 'd", "'S 'T 'RE 'VE 'M 'LL 'D", "it's its' it' s", "''s'''t", "rock 'n' roll",
    "l'amour d'été", "the dogs' bowls", "'hello'", "'sun 'tis 'twas", "O'Reilly's", "It\u2019s curly",
]

NUMBERS = [
    "0", "7", "42", "12345", "1234567890", "3.14159", "-273.15", "1,000,000", "$19.99", "50%",
    "1e-6 6.02E23", "0xDEADBEEF", "192.168.0.1", "2024-02-29T12:34:56Z", "+1 (555) 010-9999",
    "a1b2c3", "1 2 3", "1  2", " 1", "  1", "v2.0.1-rc3", "IV Ⅳ ⅷ", "½ ¼ ¾", "x² + y³", "①②③",
    "٠١٢٣٤٥", "१२३", "１２３", "〇一二三", "H₂O", "1st 2nd 3rd",
]

SPACES = [
    "  ", "   ", "    ", "          ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\r\n\r\n", " \n", "\n ",
    " \n ", "  \n  ", "a\nb", "a\n\nb", "a \n b", "a\tb", "a\t\tb", "a \t b", "a\t b", "a \tb", "a   b",
    "a    \n    b", "\n\n  indented", "trailing   ", "trailing\n", "trailing \n\n ", "\ta\t", "a\r\nb\r\n",
    "nbsp\u00a0here", "nbsp\u00a0\u00a0two", "em\u2003space", "thin\u2009space", "ideographic\u3000space",
    "line\u2028separator", "next\u0085line", "zero\u200bwidth", "bom\ufefftext", "\u3000\u3000x", "\x0bvt\x0cff",
    " " * 64, "\n" * 20, " \n" * 8, "a" + " " * 33 + "b",
]

CODE = [
    "def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}",
    "#include <vector>\nstd::vector<int> v{1, 2, 3};", "if x != y && z >= 3 || !w { }",
    "const f = (a, b) => `${a}-${b}`;", "SELECT * FROM t WHERE id = 7 AND name LIKE '%x%';",
    "<div class=\"box\">text &amp; more</div>", "{\"key\": [1, 2.5, null, true], \"s\": \"a\\nb\"}",
    "ls -la | grep '^d' > out.txt 2>&1", "a->b.c[0]::d@e#f$g%h^i&j*k(l)m",
    "# Title\n\n- item 1\n- item 2\n\n```py\nprint('hi')\n```\n", "\\frac{a}{b} \\alpha_i^2",
    "======= ------- ******* _______ .......", "//// \\\\\\\\ |||| ~~~~ ^^^^", "0b1010 0o17 1_000",
]

SCRIPTS = [
    "café naïve façade", "cafe\u0301 nai\u0308ve", "Straße groß Ärger", "Ελληνικά γλώσσα", "Привет, мир!",
    "שלום עולם", "مرحبا بالعالم", "مُحَمَّد", "हिन्दी में नमस्ते", "ภาษาไทยไม่มีช่องว่าง", "你好，世界！", "我有3只猫和12只狗。",
    "日本語のテキスト、カタカナとひらがな。", "안녕하세요 세계", "각", "Việt Nam đẹp quá", "Türkçe İıĞğ", "ქართული",
    "አማርኛ", "Zażółć gęślą jaźń", "ﬁ ligature ﬀ", "Å Å", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "𠀀𠀁", "ǅ ǆ Ǆ", "e\u0301\u0302\u0303\u0304x",
    "\u0301alone", "mixed漢字and English混在text", "a\u0300b c\u0327", "ⅰⅱ", "ªº", "ʰʲˠ",
]

SYMBOLS = [
    "😀", "😀😀😀", " 😀 ", "hi😀there", "👩\u200d👩\u200d👧\u200d👦", "👍🏽 👍🏿", "🇫🇷🇩🇪", "❤\ufe0f", "🏳\ufe0f\u200d🌈", "1\ufe0f\u20e3",
    "→ ← ↑ ↓ ⇒", "∀x ∈ ℝ: x² ≥ 0", "€ £ ¥ ₹ ₿", "© ® ™ § ¶", "“curly” ‘quotes’ – — …", "■□▲▼◆",
    "«guillemets»", "¿Qué? ¡Sí!", "♠♥♦♣ ♩♪♫", "\ufffd", "\U0001f9d1\u200d\U0001f4bb codes",
]

CONTROLS = [
    "nul\x00byte", "\x00", "bell\x07 back\x08space", "esc\x1b[31mred\x1b[0m", "del\x7f", "c1\x80\x9f",
    "\x01\x02\x03", "a \x04 b", " \x06", "\x1d", "soft\u00adhyphen", "rtl\u202eoverride", "\U00040000", "\ue000",
    "\U0010ffff", "\ufdd0",
]

SPECIALS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_start|>user\nHi<|im_end|>\n",
    "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n",
    "text<|im_end|>text", " <|im_end|> ", "<|im_end|><|im_end|>", "<|im_end", "|im_end|>", "<|IM_END|>",
    "< |im_end|>", "<<|im_end|>>", "<repo_name>x<file_sep>y<filename>z", "<gh_stars>100",
    "<jupyter_code>1<empty_output>", "<reponame><repo_name>", "<unknown_special>", "12<|im_end|>34",
    "don<|im_end|>'t", "\n<|endoftext|>\n",
]

ALL = (ENGLISH + APOSTROPHES + NUMBERS + SPACES + CODE + SCRIPTS + SYMBOLS + CONTROLS + SPECIALS)
