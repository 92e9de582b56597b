(** Draws that are made in one step and read in the next.

    [unread_steps]: a program that draws at the end of a step what only the next step reads, and carries it in its state, commits
    what the program does that draws it at the beginning of the next step. For that one a step can be judged alone. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Steps.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Unread.
Variables (R : realFieldType) (V : finType) (S X : Type).
Notation M := (M R).
Notation text := (seq V).
Variable ended : text -> bool.

(** [ahead c s]: what is drawn at the end of a step that leaves s at c, and is read in the next one only. *)
Variable ahead : text -> S -> M X.
Hypothesis ahead_prob : forall c s, prob (ahead c s).
Variable body : text -> S -> X -> M (outcome V S).

(** The step as it is written carries the draws; the other draws them at its beginning. *)
Definition carrying c (s : S * X) : M (outcome V (S * X)) :=
  o <- body c s.1 s.2 ;;
  if o.2 is Some s' then x <- ahead (c ++ o.1) s' ;; ret (o.1, Some (s', x)) else ret (o.1, None).
Definition drawing c s : M (outcome V S) := x <- ahead c s ;; body c s x.

Lemma carrying_same k : forall n c s, (x <- ahead c s ;; run ended carrying k n c (s, x)) ~ run ended drawing k n c s.
Proof.
elim: k => [|k IH] n c s f; rewrite E_bind; first by rewrite /= E_const //; case: (ahead_prob c s).
rewrite /run -/run -/(run ended drawing); case: ifP => _; first by rewrite /= E_const //; case: (ahead_prob c s).
rewrite E_bind E_bind; apply: eq_E => x; rewrite E_bind E_bind; apply: eq_E => -[w [s'|]] /=; last by rewrite E_ret.
rewrite E_bind; under eq_E do rewrite E_ret /= /first.
rewrite /first; case: ifP => _; first by rewrite E_const //; case: (ahead_prob (c ++ w) s').
under eq_E do rewrite E_fmap; rewrite E_fmap -(IH (n - size w)%N (c ++ w) s') E_bind.
by [].
Qed.

(** The theorem: it is enough that the steps which draw at their beginning are right. *)
Theorem unread_steps (spec : nat -> text -> M text) (ok : text -> S -> Prop) :
  (forall n c s, ok c s -> run ended drawing n n c s ~ spec n c) ->
  forall n c s, ok c s -> (x <- ahead c s ;; run ended carrying n n c (s, x)) ~ spec n c.
Proof. by move=> h n c s oks; apply: same_trans (carrying_same n n c s) (h n c s oks). Qed.

End Unread.
