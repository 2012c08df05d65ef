"""Stop strings of trine run."""
import json
import os
import tempfile

import cli

DEMO = cli.TESTS / "data" / "demo" / "demo-PTQ1_0.gguf"


class StopStrings(cli.VerbCase):
    PROMPTS = ("The history of", "In the north of the country")

    def text(self, *options, prompts=PROMPTS, tokens=40, **how):
        given = [word for prompt in prompts for word in ("-p", prompt)]
        return self.good("run", "-m", DEMO, "-n", tokens, "--temp", 0, *given, *options, **how)

    @staticmethod
    def cut(text, *stops):
        """The definition."""
        places = [text.find(stop) for stop in stops if stop in text]
        return text[:min(places)] if places else text

    def test_EveryPlace_CutsThere(self):
        """Stop strings of all lengths; those that nothing begins, none."""
        one, = self.PROMPTS[:1]
        text = self.text(prompts=[one]).removesuffix("\n")
        self.assertGreater(len(text), 60)
        cases = [[text[i:i + length]] for i, length in ((9, 1), (11, 4), (20, 17), (30, 30))]
        cases += [[text[25:40], text[12:14], "no such text"], [text[10:60], text[14:20]],
                  [text[:3]], [text[40:50] + "?"], ["\u00e9"]]
        runs = cli.in_parallel(lambda case: self.text(
            *(word for stop in case for word in ("-r", stop)), "--no-escape", prompts=[one]), cases)
        for case, found in zip(cases, runs):
            with self.subTest(case):
                self.assertEqual(found, self.cut(text, *case) + "\n")

    def test_SeveralSequences_EachByItself(self):
        """The others go on; the one that ends computes no more."""
        both = self.text().splitlines()
        stop = both[0][20:24]
        expected = "".join(self.cut(text, stop) + "\n" for text in both)
        with tempfile.TemporaryDirectory() as folder:
            for how in ({}, {"np": 2}):
                path = os.path.join(folder, "logits")
                self.assertEqual(self.text("--stop", stop, "--save-logits", path, **how), expected)
                rows = os.path.getsize(path) // 4 // json.loads(
                    self.good("inspect", "-m", DEMO, "--json"))["tokenizer"]["size"]
                self.assertLess(rows, 80)
            self.assertEqual(self.text("--stop", stop, "--parallel", 1), expected)

    def test_Logits_EndWithTheText(self):
        """A guess beside the stop string's last token is not part of it."""
        prompt = ["a b c a b c a b c a b c a b c a b"]
        line = 'a bird; "bird the bird"'
        stop = f"{line}\nbird (verb): make {line}\nbird (verb): make"
        self.assertIn(stop, self.text(prompts=prompt, tokens=90))
        with tempfile.TemporaryDirectory() as folder:
            sizes = set()
            for drafts in (0, 3, 10):
                path = os.path.join(folder, "logits")
                self.text("-r", stop, "--no-escape", "--draft-max", drafts,
                          "--save-logits", path, prompts=prompt, tokens=90)
                sizes.add(os.path.getsize(path))
        self.assertEqual(len(sizes), 1)

    def test_Escapes_AsInPrompts(self):
        talk = ['A "B" said "C" and']
        text = self.text(prompts=talk).removesuffix("\n")
        self.assertIn('"', text)
        self.assertEqual(self.text("-r", '\\"', prompts=talk), self.cut(text, '"') + "\n")
        self.assertEqual(self.text("-r", '\\"', "--no-escape", prompts=talk), text + "\n")


if __name__ == "__main__":
    cli.main()
