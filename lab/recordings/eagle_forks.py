"""Trees of a head on the target's features, in forks of EAGLE-2's code: Gumiho, Jakiro."""

from __future__ import annotations

import json
import typing
from collections import defaultdict
from contextlib import nullcontext, redirect_stdout
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from transformers import LogitsProcessorList, MaxLengthCriteria, StoppingCriteriaList

from lab.recordings import Case
from lab.recordings.medusa_heads import Noted
from lab.recordings.states import HeadNet, KeptLM, States, TableHead, told
from lab.recordings.tables import untied
from lab.recordings.upstream import Upstream

PACKAGES = ("loguru", "addict", "accelerate", "huggingface_hub", "fastchat")


def gumiho_models(case: Case) -> dict[str, Any]:
    """A target, a head that makes levels one after the other, and one that does not see what stands below the last of them."""
    target = untied(case["size"], case["seed"], window=None)
    serial, parallel = TableHead(target, case["seed"] + 20), TableHead(target, case["seed"] + 50, below=case["early"])
    return {"target": target, "serial": serial, "parallel": parallel}


def jakiro_models(case: Case) -> dict[str, Any]:
    """A target, and the two mixtures of the draft layer's experts."""
    target = untied(case["size"], case["seed"], window=None)
    return {"target": target, "head": TableHead(target, case["seed"] + 20), "ahead": TableHead(target, case["seed"] + 50)}


def decoded(case: Case, model: Any, loop: str, target: KeptLM) -> dict[str, Any]:
    """Run a fork's loop: `model` is its class, made without what loads weights."""
    model.base_model, model.config = target, target.config
    model.tokenizer = SimpleNamespace(eos_token_id=next(iter(case["eos"]), -1))
    ids = getattr(model, loop)(torch.tensor([case["prompt"]]), max_new_tokens=case["limit"])
    return told(target.calls, case, ids[0].tolist())


def bare(kind: Any) -> Any:
    """A module of a class whose __init__ loads weights."""
    made = kind.__new__(kind)
    torch.nn.Module.__init__(made)
    return made


class GumihoNet(HeadNet):
    """With heads beside each other, which go on from the path of the last level's token. mlp_num: how many."""

    mlp_num: int

    def __call__(self, hidden_states: torch.Tensor, input_ids: torch.Tensor, *more: Any, mode: str = "", **others: Any) -> Any:
        if mode != "mlp_generate":
            return super().__call__(hidden_states, input_ids, *more, **others)
        paths = self.paths(hidden_states[:, -1], input_ids[:, -1])
        return [
            self.states.of([("parallel", known, (*path, *[0] * j)) for known, path in paths])[:, None]
            for j in range(self.mlp_num)
        ]


class JakiroNet(HeadNet):
    """With a second mixture in the call before the last."""

    def __call__(self, *args: Any, penult_forward: bool = False, **more: Any) -> Any:
        states, past = super().__call__(*args, **more)
        if penult_forward:
            ahead = self.states.of([("ahead", *key[1:]) for key in self.states.read(states)])[None]
            states = torch.stack([states, ahead])
        return states, past


def jakiro(upstream: Upstream, case: Case) -> dict[str, Any]:
    made, states = jakiro_models(case), States()
    target = KeptLM(made["target"], states)
    with upstream.importable(
        absent=(*PACKAGES, *(f"jakiro.model.modeling_{name}_kv" for name in ("llama", "mixtral", "qwen2")))
    ):
        from jakiro.model import cnets, ea_model  # type: ignore[import-not-found]

        class Net(JakiroNet):
            topK_genrate, init_tree = cnets.Model.topK_genrate, cnets.Model.init_tree

        model = bare(ea_model.EaModel)
        heads = {"head": made["head"], "ahead": made["ahead"]}
        model.ea_layer = Net(heads, states, top_k=case["k"], depth=case["depth"], total_tokens=case["budget"])
        model.ea_layer.init_tree()
        return decoded(case, model, "eagenerate", target)


def gumiho(upstream: Upstream, case: Case) -> dict[str, Any]:
    made, states = gumiho_models(case), States()
    target = KeptLM(made["target"], states)
    args = SimpleNamespace(
        total_tokens=case["budget"] + 1, top_k=case["k"], depth=case["early"] - 1 + case["late"], mlptopk=case["offers"],
        pruning=case["width"], complete_mask=0,
    )  # fmt: skip
    with upstream.importable(absent=(*PACKAGES, "gumiho.model.modeling_llama_kv")):
        from gumiho.model import cnets, gumiho_model  # type: ignore[import-not-found]

        class Net(GumihoNet):
            topK_genrate = cnets.Model.topK_genrate

        model = bare(gumiho_model.GumihoModel)
        model.gumiho_layer = Net(
            {"head": made["serial"], "parallel": made["parallel"]}, states, masked=False, args=args, mlp_num=case["late"],
            config=SimpleNamespace(hidden_size=2, vocab_size=case["size"]), total_tokens=case["budget"],
            position_ids=torch.zeros(case["k"], dtype=torch.long),
        )  # fmt: skip
        return decoded(case, model, "gumihoGenerate", target)


