"""Tokens per target call of several algorithms on one prompt, with the shipped models.

.venv/bin/python examples/compare.py "def main():"
"""

import sys

import decgraph

NAMES = ("autoregressive", "prompt_lookup", "speculative", "medusa_match", "eagle2")


def main(prompt: str, max_tokens: int = 48) -> None:
    expected = None
    for name in NAMES:
        result = decgraph.run(name, prompt, max_tokens=max_tokens, temperature=0)
        expected = expected or result.tokens
        same = "the same tokens" if result.tokens == expected else "OTHER TOKENS"
        print(f"{name:<16} {result.stats.tokens_per_call:5.2f} tokens per target call   {same}")


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["def main():"])
