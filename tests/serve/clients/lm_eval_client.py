"""lm_eval's `local-completions` against the server whose address is the argument, with the tokenizer of the folder that is the
second: log-likelihoods of choices, and of a text, in a JSON line."""

import json
import sys

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

model = LocalCompletionsAPI(
    base_url=f"{sys.argv[1]}/v1/completions",
    model="chat",
    tokenizer=sys.argv[2],
    batch_size=2,
    num_concurrent=1,
    max_length=512,
)
pairs = [("def main", "():"), ("import", " os"), ("for i in", " range"), ("return", " None\n")]
asked = [Instance("loglikelihood", {}, pair, n, ("t", n, 1)) for n, pair in enumerate(pairs)]
rolling = [Instance("loglikelihood_rolling", {}, ("def main():\n    return 1\n",), 0, ("t", 0, 1))]
until = [Instance("generate_until", {}, ("def main():", {"until": ["\n\n"], "max_gen_toks": 6}), 0, ("t", 0, 1))]
told = {
    "choices": model.loglikelihood(asked),
    "rolling": model.loglikelihood_rolling(rolling),
    "text": model.generate_until(until),
}
print(json.dumps(told))
