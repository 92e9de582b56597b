(** Drafting as a program does it, for rules of whole trees: block verification and traversal verification.

    [block_grow] and [climb_grow]: one [grow], at any node, changes on average nothing of what a verification of the tree leads
    to, as [descend_grow] says of walks. So [grown_block_Law] and [grown_traverse_Law]: what these rules commit is lawful,
    whatever drafting program has grown the tree. Nothing is asked of the order in which it grew. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Traversal Grow.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section GrowTree.
Variables (R : realFieldType) (V : finType).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Notation tree := (tree R V).
Variable target : text -> row.
Hypothesis target_law : forall c, law (target c).

(** One draft alone, below the root: it is fair. *)
Definition sprout (q : row) : M tree := x <- draw q ;; ret (Node x q (Leaf R V) (Leaf R V)).

Lemma E_sprout q f : E (sprout q) f = dot q (fun x => f (Node x q (Leaf R V) (Leaf R V))).
Proof. by rewrite E_bind E_draw; apply: eq_dot => x; rewrite E_ret. Qed.

Lemma sprout_below q : law q -> fair_below (sprout q).
Proof.
move=> lq; apply: (@below_same _ _ (x <- draw q ;; b <- ret (Leaf R V) ;; n <- ret (Leaf R V) ;; ret (Node x q b n))).
  by move=> f; rewrite !E_bind; apply: eq_E => x; rewrite !(E_bind, E_ret).
by apply: (below_node (B := fun=> ret (Leaf R V)) (N := fun _ _ => ret (Leaf R V))) => // *; exact: below_leaf.
Qed.

Lemma sprout_fair q : law q -> fair (sprout q).
Proof.
move=> lq; apply: (@fair_same _ _ (x <- draw q ;; t <- ret (Leaf R V, Leaf R V) ;; ret (Node x q t.1 t.2))).
  by move=> f; rewrite !E_bind; apply: eq_E => x; rewrite E_bind !E_ret.
by apply: fair_node => // x _; apply: (@fair_same _ _ (ret (Leaf R V))) (fair_leaf R V) => f; rewrite E_fmap !E_ret.
Qed.

(** ** Block verification *)
Lemma block_grow q t : law q -> drawn t -> forall place c path a best J, 0 <= a <= 1 -> harmonic target c J ->
  let pay (o : text * row) := dot o.2 (fun v => J (c ++ rcons o.1 v)) in
  dot q (fun x => E (block target c path a best (grow place x q t)) pay) = E (block target c path a best t) pay.
Proof.
move=> lq; elim: t => [|y r below IHb next _] dt place c path a best J a01 hJ pay.
  have := block_pays target_law (sprout_fair lq) path best a01 hJ; cbv zeta; rewrite E_sprout => ->.
  by have := block_pays target_law (fair_leaf R V) path best a01 hJ; cbv zeta; rewrite E_ret.
case: dt => lr ry db _; have a0 : 0 <= a by case/andP: a01.
case: place => [|[] place] /=; try exact: dot_const.
rewrite -E_draw; under eq_E do rewrite E_bind.
rewrite E_swap E_bind; apply: eq_E => yes; rewrite E_draw; apply: IHb => //; exact: worth01.
Qed.

Lemma block_leaf c J : harmonic target c J -> E (block_rejection target c (Leaf R V)) (fun w => J (c ++ w)) = J c.
Proof. by move=> hJ; have := block_Law target_law (fair_leaf R V) hJ; rewrite E_bind E_ret. Qed.

Lemma block_rejection_grow c J place q t : harmonic target c J -> law q -> drawn t ->
  dot q (fun x => E (block_rejection target c (grow place x q t)) (fun w => J (c ++ w)))
  = E (block_rejection target c t) (fun w => J (c ++ w)).
Proof.
move=> hJ lq dt; pose pay (o : text * row) := dot o.2 (fun v => J (c ++ rcons o.1 v)).
have pays t' : E (block_rejection target c t') (fun w => J (c ++ w)) = E (block target c [::] 1 ([::], target c) t') pay.
  by rewrite E_bind; apply: eq_E => o; rewrite E_bind E_draw; apply: eq_dot => v; rewrite E_ret.
by under eq_dot do rewrite pays; rewrite pays; apply: block_grow => //; rewrite ler01 lexx.
Qed.

Theorem grown_block_Law c A (d : draft R V A) : fits d -> Law target c (o <- build d (Leaf R V) ;; block_rejection target c o.1).
Proof.
move=> fd J hJ; rewrite E_bind -[RHS](block_leaf hJ).
apply: (build_keeps (value := fun t => E (block_rejection target c t) (fun w => J (c ++ w)))) => // *.
exact: block_rejection_grow.
Qed.

(** ** Traversal verification *)

(** A node of worth 1 does not fail. *)
Lemma climb_sure t : drawn t -> forall root c p, law p -> always (fun o => isSome o) (climb target root c 1 p t).
Proof.
elim: t => [|x q below IHb next IHn] /=.
  move=> _ root c p lp; apply: always_bind; rewrite (_ : (if root then 1 else 1) = 1); last by case: root.
  rewrite /coin clip_id ?ler01 ?lexx // subrr; split; last by split=> //; rewrite eqxx.
  by move=> _; apply: always_fmap; apply: always_true.
case=> lq qx db dn root c p lp; apply: always_bind.
have lx : law (target (rcons c x)) by [].
set z := total _; have [z0|z0] := ltP 0 z.
  apply: always_true => -[w|]; first exact: always_ret.
  rewrite /back subrr addr0 divff ?gt_eqF //; apply: IHn => //.
  by apply: law_normalize => [v|]; [exact: relu_ge0 | rewrite gt_eqF].
have pq : p =1 q.
  apply: excess0 => //; have := missing_ge0 1 p q; rewrite -/z => z1.
  have : z = 0 by apply/eqP; rewrite eq_le z0 z1.
  by rewrite /z => <-; apply: eq_bigr => v _; rewrite /missing mul1r.
have -> : worth 1 p q x = 1 by rewrite /worth mul1r pq divff // minxx.
apply: always_impl (IHb db false (rcons c x) _ lx) => -[w _|//]; exact: always_ret.
Qed.

Lemma climb_grow q t : law q -> drawn t -> forall place (root : bool) c a p J g,
  (root -> a = 1) -> 0 <= a <= 1 -> law p -> harmonic target c J ->
  dot q (fun x => E (climb target root c a p (grow place x q t)) (value J c g)) = E (climb target root c a p t) (value J c g).
Proof.
move=> lq; have qs : E (draw q) (fun=> 1) = 1 by case: (prob_draw lq).
elim: t => [|y r below IHb next IHn] dt place root c a p J g ra a01 lp hJ.
  have := climb_pays target_law (sprout_below lq) (g := fun=> g) (k := (1 - a) * g) ra a01 lp hJ (fun=> erefl); rewrite E_sprout => ->.
  by have := climb_pays target_law (below_leaf R V) (g := fun=> g) (k := (1 - a) * g) ra a01 lp hJ (fun=> erefl); rewrite E_ret.
case: dt => lr ry db dn; have [a0 a1] := andP a01.
set w := worth a p r y; have w01 : 0 <= w <= 1 by exact: worth01.
set m := missing a p r; set z := total m.
pose a2 := if 0 < z then back a z else 0; pose p2 := if 0 < z then normalize m else p.
pose G n := E (climb target root c a2 p2 n) (value J c g).
have unfold b n : E (climb target root c a p (Node y r b n)) (value J c g)
    = E (climb target false (rcons c y) w (target (rcons c y)) b) (value J (rcons c y) (G n)).
  rewrite /= E_bind; apply: eq_E => -[u|] //=; by rewrite E_ret /= cat_rcons.
have inb place' : dot q (fun x => E (climb target root c a p (Node y r (grow place' x q below) next)) (value J c g))
    = E (climb target root c a p (Node y r below next)) (value J c g).
  under eq_dot do rewrite unfold; rewrite unfold; apply: IHb => //; exact: harmonic_rcons.
