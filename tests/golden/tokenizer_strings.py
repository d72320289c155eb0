# ruff: noqa: RUF001 (look-alike characters are what is tested)
"""The fixed strings on which the tokeniser is compared with libllama."""

from __future__ import annotations

import random

SEED = 20240607

PARAGRAPHS = [
    "The quick brown fox jumps over the lazy dog. It wasn't amused; nobody's perfect, y'know?",
    "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\r\n\tif (!x) break; // done\r\n}\n\n",
    'SELECT name, COUNT(*) FROM users WHERE age >= 18 AND city = "Zürich" GROUP BY name;',
    '{"key": [1, 2.5, -3e10, true, null], "nested": {"a": "b\\n"}}',
    "<html><body><h1>Title</h1><p>a &amp; b</p><table><tr><td>1</td></tr></table></body></html>",
    "# Heading\n\n- item *one*\n- item **two**\n\n```python\nprint('hi')\n```\n",
    "我喜欢在早上喝咖啡，然后去公园散步。今天的天气非常好！价格是１２３元。",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。カタカナもﾊﾝｶｸも。",
    "나는 오늘 아침에 커피를 마셨다. 정말 맛있었어요! 가격은 5,000원입니다.",
    "Привет, как дела? Ёжик бежал по лесу; съешь ещё этих мягких французских булок.",
    "مرحبا بالعالم، كيف حالك؟ ١٢٣٤٥ اللُّغَة العَرَبِيَّة",
    "שָׁלוֹם עוֹלָם, מה שלומך היום?",
    "नमस्ते दुनिया, आप कैसे हैं? १२३ क्षत्रिय ज्ञान",
    "สวัสดีชาวโลก วันนี้อากาศดีมาก ๑๒๓",
    "Γειά σου Κόσμε! Ὀδυσσεύς ἄνδρα μοι ἔννεπε",
    "Tiếng Việt có nhiều dấu: ắ ằ ẳ ẵ ặ; Nguyễn Văn Đức.",
    "ქართული ენა, հայերեն, አማርኛ, ខ្មែរ, မြန်မာ, ᠮᠣᠩᠭᠣᠯ",
    "𝕳𝖊𝖑𝖑𝖔 𝓌𝑜𝓇𝓁𝒹 ① ② ③ Ⅷ ½ ¾ ² ³ ₁₂ ٣ ৪ 〇 零",
]
EMOJI = [
    "👨‍👩‍👧‍👦",
    "👩🏽‍🚀",
    "🏳️‍🌈",
    "🇨🇭🇯🇵🇺🇸",
    "👍🏿",
    "🤷🏻‍♀️",
    "❤️‍🔥",
    "1️⃣2️⃣",
    "😀😃😄",
    "🏴󠁧󠁢󠁳󠁣󠁴󠁿",
    "☃︎",
    "☃️",
    "🫠🫨🩷",
    "⌚⌛",
]
COMBINING = [
    "e\u0301",
    "o\u0308\u0304",
    "Z\u0351\u036b\u0343A\u0334L\u0337G\u0321O\u0322",
    "n\u0303",
    "\u0301\u0301",
    "A\u030a",
    "\u1100\u1161\u11a8",
    "i\u0307",
    "\u200d\u200c\u200b",
    "\ufeffBOM",
    "a\u00adb",
    "\u202eRTL\u202c",
    "ﬁ ﬂ ﬃ",
    "ſ's ſt",
    "ǅ",
    "İI ıi",
    "ß ẞ",
]
CONTRACTIONS = [
    "'s",
    "'t",
    "'re",
    "'ve",
    "'m",
    "'ll",
    "'d",
    "'S",
    "'T",
    "'RE",
    "'Re",
    "'VE",
    "'vE",
    "'M",
    "'LL",
    "'Ll",
    "'D",
    "\u2019s",
    "\u2019LL",
    "'\u017f",
    "'x",
    "''s",
    "' s",
]
MARKERS = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<bos>",
    "<eos>",
    "<pad>",
    "<unk>",
    "<mask>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<unused0>",
    "<unused99>",
    "[multimodal]",
    "<s>",
    "</s>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
    "<|file_sep|>",
    "<repo_name>",
    "<file_sep>",
    "<0x0A>",
    "<0xE2>",
    "<table>",
    "</td>",
    "<h1>",
    "[PAD151700]",
    "<|vision_start|>",
    "<jupyter_code>",
    "<start_of_image>",
]
SPACES = (
    " \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u180e\u200b\u2581\x1c\x1f"
)


