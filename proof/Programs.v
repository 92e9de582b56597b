(** Whole algorithms of the standard library, for every vocabulary, target, drafter, parameter, prompt and request.

    [speculative], [recursive_sd], [block_verification] and [traversal] commit texts with the distribution of the specification
    [autoregressive(target)]. Each is a few lines from the theorems before: so much a derivation of the kernel amounts to. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Steps Traversal.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Programs.
Variables (R : realFieldType) (V : finType).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Notation tree := (tree R V).

Variables (target drafter : text -> row) (ended : text -> bool).
Hypotheses (target_law : forall c, law (target c)) (drafter_law : forall c, law (drafter c)).

(** What is fair for a traversal is fair for a walk. *)
Lemma below_fair (T : M tree) : fair_below T -> fair T.
Proof.
elim=> [|q B N lq fB IHB fN IHN|A d P U d1 aP _ IH|U U' e _ IH].
- exact: fair_leaf.
- pose K x := b <- B x ;; n <- N x b ;; ret (b, n).
  apply: (@fair_same _ _ (x <- draw q ;; t <- K x ;; ret (Node x q t.1 t.2))) => [f|].
    rewrite !E_bind; apply: eq_E => x; rewrite /K !E_bind; apply: eq_E => b; rewrite !E_bind.
    by apply: eq_E => n; rewrite !E_ret.
  apply: fair_node => // x qx.
    apply: fair_same (IHB x qx) => f; rewrite E_fmap E_bind; apply: eq_E => b; rewrite E_bind.
    by under eq_E do rewrite E_ret /=; rewrite E_const //; exact/mass_below/fN.
  apply: (@fair_same _ _ (b <- B x ;; N x b)) => [f|].
    rewrite E_fmap !E_bind; apply: eq_E => b; rewrite E_bind; apply: eq_E => n; by rewrite E_ret.
  by apply: (@fair_mix _ _ _ (B x) (fun=> True)) => // *; [exact/mass_below/fB | exact: always_true | exact: IHN].
- exact: fair_mix aP IH.
- exact: fair_same e IH.
Qed.

(** [grow distinct(q, k)]: up to k siblings, drawn without replacement; [B x] is what is drafted below x. *)
Definition without (q : row) x : row := fun v => if v == x then 0 else q v.

Fixpoint distinct (B : V -> M tree) k (q : row) : M tree :=
  if k is k'.+1 then
    if total q == 0 then ret (Leaf R V)
    else x <- draw (normalize q) ;; b <- B x ;; n <- distinct B k' (without q x) ;; ret (Node x (normalize q) b n)
  else ret (Leaf R V).

(** [for level in shape: grow distinct(drafter(t.frontier), level.width)] *)
Fixpoint levels (shape : seq nat) c : M tree :=
  if shape is k :: shape' then distinct (fun x => levels shape' (rcons c x)) k (drafter c) else ret (Leaf R V).

Lemma fair_levels shape c : fair_below (levels shape c).
Proof.
elim: shape c => [|k shape IH] c; first exact: below_leaf.
have q0 v : 0 <= drafter c v by case: (drafter_law c).
rewrite /=; move: (drafter c) q0; elim: k => [|k IHk] q q0 /=; first exact: below_leaf.
case: eqP => [_|/eqP t0]; first exact: below_leaf.
apply: (below_node (N := fun x _ => _)) => [|x _|x _ _]; [exact: law_normalize | exact: IH |].
by apply: IHk => v; rewrite /without; case: eqP.
Qed.

Lemma fair_chain_below n c : fair_below (chain drafter n c).
Proof.
elim: n c => [|n IH] c /=; first exact: below_leaf.
apply: (@below_same _ _ (x <- draw (drafter c) ;; b <- chain drafter n (rcons c x) ;; n <- ret (Leaf R V) ;; ret (Node x (drafter c) b n))).
  by move=> f; rewrite !E_bind; apply: eq_E => x; rewrite !E_bind; apply: eq_E => b; rewrite E_bind !E_ret.
apply: (below_node (N := fun _ _ => ret (Leaf R V))) => [|x _|x _ _]; [exact: drafter_law | exact: IH | exact: below_leaf].
Qed.

(** [speculative(gamma)] and [recursive_sd(shape)]. *)
Theorem speculative_lossless gamma n c :
  run ended (commit ended (verified target (rejection R V) (fun c _ => chain drafter gamma c) (fun _ _ _ _ => ret tt))) n n c tt
  ~ spec target ended n c.
Proof.
apply: verified_lossless (@rejection_lossless R V) _ _ _ _ _ => // *; [exact/below_fair/fair_chain_below | exact: prob_ret].
Qed.

Theorem recursive_sd_lossless shape n c :
  run ended (commit ended (verified target (rejection R V) (fun c _ => levels shape c) (fun _ _ _ _ => ret tt))) n n c tt
  ~ spec target ended n c.
Proof.
apply: verified_lossless (@rejection_lossless R V) _ _ _ _ _ => // *; [exact/below_fair/fair_levels | exact: prob_ret].
Qed.

(** Rules of whole trees: [block_verification(gamma)] and [traversal(shape)]. *)
Section WholeTree.
Variables (rule : text -> tree -> M text) (draft : text -> M tree).
Definition whole c (s : unit) : M (text * unit) := t <- draft c ;; w <- rule c t ;; ret (w, s).

Lemma whole_lossless :
  (forall c, Law target c (t <- draft c ;; rule c t)) -> (forall c t, always (fun w => 0 < size w)%N (rule c t)) ->
  forall n c, run ended (commit ended whole) n n c tt ~ spec target ended n c.
Proof.
move=> L ne n c; apply: (@lawful_steps _ _ _ target target_law _ _ (fun _ _ => True)) => // {}c s _ _.
  apply: Law_same (L c) => f; rewrite /whole E_fmap !E_bind; apply: eq_E => t.
  by rewrite E_bind; apply: eq_E => w; rewrite E_ret.
apply: always_bind; apply: always_true => t; apply: always_bind; apply: always_impl (ne c t) => w w0; exact: always_ret.
Qed.
End WholeTree.

Theorem block_verification_lossless gamma n c :
  run ended (commit ended (whole (block_rejection target) (chain drafter gamma))) n n c tt ~ spec target ended n c.
Proof.
apply: whole_lossless => [{}c|{}c t]; first exact/block_Law/below_fair/fair_chain_below.
apply: always_bind; apply: always_true => o; apply: always_bind; apply: always_true => y.
by apply: always_ret; rewrite size_rcons.
Qed.

Theorem traversal_lossless shape n c :
  run ended (commit ended (whole (traverse target) (levels shape))) n n c tt ~ spec target ended n c.
Proof. by apply: whole_lossless => [{}c|{}c t]; [exact/traverse_Law/fair_levels | exact: traverse_nonempty]. Qed.

End Programs.
