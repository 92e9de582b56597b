"""An algorithm of decgraph inside transformers' `generate`: the same tokens, and what they cost.

.venv/bin/python examples/hf_generate.py "def main():"
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

import decgraph
from decgraph import zoo


def main(prompt: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(zoo.path("target"))
    target = AutoModelForCausalLM.from_pretrained(zoo.path("target"), dtype=torch.float32)
    drafter = AutoModelForCausalLM.from_pretrained(zoo.path("drafter"), dtype=torch.float32)
    ids = tokenizer([prompt], return_tensors="pt")["input_ids"]
    settings = {"max_new_tokens": 48, "do_sample": False}
    expected = target.generate(ids, **settings)

    doors = {
        "speculative": decgraph.hf("speculative", drafter=drafter, gamma=4),
        "prompt_lookup": decgraph.hf("prompt_lookup"),
        "eagle2": decgraph.hf("eagle2", head="eagle", depth=3, k=4, budget=12),
        "medusa_match": decgraph.hf("medusa_match", heads="medusa"),
    }
    for name, door in doors.items():
        out = target.generate(ids, custom_generate=door, **settings)
        same = "generate's tokens" if torch.equal(out, expected) else "OTHER TOKENS"
        print(f"{name:<16} {door.last[0].stats.tokens_per_call:5.2f} tokens per target call   {same}")

    print("\nsampled, as it comes:")
    torch.manual_seed(1)
    sampled = {"max_new_tokens": 48, "do_sample": True, "temperature": 0.7}
    target.generate(ids, custom_generate=doors["speculative"], streamer=TextStreamer(tokenizer), **sampled)


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["def main():"])