def whitespace_strings(draw: random.Random) -> list[str]:
    texts = [" " * n for n in (1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 257)]
    texts += ["\n" * n for n in (1, 2, 3, 30, 31, 32, 40, 70)]
    texts += ["\t" * n for n in (1, 2, 5, 31, 33)]
    texts += ["\r\n" * n for n in (1, 2, 5, 33)]
    texts += [f"a{s}b{s}{s}c {s} d{s}" for s in SPACES]
    texts += [f"x{' ' * n}y" for n in range(2, 40, 3)] + [
        f"x{chr(10) * n}  y" for n in (1, 2, 3, 5, 9)
    ]
    texts += ["".join(draw.choices(" \n\t\r ab1.", k=draw.randint(3, 60))) for _ in range(60)]
    return [
        *texts,
        " leading",
        "trailing ",
        "  two  ",
        "a \n b",
        "a\n \nb",
        "a  \r\n  b",
        " \n",
        "\n ",
    ]


def marker_strings(draw: random.Random) -> list[str]:
    texts = [*MARKERS]
    texts += [text for m in MARKERS for text in (f"a {m} b", f" {m}\n{m}x")]
    texts += [
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
        "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
        "<|im_end",
        "im_end|>",
        "<|im_start|><|im_start|>",
        "<<|im_end|>>",
        "<|im_<|im_end|>end|>",
        "<b>bold</b><s>x</s>",
    ]
    return texts + [
        "".join(draw.choices([*MARKERS, "a", " ", "\n", "é", "7"], k=8)) for _ in range(40)
    ]


def number_strings(draw: random.Random) -> list[str]:
    texts = [
        "0",
        "12",
        "123",
        "1234",
        "12345",
        "123456",
        "3.14159",
        "1,234,567.89",
        "-1e-10",
        "0xDEADBEEF",
        "2024-06-07T12:34:56Z",
        "192.168.0.1",
        "+41 44 123 45 67",
        "100%",
        "$5.00",
        "1st 2nd 3rd",
        "a1b2c3",
        "x=10y20",
        "½1⅓",
        "١٢٣123",
        "1\u06622",
        "²³¹",
        "v1.2.3-rc4",
        "10^6",
        "5'11\"",
        "007s 's7",
    ]
    return texts + [
        "".join(draw.choices("0123456789 ,.", k=draw.randint(2, 30))) for _ in range(25)
    ]


def random_character(draw: random.Random, top: int) -> str:
    while True:
        code = draw.randrange(top)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_strings(draw: random.Random) -> list[str]:
    def text(top: int) -> str:
        return "".join(random_character(draw, top) for _ in range(draw.randint(1, 24)))

    return [text(top) for top in (0x80, 0x250, 0x3000, 0x10000, 0x110000) for _ in range(30)]


def mixed_strings(draw: random.Random) -> list[str]:
    pool = [
        *EMOJI,
        *COMBINING,
        *CONTRACTIONS,
        *SPACES,
        "word",
        "Wort",
        "слово",
        "词",
        "7",
        "99",
        "...",
        "!?",
        "_",
        "-",
    ]
    return ["".join(draw.choices(pool, k=draw.randint(2, 14))) for _ in range(120)]


def strings() -> list[str]:
    """The fixed set, duplicates removed, in a fixed order."""
    draw = random.Random(SEED)
    texts = ["", "\x00", "a\x00b", "\x7f", "\x01\x02", *PARAGRAPHS, *EMOJI, *COMBINING]
    texts += [f"it{c} I{c} {c} 5{c}!" for c in CONTRACTIONS] + [f" {e} x{e}y" for e in EMOJI]
    texts += [p[draw.randrange(len(p) // 2) :] for p in PARAGRAPHS] + [
        p.upper() for p in PARAGRAPHS
    ]
    texts += ["a" * n for n in (1, 2, 17, 64, 129)] + [
        "ab" * 90,
        "=" * 77,
        "-" * 81,
        "あ" * 33,
        "ha" * 9 + "a",
    ]
    for build in (
        whitespace_strings,
        marker_strings,
        number_strings,
        random_strings,
        mixed_strings,
    ):
        texts += build(draw)
    return list(dict.fromkeys(texts))
