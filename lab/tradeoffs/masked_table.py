"""The sweeps of masked models' decoders: knob, values, what the paper reports, the expected shape."""

from __future__ import annotations

from lab.tradeoffs.sweeps import Sweep, at, below, falls, near, rises, stays

TAUS = ("0.3", "0.5", "0.7", "0.9", "0.99")
STEPS = ("1", "2", "4", "8", "32")
MORE = (rises("calls"), rises("agreement"))
"""A more careful setting costs calls and comes closer to one token a call."""
LESS = (falls("calls"), falls("agreement"))
KEPT = (falls("calls"), stays("agreement", 0.05))
"""Fewer calls at the same quality: what a method promises that claims to lose nothing."""

SWEEPS = (
    # --- LLaDA's and Dream's own schedules
    Sweep("llada", "steps", STEPS, (*MORE, at("32", "agreement", 1.0, 0.0)), "rule: the number of steps says how many "
        "positions are decided together; one a step is the reference (Nie et al., 2025)"),
    Sweep("llada_guided", "steps", STEPS, MORE, "rule: fewer steps decide more positions together, with guidance as without "
        "(Nie et al., 2025)", seeds=1, reference="llada_guided"),
    Sweep("static_masked", "block", ("1", "8", "32"), (stays("calls"), falls("order")),
        "rule: one token a call whatever the block length; short blocks go from left to right (Nie et al., 2025)"),
    *(
        Sweep(name, "steps", STEPS, MORE, "rule: fewer steps decide more positions together (Ye et al., 2025)")
        for name in ("dream", "dream_confidence", "dream_margin")
    ),
    Sweep("dream_origin", "steps", STEPS, MORE, "rule: fewer steps decide more positions together (Ye et al., 2025)", seeds=2,
        why="agreement is 0.84 to 0.85 up to eight steps and 0.91 with one position a step; why was not looked into"),
    # --- thresholds
    Sweep("fast_dllm_uncached", "tau", (*TAUS, "1.0"), (*MORE, at("1.0", "calls", 32)),
        "abstract: the threshold limits broken dependencies and keeps quality (Wu et al., 2025); rule: at 1 one token a call"),
    Sweep("fast_dllm_factor", "factor", ("0.125", "0.5", "1", "2", "4", "16"), LESS,
        "rule: a larger factor admits more positions a call (Wu et al., 2025)", why="its dual cache costs more than the rule "
        "trades: without a cache the same model goes from 0.85 at one call to 0.95 at three (fast_dllm_uncached), here it "
        "stays below 0.86 at every setting"),
    Sweep("fast_dllm", "tau", TAUS, (*MORE, below("computed", "0.9")), "abstract: cache and threshold together, little "
        "accuracy lost (Wu et al., 2025); rule: the dual cache computes less", fixed={"block": "8"}, reference="llada:block=8",
        rival="fast_dllm_uncached:block=8,tau=0.9"),
    Sweep("fast_dllm_prefix", "tau", TAUS, (*MORE, below("computed", "0.9")),
        "abstract: cache and threshold together, little accuracy lost (Wu et al., 2025); rule: the prefix cache computes less",
        fixed={"block": "8"}, reference="llada:block=8", rival="fast_dllm_uncached:block=8,tau=0.9"),
    Sweep("fast_dllm_dream", "tau", TAUS, MORE, "abstract: cache and threshold together, little accuracy lost (Wu et al., "
        "2025)", fixed={"block": "8"}, reference="llada:block=8"),
    Sweep("fast_dllm_dream_quota", "tau", TAUS, MORE, "rule: of a share of an eighth what is sure enough is decided, the rest "
        "waits (Wu et al., 2025)", fixed={"steps": "4"}),
    Sweep("dpad", "tau", TAUS, MORE, "abstract: few of the masks behind a block suffice (Chen et al., 2025: DPad); rule: a "
        "lower threshold admits more", fixed={"block": "8"}, reference="llada:block=8"),
    Sweep("d3llm", "tau", ("0", "0.05", "0.2", "0.5", "1", "2"), LESS, "abstract: a balance of accuracy and parallelism (Qian "
        "et al., 2026: d3LLM); rule: a larger entropy admits more", fixed={"block": "8"}, reference="llada:block=8"),
    Sweep("d3llm_cache", "tau", ("0", "0.05", "0.2", "0.5", "1", "2"), LESS, "abstract: a balance of accuracy and parallelism "
        "(Qian et al., 2026: d3LLM); rule: a larger entropy admits more", fixed={"block": "8"}, reference="llada:block=8"),
    Sweep("sdar", "tau", TAUS, MORE, "rule: a call decides what is surer than the threshold, or one cell (Cheng et al., 2025: "
        "SDAR)", fixed={"block": "8", "steps": "8"}, reference="llada:block=8"),
    Sweep("fast_dllm_v2", "tau", TAUS, MORE, "abstract: up to 2.5 times faster at the same quality (Wu et al., 2025: "
        "Fast-dLLM v2); rule: a lower threshold admits more", why="the model is neither block-causal nor shifted, and its "
        "first block is shorter than a canvas in training: agreement is 0.81 to 0.83 at every threshold, the loss of the "
        "blocks"),
    Sweep("dparallel", "tau", ("0", "0.05", "0.2", "0.5", "1", "2"), LESS, "abstract: 256 steps become 30 on GSM8K at equal "
        "accuracy (Chen et al., 2025); rule: a larger entropy admits more"),
    Sweep("eb_sampler", "gamma", ("0", "0.01", "0.1", "0.5", "2", "8"), LESS,
        "rule: gamma bounds how much tokens decided together may depend on one another (Ben-Hamu et al., 2025)"),
    Sweep("klass", "epsilon", ("0.00001", "0.001", "0.01", "0.1", "1"), LESS,
        "rule: a larger KL threshold admits less stable positions (Kim et al., 2025)"),
    Sweep("local_leap", "relaxed", ("0.1", "0.3", "0.5", "0.75", "0.9"), MORE, "abstract: 14.2% of the steps, a negligible "
        "loss (Kong et al., 2025); rule: a lower threshold near anchors admits more"),
    Sweep("dinfer_hierarchy", "low", ("0.0", "0.2", "0.4", "0.6", "0.9"), MORE,
        "rule: a lower second threshold halves more runs of masks (Ma et al., 2025: dInfer)",
        rival="fast_dllm_uncached:tau=0.9", why="agreement is the same at every value: halving runs of masks saves a fifth of "
        "the calls here and costs nothing"),
    Sweep("slow_fast", "tau", TAUS, MORE, "rule: a lower threshold admits more positions in both phases (Wei et al., 2025)"),
    Sweep("r2_dllm", "spatial", ("0.3", "0.5", "0.8", "0.95", "1.0"), MORE, "abstract: up to 88% fewer steps at competitive "
        "quality (Du et al., 2026); rule: a lower threshold admits more windows", why="its dual cache costs more than the "
        "rule trades: without a cache the same model goes from 0.85 at one call to 0.95 at three (fast_dllm_uncached), here "
        "it stays below 0.86 at every setting"),
    Sweep("learn2pd", "tau", TAUS, MORE, "abstract: up to 22.58 times faster without loss (Bao et al., 2025); rule: a lower "
        "threshold of the filter admits more", note="the trained filter is stood for by the confidence of the cell"),
    Sweep("learn2pd_eot", "tau", TAUS, MORE, "abstract: up to 22.58 times faster without loss (Bao et al., 2025); rule: a "
        "lower threshold of the filter admits more", fixed={"ends": "[0]"}, note="the trained filter is stood for by the "
        "confidence of the cell", why="agreement is 0.82 to 0.86 at every threshold: where the text is predicted to end too "
        "early, the cut costs more than the threshold trades"),
    Sweep("set_block", "gamma", ("0", "0.05", "0.35", "1", "4"), LESS, "abstract: 3 to 5 times fewer calls at the same "
        "quality (Gat et al., 2025); rule: a larger bound admits more"),
    Sweep("sdlm", "tau", TAUS, MORE, "abstract: 2.1 times the throughput of Qwen-2.5 at its quality (Liu et al., 2025); rule: "
        "a lower threshold keeps more a call", why="windows of four masks are not what the model was trained on (canvases of "
        "32): agreement is 0.82 at every threshold, the loss of the windows"),
    Sweep("joint_threshold", "tau", ("0.3", "0.5", "0.7", "0.95", "1.0"), MORE,
        "rule: a lower threshold is faster, editing pays for it (Bie et al., 2026: LLaDA2.1)",
        why="each further call also edits, and the model was not trained to correct tokens: without editing agreement is 0.84 "
        "at tau = 0.3 (the sweep of edit), with it 0.75, and it falls with more calls"),
    Sweep("joint_threshold", "edit", ("0.5", "0.7", "0.9", "1.0"), (falls("agreement"),),
        "rule: editing decided tokens mends what an aggressive threshold got wrong (Bie et al., 2026: LLaDA2.1)",
        fixed={"tau": "0.3"}, why="the model was not trained to correct tokens: without editing agreement is 0.84, and every "
        "lower threshold for edits takes it further away"),
    Sweep("sglang_joint_threshold", "tau", ("0.3", "0.5", "0.7", "0.95", "1.0"), MORE,
        "rule: a lower threshold is faster, editing pays for it (Bie et al., 2026: LLaDA2.1)",
        why="each further call also edits, and the model was not trained to correct tokens: agreement falls with more calls, "
        "as that of joint_threshold does"),
    Sweep("joint_threshold_indel", "tau", ("0.3", "0.5", "0.7", "0.95", "1.0"), MORE,
        "rule: a lower threshold is faster, insertion and deletion pay for it (Bie et al., 2026: LLaDA2.2)",
        fixed={"delete": "97", "split": "67"}, note="the model was not trained with the two marks; characters that its texts "
        "lack stand for them", why="each further call also edits, and the model was not trained to correct tokens: agreement "
        "falls with more calls, as that of joint_threshold does"),
    # --- fewer calls, said to cost nothing
    Sweep("credit_decoding", "alpha", ("0", "0.35", "0.7", "1.4", "2.8"), KEPT,
        "abstract: 5.48 times faster and 0.48 points better than LLaDA (Wang et al., 2025)"),
    Sweep("coherent_contextual", "expand", ("0", "1", "4", "8"), KEPT, "abstract: up to 3.48 times faster and 3.91% better "
        "(Chen et al., 2025)", why="calls halve (32 to 15.4), but agreement falls from 1.0 to 0.93; why was not looked into"),
    Sweep("explore_exploit", "least", ("0", "1", "2", "4", "8"), KEPT, "abstract: fewer rounds than by confidence alone, "
        "quality kept (Fu et al., 2025)"),
    Sweep("prophet", "early", ("1", "3", "5", "7.5", "12"), MORE, "abstract: up to 3.4 times fewer steps at high quality (Li "
        "et al., 2025); rule: a smaller gap leaves earlier"),
    Sweep("latent_refinement", "stop", ("0", "0.001", "0.01", "0.1", "1"), KEPT,
        "abstract: up to 10.6 times faster with higher accuracy (Zhu et al., 2025); rule: a looser KL test stops earlier",
        why="calls fall by ten, but agreement by 0.08, more than the 0.05 that counts as kept; the shipped model has no "
        "trained refinement"),
    Sweep("adablock", "trust", ("0.0", "0.3", "0.6", "0.9", "1.0"), (rises("calls"), stays("agreement", 0.05)),
        "abstract: up to 5.3% more accurate at equal throughput (Lu et al., 2025); rule: at trust 1 blocks have a fixed "
        "length", fixed={"block": "4", "marks": "[0]"}, note="the delimiter is the end of the text, at trust 1 blocks are 4 "
        "positions long"),
    Sweep("adablock_dream", "trust", ("0.0", "0.3", "0.6", "0.9", "1.0"), (rises("calls"), stays("agreement", 0.05)),
        "abstract: up to 5.3% more accurate at equal throughput (Lu et al., 2025); rule: at trust 1 blocks have a fixed "
        "length", fixed={"block": "4", "marks": "[0]"}, note="the delimiter is the end of the text, at trust 1 blocks are 4 "
        "positions long"),
    Sweep("saber", "n", ("1", "2", "4", "8", "16"), LESS, "rule: more tokens a step are faster, and backtracking mends them "
        "(Dong et al., 2025)"),
    Sweep("dilated", "base", ("2", "4", "8", "16"), LESS, "abstract: trades the number of network calls against quality "
        "(Luxembourg et al., 2025)", why="the range is too small: one call for all positions agrees in 0.85 already, and the "
        "five calls that the smallest base plans, by place and not by certainty, gain 0.02"),
    # --- cache policies
    Sweep("dkv_cache", "reload", ("1", "2", "4", "32"),
        (falls("computed"), falls("agreement"), at("1", "agreement", 1.0, 0.0)),
        "abstract: almost lossless acceleration (Ma et al., 2025: dKV-Cache); rule: at 1 nothing is cached"),
    Sweep("dkv_greedy", "window", ("0", "2", "8", "32"), (rises("computed"), rises("agreement")),
        "rule: a wider window computes more of the masked neighbours anew (Ma et al., 2025: dKV-Cache)",
        fixed={"reload": "64"}, seeds=2, why="agreement is 0.82 to 0.83 at every window: the order drawn beforehand loses "
        "more than stale keys and values do"),
    Sweep("dkv_prefill", "steps", STEPS, MORE, "rule: fewer steps decide more positions together (Ma et al., 2025: dKV-Cache)",
        seeds=2, why="agreement is 0.82 to 0.85 without a trend; the shipped model is not shifted, as Dream is, and whether "
        "that is why was not tested"),
    Sweep("sparse_dllm", "keep", ("0.0", "0.25", "0.5", "1.0"), (rises("kv"), rises("agreement")),
        "abstract: up to 10 times the throughput at comparable quality (Song et al., 2025); rule: a smaller share reads less",
        fixed={"block": "8"}, reference="llada:block=8"),
    Sweep("recap", "cheap", ("0", "1", "4"), (falls("computed"), falls("agreement")),
        "abstract: up to 2.4 times faster with a minimal drop (Liu et al., 2025: ReCAP); rule: more cheap calls compute less",
        fixed={"steps": "16", "alone": "0"}, seeds=2),
    Sweep("d2f", "add", ("0.1", "0.25", "0.5", "0.75", "1.0"), MORE, "abstract: pipelined decoding trades efficiency against "
        "efficacy (Wang et al., 2025: D2F); rule: low values overlap more blocks", fixed={"block": "4"},
        why="the model is not block-causal: a block that is decided without the masks behind it, blocks of 4 in the place of "
        "a canvas of 32, agrees less, and overlapping more blocks shows it more of the canvas"),
    # --- orders, remasking, renoising
    Sweep("maskgit", "steps", STEPS, MORE, "rule: fewer steps decide more positions together (Mentzer et al., 2023; "
        "Pinyoanuntapong et al., 2023)", seeds=2),
    Sweep("hyperschedule", "delay", ("0", "1", "2"), MORE, "rule: between all positions at once and one after the other "
        "(Fathi et al., 2025)", fixed={"steps": "4"}, why="with four steps all three delays gave the same calls and "
        "agreement; other numbers of steps were not tried"),
    Sweep("entropy_renoise", "bound", ("0.1", "0.5", "2", "8"), LESS, "rule: the entropy bound says how many tokens a call "
        "keeps (DiffusionGemma, 2026)", fixed={"block": "32", "steps": "16"}, why="agreement is under 0.2 at every bound, so "
        "its order says nothing; the shipped model was not trained to renoise; calls do fall"),
    Sweep("remdm_loop", "rounds", ("0", "4", "8", "16"), (rises("calls"), rises("agreement")),
        "title: inference-time scaling; more rounds of remasking mend what a fast schedule got wrong (Wang et al., 2025)",
        fixed={"k": "4", "start": "1.0"}, why="agreement falls by 0.03 with the first rounds and stays there; why was not "
        "looked into"),
    Sweep("secondary_remask", "steps", ("2", "4", "8", "16"), MORE, "rule: more rounds decide fewer cells together, and mask "
        "again what they doubt (Liang et al., 2025)", why="agreement is 0.87 to 0.92 without a trend; why was not looked into"),
    Sweep("eoser", "least", ("0.0", "0.4", "1.0"), (falls("length"), at("1.0", "agreement", 1.0, 0.0)),
        "rule: discounting the end of text keeps a sampler of one block from ending too early (Yang et al., 2025)",
        why="lengths differ by a quarter of a token over all values, less than the shape asks; longer texts were not tried"),
    Sweep("eoser_ass", "steps", ("1", "2", "3", "4", "5", "6"), (*MORE, near("agreement", "6")),
        "rule: growing steps need log2 of the length, and do better than as many equal steps (Yang et al., 2025)",
        rival="llada:steps=6", why="one step agrees as well as six (0.85); more than six, and longer canvases, were not tried"),
    Sweep("pc_sampler", "lam", ("0", "0.25", "1"), (rises("order"), rises("agreement")), "abstract: quality depends on the "
        "order, and a calibrated one wins by over 10% (Huang et al., 2025); rule: lam turns it rightwards",
        note="frequencies are those of the training tasks", why="agreement falls, from 0.93 left to right to 0.83, where the "
        "paper reports better answers; frequencies are of a few training tasks"),
    # --- constraints, guidance, a second model
    Sweep("dingo", "per_step", ("1", "4", "8", "32"), LESS, "abstract: the constraint holds whatever is decided in parallel "
        "(Suresh et al., 2025); rule: more a step are fewer calls"),
    Sweep("soft_value", "m", ("1", "2", "4", "8"), (rises("calls"), rises("reward")),
        "rule: more samples a step give a higher reward (Li et al., 2024)", fixed={"steps": "4"}, temperature=1.0),
    Sweep("apd", "r", ("0.0", "0.3", "0.5", "0.7", "0.9", "1.0"), (falls("calls"), near("accuracy", "0.0")),
        "abstract: its parameters trade throughput against quality (Israel et al., 2025); rule: a larger r trusts the "
        "parallel model more", fixed={"look": "32"}, rival="apd:r=1.0,look=32"),
    # --- orders of images and sounds
    Sweep("arpg", "steps", ("2", "4", "8", "16"), MORE, "abstract: FID 1.94 with 64 steps (Li et al., 2025: ARPG); rule: "
        "fewer steps decide more together", seeds=2, why="more steps agree less; the shipped model was not trained for ARPG's "
        "two passes, and whether that is why was not tested"),
    Sweep("lpd", "steps", ("2", "4", "8", "16"), MORE, "abstract: 20 steps in the place of 256 without a loss (Zhang et al., "
        "2025); rule: fewer steps decide more together", fixed={"width": "8"}, seeds=2, why="more steps agree less; the "
        "shipped model was not trained with LPD's position queries, and whether that is why was not tested"),
    Sweep("zipar", "window", ("1", "2", "4", "8"), (*MORE, at("8", "agreement", 1.0, 0.0)),
        "abstract: up to 91% fewer forward passes (He et al., 2024); rule: a window of a whole row is raster order",
        fixed={"width": "8"}, reference="zipar:width=8,window=8", why="agreement is 1.0 at every window; fewer calls at a "
        "smaller window are as the rule says, but nothing is lost that could be traded"),
    Sweep("code_var", "drafted", ("0", "1", "2", "3", "4"),
        (rises("calls"), rises("agreement"), at("4", "agreement", 1.0, 0.0)),
        "abstract: FID 1.95 becomes 1.98, with fewer drafting steps 2.27 (Chen et al., 2024: CoDe)", fixed={"scales": "4"},
        reference="code_var:scales=4,drafted=4", note="the refiner is the shipped model without its last layer"),
    Sweep("codebook_delay", "delay", ("0", "1", "2", "8"), (*MORE, at("8", "agreement", 1.0, 0.0)),
        "abstract: flattened codebooks are best and slow, a delay is much faster (Lan et al., 2023)", fixed={"frames": "8"},
        reference="codebook_delay:frames=8,delay=8"),
    Sweep("group_masked", "coarse", ("1", "2", "4", "8"), MORE, "abstract: a small number of iterations gives high quality "
        "(Jeong et al., 2024); rule: fewer are worse", why="agreement is 0.857 at every number of coarse groups; why was not "
        "looked into"),
)  # fmt: skip

LEFT_OUT = {
    "generalized_aggressive": "drafts for a causal target, and the shipped masked model has another vocabulary",
    "joint_sampler": "needs its trained layer, and none is shipped",
}
"""Lossy programs with a masked model that have no sweep, and why."""
