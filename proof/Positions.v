(** Claims about tokens imply claims about distributions.

    The target's own token after a text is chosen by the noise of that position. [tokens_distribution]: if the noise of each
    position is independent, and chooses from a row with that row's distribution, then own tokens have the distribution of the
    specification. [tokens_run]: so a program that commits own tokens, given the noise of the target, whatever all other noise is,
    commits texts of the specification's distribution. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Steps Tokens Linear.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Positions.
Variables (R : realFieldType) (V : finType) (N : Type) (b0 : N).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Variables (target : text -> row) (ended : text -> bool).
Variable noise : nat -> M N.
Hypothesis noise_prob : forall k, prob (noise k).

(** How a noise chooses a token from a row. *)
Variable pick : row -> N -> V.
Hypothesis faithful : forall c, fmap (pick (target c)) (noise (size c)) ~ draw (target c).

Definition own (w : nat -> N) (c : text) : V := pick (target c) (w (size c)).

Lemma own_text_later w w' n c : (forall j, (size c <= j)%N -> w j = w' j) -> own_text (own w) ended n c = own_text (own w') ended n c.
Proof.
elim: n c => [|n IH] c h //=; case: (ended c) => //; rewrite /own -(h (size c)) //; congr (_ :: _).
by apply: IH => j; rewrite size_rcons => /ltnW; exact: h.
Qed.

Theorem tokens_distribution ks n c : uniq ks -> (forall i, (i < n)%N -> (size c + i)%N \in ks) ->
  fmap (fun w => own_text (own w) ended n c) (table b0 noise ks) ~ spec target ended n c.
Proof.
move=> uks; elim: n c => [|n IH] c kks f; rewrite E_fmap /=; first by rewrite E_ret E_const // mass_table.
case: (ended c); first by rewrite E_ret E_const // mass_table.
have ck : size c \in ks by have := kks 0%N isT; rewrite addn0.
pose F b w := f (pick (target c) b :: own_text (own w) ended n (rcons c (pick (target c) b))).
rewrite -/(F _ _) (table_split b0 noise_prob (F := F) uks ck) => [|b w w' h]; last first.
  by rewrite /F (@own_text_later w w') // => j; rewrite size_rcons => cj; apply: h; rewrite gtn_eqF.
rewrite E_bind -faithful E_fmap; apply: eq_E => b; rewrite E_fmap -(IH (rcons c _)) ?E_fmap // => i ni.
by rewrite size_rcons addSnnS; exact: kks.
Qed.

Corollary tokens_run ks n c (program : (nat -> N) -> M text) : uniq ks -> (forall i, (i < n)%N -> (size c + i)%N \in ks) ->
  (forall w, program w ~ ret (own_text (own w) ended n c)) -> (w <- table b0 noise ks ;; program w) ~ spec target ended n c.
Proof.
move=> uks kks h f; rewrite -(tokens_distribution uks kks) E_bind E_fmap; apply: eq_E => w.
by rewrite h E_ret.
Qed.

End Positions.