def one_head(case: Case) -> dict[str, Any]:
    """A target and a head."""
    target = untied(case["size"], case["seed"], window=None)
    return {"target": target, "head": TableHead(target, case["seed"] + 20)}


class CloverNet(HeadNet):
    """Clover-2's layers: one that reads the features, and heads that go on from a state with the token drafted behind it."""

    clover_head_mlp_rnn = SimpleNamespace(q=SimpleNamespace(weight=torch.zeros(1)))
    clover_embed_tokens = SimpleNamespace(weight=torch.zeros(1))
    diff_device = False

    def forward_layer(self, hidden_states: torch.Tensor, past_key_values: Any = None, use_cache: bool = True) -> Any:
        """The features as they are."""
        return hidden_states, hidden_states

    def forward_rnn(self, hidden_states: torch.Tensor, input_ids: torch.Tensor, head_idx: int) -> Any:
        """States of rows, which are read, and the same to go on from."""
        states = self.states.of([("head", *path) for path in self.paths(hidden_states, input_ids)])[None]
        return states, states


def clover(upstream: Upstream, case: Case) -> dict[str, Any]:
    made, states = one_head(case), States()
    target = KeptLM(made["target"], states)
    with upstream.importable(absent=PACKAGES):
        from clover.model import clover2, utils  # type: ignore[import-not-found]

        class Net(CloverNet):
            beam_genrate, filter_arrays = clover2.Clover2Model.beam_genrate, clover2.Clover2Model.filter_arrays
            repeat_hidden, repeat_hidden_dim2 = clover2.Clover2Model.repeat_hidden, clover2.Clover2Model.repeat_hidden_dim2

        net = Net({"head": made["head"]}, states, config_clover=SimpleNamespace(num_heads=case["depth"]))
        trees, ranks, text = list[Any](), list[Any](), tuple(case["prompt"])
        buffers_of = clover2.generate_beam_tree_buffers

        def noted(choices: Any, **more: Any) -> Any:
            ranks.append(sorted(tuple(c) for c in choices))
            return buffers_of(choices, **more)

        clover2.generate_beam_tree_buffers = noted
        for _ in range(case["limit"]):
            row = target.row(text)
            hidden = states.of([("target", text)])[None]
            text = (*text, row.index(max(row)))
            found, buffers = net.beam_genrate(
                hidden, torch.tensor([text]), states.scores, None, token_count=case["budget"], top_p_threldhold=case["mass"]
            )
            _, _, tokens = utils.generate_candidates(
                found, buffers["tree_indices"], buffers["retrieve_indices"], torch.tensor([[text[-1]]]), None
            )
            mask = buffers["tree_attn_mask"][0, 0].bool().tolist()
            trees.append(
                sorted({tuple(t for t, m in zip(tokens[0].tolist()[1:], row[1:], strict=True) if m) for row in mask} - {()})
            )
    return {"tokens": text, "ranks": ranks, "drafted": trees}


class Rows(dict[str, Any]):
    """Outputs by name, and the states by their number."""

    def __getitem__(self, name: Any) -> Any:
        return self["last_hidden_state"] if name == 0 else super().__getitem__(name)