have inn place' : dot q (fun x => E (climb target root c a p (Node y r below (grow place' x q next))) (value J c g))
    = E (climb target root c a p (Node y r below next)) (value J c g).
  under eq_dot do rewrite unfold; rewrite unfold -E_draw E_swap.
  have a201 : 0 <= a2 <= 1 by rewrite /a2; case: ltP => [/ltW ?|_]; [exact: back01 | rewrite lexx ler01].
  have lp2 : law p2.
    by rewrite /p2; case: ltP => // z0; apply: law_normalize => [v|]; [exact: relu_ge0 | rewrite gt_eqF].
  have same_G : (root -> a2 = 1) -> E (draw q) (fun x => G (grow place' x q next)) = G next.
    by move=> ra2; rewrite E_draw /G IHn.
  have [sure|unsure] := boolP (root && ~~ (0 < z)); last first.
    apply: eq_E => -[u|] /=; first by rewrite E_const.
    apply: same_G => rt; move: unsure; rewrite rt negbK /a2 => z0.
    by rewrite z0 /back ra // subrr addr0 divff // gt_eqF.
  case/andP: sure => rt; rewrite -leNgt => z0.
  have e : w = 1.
    rewrite /w /worth (ra rt) mul1r; have pr : p =1 r; last by rewrite pr divff // minxx.
    apply: excess0 => //; have /eqP <- : z == 0 by rewrite eq_le z0 missing_ge0.
    by apply: eq_bigr => v _; rewrite /m /missing (ra rt) mul1r.
  rewrite e; apply: E_always; apply: always_impl (climb_sure db false (rcons c y) (target_law _)) => -[u|//] _ /=.
  by rewrite E_const.
case: place => [|[] place]; [exact: inn [::] | exact: inb | exact: inn].
Qed.

Lemma traverse_leaf c J : harmonic target c J -> E (traverse target c (Leaf R V)) (fun w => J (c ++ w)) = J c.
Proof. by move=> hJ; have := traverse_Law target_law (below_leaf R V) hJ; rewrite E_bind E_ret. Qed.

Lemma traverse_grow c J place q t : harmonic target c J -> law q -> drawn t ->
  dot q (fun x => E (traverse target c (grow place x q t)) (fun w => J (c ++ w))) = E (traverse target c t) (fun w => J (c ++ w)).
Proof.
move=> hJ lq dt.
have pays t' : E (traverse target c t') (fun w => J (c ++ w)) = E (climb target true c 1 (target c) t') (value J c (J c)).
  by rewrite E_fmap; apply: eq_E => -[w|] //=; rewrite cats0.
by under eq_dot do rewrite pays; rewrite pays; apply: climb_grow => //; rewrite ler01 lexx.
Qed.

Theorem grown_traverse_Law c A (d : draft R V A) : fits d -> Law target c (o <- build d (Leaf R V) ;; traverse target c o.1).
Proof.
move=> fd J hJ; rewrite E_bind -[RHS](traverse_leaf hJ).
apply: (build_keeps (value := fun t => E (traverse target c t) (fun w => J (c ++ w)))) => // *; exact: traverse_grow.
Qed.

End GrowTree.
