(** Programs that are not lossless: the theorems can fail.

    [forgetful_lossy]: the rule [rejection] without the line that takes the residual has the judgment [lossless] under no
    invariant, over every real field and every vocabulary of two tokens or more. [mislabelled_lossy]: a draft that states a
    distribution which it was not drawn from makes [rejection] itself wrong. So does a draft that is grown only if it is a certain
    token ([chosen_lossy]), and one that is grown twice ([twice_lossy]): the hypotheses [fair] and [fits], linear use, and the label
    check that stands behind them, are needed. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Grow.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Lossy.
Variables (R : realFieldType) (V : finType).
Notation row := (row R V).

(** [rejection] without the line [p = normalize(relu(p - x.law))]. *)
Definition forgetful : rule R V := {|
  carried := row;
  start p := ret p;
  look p x q := b <- coin (p x / q x) ;; ret (if b then None else Some p);
  stop p := draw p
|}.

Variables a b : V.
Hypothesis ab : a != b.

(** One half for each of the two tokens. *)
Definition halves : row := fun v => (onehot R a v + onehot R b v) / 2%:R.

Lemma dot_halves f : dot halves f = (f a + f b) / 2%:R.
Proof.
rewrite -(dot_onehot a f) -(dot_onehot b f) /dot -big_split mulr_suml /=.
by apply: eq_bigr => v _; rewrite /halves mulrAC mulrDl.
Qed.

Lemma halves_law : law halves.
Proof.
have [a0 a1] := law_onehot R a; have [b0 b1] := law_onehot R b; split=> [v|].
  by rewrite /halves; apply: divr_ge0; [exact: addr_ge0 (a0 v) (b0 v) | exact: ler0n].
have := dot_halves (fun=> 1); rewrite /dot; under eq_bigr do rewrite mulr1.
by move=> ->; rewrite -mulr2n divff // pnatr_eq0.
Qed.

(** The draft is always a, and the target says a or b. *)
Lemma forgetful_mass :
  E (l <- sample (Sib (onehot R a) (fun=> Nomore R V)) ;; apply forgetful halves l) (onehot R a) = 3%:R / 4%:R.
Proof.
rewrite E_bind /= E_bind E_draw dot_onehot /= E_bind E_ret E_ret /apply E_bind E_ret /=.
rewrite E_bind E_bind E_coin /= !E_ret /= ?E_ret E_draw dot_halves /halves /onehot !eqxx (eq_sym b a) (negPf ab) ?addr0 ?mul1r ?divr1 ?mulr1.
have two : 2%:R != 0 :> R by rewrite pnatr_eq0.
have half : 1 - 2%:R^-1 = 2%:R^-1 :> R by rewrite -[X in X - _](mulVf two) mulr_natr mulr2n addrK.
rewrite clip_id ?half; last by rewrite invr_ge0 ler0n invf_le1 ?ltr0n // ler1n.
have -> : 3%:R / 4%:R = (2%:R + 1) * (2%:R^-1 * 2%:R^-1) :> R by rewrite -invfM -natrM -(natrD _ 2 1).
by rewrite mulrDl mul1r mulrA mulfV // mul1r.
Qed.

(** No invariant makes it lossless. *)
Theorem forgetful_lossy valid owed : ~ @lossless R V forgetful valid owed.
Proof.
have ls : laws (Sib (onehot R a) (fun=> Nomore R V)) by split=> // ; exact: law_onehot.
move=> L; have := siblings_lossless L ls halves_law (onehot R a).
rewrite forgetful_mass E_draw dot_halves /onehot eqxx (eq_sym b a) (negPf ab) addr0.
have four : 4%:R != 0 :> R by rewrite pnatr_eq0.
have -> : 1 / 2%:R = 2%:R / 4%:R :> R by rewrite (natrM R 2 2) invfM mulrA mulfV ?pnatr_eq0.
by move/(mulIf (invr_neq0 four))/eqP; rewrite eqr_nat.
Qed.

(** A draft that states a distribution it was not drawn from: always a, as if a or b. The target is [halves] everywhere. *)
Definition starts (t : seq V) : R := if t is x :: _ then onehot R a x else 2%:R^-1.

Lemma starts_harmonic : harmonic (fun=> halves) [::] starts.
Proof.
case=> [|x w] /=; last by rewrite dot_const //; exact: halves_law.
by rewrite dot_halves /= /onehot eqxx (eq_sym b a) (negPf ab) addr0 mul1r.
Qed.

Let node := Node a halves (Leaf R V) (Leaf R V).

Lemma starts_node : E (walk (fun=> halves) (rejection R V) [::] node) starts = 1.
Proof.
have ha : halves a = 2%:R^-1 by rewrite /halves /onehot eqxx (negPf ab) addr0 mul1r.
rewrite /walk /= E_bind E_ret /= E_bind E_bind E_coin /= ha mulfV ?invr_eq0 ?pnatr_eq0 //.
rewrite clip_id ?ler01 ?lexx // subrr mul0r addr0 mul1r E_ret /= E_bind E_ret E_fmap E_bind E_draw /=.
by under eq_dot do rewrite E_ret /onehot eqxx; rewrite (dot_const _ halves_law).
Qed.

Lemma half_one : 2%:R^-1 != 1 :> R.
Proof.
have two : 2%:R != 0 :> R by rewrite pnatr_eq0.
by rewrite -(inj_eq (mulIf two)) mul1r mulVf // eq_sym (eqr_nat R 2 1).
Qed.

Theorem mislabelled_lossy : ~ Law (fun=> halves) [::] (walk (fun=> halves) (rejection R V) [::] node).
Proof. by move=> L; have := L _ starts_harmonic; rewrite starts_node /= => /esym/eqP; rewrite (negPf half_one). Qed.

(** A draft that is grown if it is a: drawn from the distribution that it states, and read before it is grown. *)
Theorem chosen_lossy : ~ Law (fun=> halves) [::]
  (x <- draw halves ;; walk (fun=> halves) (rejection R V) [::] (if x == a then node else Leaf R V)).
Proof.
have leaf : E (walk (fun=> halves) (rejection R V) [::] (Leaf R V)) starts = 2%:R^-1.
  exact: (walk_leaf (fun=> halves_law) (@rejection_lossless R V) starts_harmonic).
move=> L; have := L _ starts_harmonic; rewrite E_bind E_draw dot_halves eqxx (eq_sym b a) (negPf ab) starts_node leaf /= => h.
have two : 2%:R != 0 :> R by rewrite pnatr_eq0.
have := h; rewrite -[X in _ = X]mul1r => /(mulIf (invr_neq0 two))/eqP.
by rewrite -subr_eq0 addrAC subrr add0r invr_eq0 (negPf two).
Qed.

(** A draft that is grown twice, the second time below itself. *)
Definition starts_twice (t : seq V) : R :=
  match t with
  | [::] => 2%:R^-1 * 2%:R^-1
  | [:: x] => onehot R a x * 2%:R^-1
  | [:: x, y & _] => onehot R a x * onehot R a y
  end.

Lemma dot_starts : dot halves (onehot R a) = 2%:R^-1.
Proof. by rewrite dot_halves /onehot eqxx (eq_sym b a) (negPf ab) addr0 mul1r. Qed.

Lemma starts_twice_harmonic : harmonic (fun=> halves) [::] starts_twice.
Proof.
case=> [|x [|y w]] /=; last by rewrite dot_const //; exact: halves_law.
  by rewrite -{1}dot_starts /dot mulr_suml; apply: eq_bigr => v _; rewrite mulrA.
by rewrite -dot_starts /dot mulr_sumr; apply: eq_bigr => v _; rewrite mulrCA.
Qed.

Theorem twice_lossy : ~ Law (fun=> halves) [::]
  (x <- draw halves ;; walk (fun=> halves) (rejection R V) [::] (Node x halves (Node x halves (Leaf R V) (Leaf R V)) (Leaf R V))).
Proof.
have two : 2%:R != 0 :> R by rewrite pnatr_eq0.
have walked x : halves x != 0 ->
    E (walk (fun=> halves) (rejection R V) [::] (Node x halves (Node x halves (Leaf R V) (Leaf R V)) (Leaf R V))) starts_twice = onehot R a x.
  move=> hx; have one : clip (halves x / halves x) = 1 by rewrite divff // clip_id ?ler01 ?lexx.
  rewrite /walk /= !(E_bind, E_fmap, E_ret, E_coin) /= one subrr !mul0r !addr0 !mul1r.
  under eq_E do rewrite E_ret; rewrite E_draw (dot_const _ halves_law).
  by rewrite /onehot; case: eqP => _; rewrite ?mulr1 ?mulr0.
have ha : halves a != 0 by rewrite /halves /onehot eqxx (negPf ab) addr0 mul1r invr_eq0.
have hb : halves b != 0 by rewrite /halves /onehot eqxx (eq_sym b a) (negPf ab) add0r mul1r invr_eq0.
move=> L; have := L _ starts_twice_harmonic; rewrite E_bind E_draw dot_halves (walked a ha) (walked b hb) /= /onehot eqxx (eq_sym b a) (negPf ab).
rewrite addr0 => /(mulIf (invr_neq0 two)) => /esym/eqP; by rewrite (negPf half_one).
Qed.

End Lossy.