def chimera(upstream: Upstream, case: Case) -> dict[str, Any]:
    made, states, calls = one_head(case), States(), list[Any]()
    KeptLM(made["target"], states)
    states.readers["head"] = made["head"].row

    def layers(input_ids: torch.Tensor, attention_mask: torch.Tensor, past_key_values: Any) -> Any:
        """A sequence a path, whose keys are its tokens."""
        new = input_ids[:, None, :, None].float()
        keys = new if past_key_values is None else torch.cat([past_key_values[0][0], new], dim=2)
        assert attention_mask.shape == (len(keys), keys.shape[2])
        texts = [tuple(int(t) for t in row) for row in keys[:, 0, :, 0].tolist()]
        before = keys.shape[2] - input_ids.shape[1]
        calls.append((texts, before + 1))
        rows = [states.of([("target", t[: before + i + 1]) for i in range(input_ids.shape[1])]) for t in texts]
        return Rows(last_hidden_state=torch.stack(rows), past_key_values=[(keys, keys)])

    def fast(input_ids: torch.Tensor, attention_mask: torch.Tensor, last_hs: torch.Tensor) -> Any:
        """What the head says at the last token of each row: of its tokens, and of how many there are features of the target."""
        many = [key[0] == "target" for key in states.read(last_hs[0])].count(True)
        rows = [tuple(row) for row in input_ids.tolist()]
        found = states.of([("head", row[:many], row[many:]) for row in rows])
        return states.scores(found), found

    given = {"nn": torch.nn, **upstream.module("chimera/chimera/model/utils.py").__dict__}
    of = upstream.names("chimera/chimera/model/Chimera_model.py", "ChimeraModel", **given)["ChimeraModel"]
    prompt = SimpleNamespace(input_ids=[case["prompt"]], attention_mask=[[1] * len(case["prompt"])])

    class Model:
        base_model = SimpleNamespace(model=layers, lm_head=states.scores)
        generate, headgenerate, naive_predict = of.generate, of.headgenerate, of.naive_predict
        fastlayer_forward = staticmethod(fast)
        get_tokenizer = staticmethod(lambda: lambda _: prompt)

    output, _ = Model().generate(
        "", max_length=case["calls"], choices=case["k"], max_predictlen=case["depth"], greedy_search=True
    )
    drafted = [sorted({t[n : n + i] for t in texts for i in range(1, len(t) - n + 1)}) for texts, n in calls[1:]]
    ends = [*(n for _, n in calls[1:]), output.shape[1]]
    return {"tokens": output[0], "drafted": [[], *drafted], "accepted": [0, *(b - a - 1 for a, b in pairwise(ends))]}


def glide_cape(upstream: Upstream, case: Case) -> dict[str, Any]:
    made, states = one_head(case), States()
    large, end = KeptLM(made["target"], states, "medusa_mask"), next(iter(case["eos"]), -1)
    states.readers["head"] = made["head"].row
    speculation = upstream.names(
        "glide/utils/speculation_utils.py", "pad_path", "indicate_step", "get_all_prefix", "reset_medusa_mode",
        "generate_medusa_buffers_joint_llama", "generate_candidates_joint_llama", "tree_decoding_joint_llama",
        "evaluate_posterior_joint_llama", "update_inference_inputs_joint_llama", torch=torch,
    )  # fmt: skip
    cache = upstream.module("glide/utils/kv_cache.py")
    typed = {
        **{n: getattr(typing, n) for n in typing.__all__},
        "torch": torch,
        "LogitsProcessorList": LogitsProcessorList,
        "nn": torch.nn,
    }
    typed |= {"StoppingCriteriaList": StoppingCriteriaList, "MaxLengthCriteria": MaxLengthCriteria}
    greedy = upstream.names(
        "glide/utils/generation_utils.py", "greedy_search", GreedySearchDecoderOnlyOutput=lambda **out: out, **typed
    )["greedy_search"]
    as_it_is = lambda *_, **__: lambda function: function
    tokenizer = Noted(end)
    of = upstream.names(
        "glide/glideModel.py", "smallLlamaForCausalLM", **{**speculation, **typed}, LlamaPreTrainedModel=torch.nn.Module,
        add_start_docstrings_to_model_forward=as_it_is, replace_return_docstrings=as_it_is, LLAMA_INPUTS_DOCSTRING="",
        CausalLMOutputWithPast=object, _CONFIG_FOR_DOC="", greedy_search=greedy,
        initialize_past_key_values=cache.initialize_past_key_values,
        AutoTokenizer=SimpleNamespace(from_pretrained=lambda _: tokenizer),
        contexttimer=SimpleNamespace(Timer=lambda: nullcontext(SimpleNamespace(elapsed=0))),
    )["smallLlamaForCausalLM"]  # fmt: skip

    class Small:
        device, dtype = torch.device("cpu"), torch.float32
        config = SimpleNamespace(**vars(large.config), is_encoder_decoder=False)
        generation_config = SimpleNamespace(
            pad_token_id=None, eos_token_id=None, output_attentions=False, output_hidden_states=False
        )
        medusa_forward, medusa_generate_stream = of.medusa_forward, of.medusa_generate_stream
        prepare_inputs_for_generation = of.prepare_inputs_for_generation

        def _update_model_kwargs_for_generation(self, outputs: Any, kwargs: Any, **_: Any) -> Any:
            """As in transformers."""
            return kwargs | {"past_key_values": outputs.past_key_values}

        def __call__(self, input_ids: torch.Tensor, past_key_values: Any, large_key_values: Any, **_: Any) -> Any:
            """What it says behind the last token, with the target's keys of some of its own tokens."""
            new = torch.stack([input_ids[0].float(), torch.zeros(input_ids.shape[1])], -1)[None, None]
            text = tuple(int(t) for t in past_key_values[0][0].cat(new, dim=2)[0, 0, :, 0])
            many = large_key_values[0][0].shape[2]
            keys = large_key_values[0][0].data[0, 0, :many, 0].tolist()
            assert text[:many] == tuple(int(t) for t in keys)
            logits = states.scores(states.of([("head", text[:many], text[many:])])[None])
            return SimpleNamespace(logits=logits, past_key_values=past_key_values)

    bins = [8, 8, 8, 6, 6, 6, 4, 4, 2, 2, 2, 2]
    for _ in Small().medusa_generate_stream(torch.tensor([case["prompt"]]), large, prob_to_top=bins):
        if len(tokenizer.last) >= case["limit"]:
            break
    return told(large.calls, case, [*case["prompt"], *tokenizer.last])


class FalconNet(HeadNet):
    """Blocks of two: the last two rows of the text, or the two tokens of a pair, are asked together; the first says what
    follows the block's path, the second what follows one more token that is not known."""

    diff_device, pad = False, 0
    config = SimpleNamespace(k_mask=2)

    def __call__(
        self, hidden_states: torch.Tensor, input_ids: torch.Tensor, past_key_values: Any = None, position_ids: Any = None,
        **_: Any,
    ) -> Any:  # fmt: skip
        found, past = super().__call__(hidden_states, input_ids, past_key_values)
        keys = self.states.read(found[0])
        if position_ids is None:
            (_, known, path) = keys[-1]
            return self.states.of([*keys[:-2], ("head", known, path), ("head", known, (*path, self.pad))])[None], past
        out = []
        for (_, known, first), (_, _, second) in zip(keys[::2], keys[1::2], strict=True):
            above, pair = first[:-1], (first[-1], second[-1])
            assert second[:-1] == (*above, self.pad), "a block of two paths"
            out += [("head", known, (*above, *pair)), ("head", known, (*above, *pair, self.pad))]
        return self.states.of(out)[None], past


def falcon(upstream: Upstream, case: Case) -> dict[str, Any]:
    made, states = one_head(case), States()
    target = KeptLM(made["target"], states)
    target.lm_head = Weighed(states)  # type: ignore[assignment]
    absent = (*PACKAGES, "shortuuid", "models.modeling_llama_kv", "models.modeling_qwen2_kv")
    with upstream.importable(absent=absent), redirect_stdout(None):
        from models import choices  # type: ignore[import-not-found]

        choices.mc_sim_7b_63 = None  # a default that is imported and not there
        from evaluation import gen_falcon_answer_vicuna_mtbench as script  # type: ignore[import-not-found]
        from models import cnets, falcon_model

        class Net(FalconNet):
            topK_genrate, repeat_hidden = cnets.Model.topK_genrate, cnets.Model.repeat_hidden

        tree = choices.kmask2_8layer_tree if case["shape"] is None else json.loads(case["shape"])
        model = bare(falcon_model.FaModel)
        model.base_model = target
        model.fa_layer = Net({"head": made["head"]}, states, masked=False, pad=next(iter(case["eos"]), 0))
        model.fa_layer.tree_buffer = cnets.generate_tree_buffers(tree, torch.device("cpu"), 2)
        tokenizer = SimpleNamespace(eos_token_id=next(iter(case["eos"]), -1))
        ids, *_ = script.falcon_forward(
            torch.tensor([case["prompt"]]),
            model,
            tokenizer,
            tree,
            None,
            SimpleNamespace(k_mask=2),
            case["calls"],
            defaultdict(int),
            defaultdict(list),
        )
    calls = [target.calls[0], *(texts[1:] for texts in target.calls[1:])]  # the token before the last one is read again
    found = told(calls, {**case, "limit": 10**6}, ids[0].tolist())
    row = target.row(tuple(found["tokens"]))
    end = (
        [] if case["eos"] and found["tokens"][-1] in case["eos"] else [row.index(max(row))]
    )  # which they write at the next call
    return {**found, "tokens": [*found["tokens"], *end]}


class Weighed:
    """A head whose weight's device is asked for."""

    weight = torch.zeros(1)

    def __init__(self, states: States) -> None:
        self.states = states

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.states.scores(hidden)


RECORDINGS = {
    "falcon": falcon,
    "glide_cape": glide_cape,
    "chimera": chimera,
    "clover": clover,
    "gumiho": gumiho,
    "jakiro": jakiro,
}
