(** Drafting as a program does it: one [grow] after the other.

    A tree grows by one draft x ~ q, as the last child of any node. Which node, which distribution, and whether at all, may depend
    on all that was drawn before. [descend_grow]: no such step changes, on average over x, what a walk by a lossless rule leads to.
    So [grown_Law]: a walk down what any drafting program has grown commits a lawful path. The program may also grow a path that was
    committed elsewhere, each token with the distribution that it states ([graft_keeps]: [drawn(xs, q)] of the language). *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Steps Tokens.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Grow.
Variables (R : realFieldType) (V : finType).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Notation tree := (tree R V).

(** [place]: from the first child of the root, [true] goes to the first child of where one stands, [false] to the next sibling;
    at the end of the place, x becomes the last sibling. *)
Fixpoint grow (place : seq bool) x q (t : tree) : tree :=
  if t is Node y r below next then
    if place is true :: place' then Node y r (grow place' x q below) next
    else Node y r below (grow (behead place) x q next)
  else Node x q (Leaf R V) (Leaf R V).

(** Every node of the tree can have been drawn. *)
Fixpoint drawn (t : tree) : Prop :=
  if t is Node x q below next then [/\ law q, q x != 0, drawn below & drawn next] else True.

Lemma drawn_grow place x q t : law q -> q x != 0 -> drawn t -> drawn (grow place x q t).
Proof.
move=> lq qx; elim: t place => [|y r b IHb n IHn] place //= [lr ry db dn].
by case: place => [|[] place] /=; split; auto.
Qed.

(** The tokens of a path, grown one after the other; each states the distribution that the drafter has after those before it. *)
Section Graft.
Variables (drafter : text -> row) (c : text) (place : text -> seq bool).

Definition graft (w : text) (t : tree) : tree :=
  (foldl (fun s x => (rcons s.1 x, grow (place s.1) x (drafter (c ++ s.1)) s.2)) ([::], t) w).2.

Lemma graft_rcons w x t : graft (rcons w x) t = grow (place w) x (drafter (c ++ w)) (graft w t).
Proof.
rewrite /graft -cats1 foldl_cat /=; suff -> : (foldl (fun s y => (rcons s.1 y, grow (place s.1) y (drafter (c ++ s.1)) s.2)) ([::], t) w).1 = w by [].
by elim/last_ind: w => //= w y IH; rewrite -cats1 foldl_cat /= IH cats1.
Qed.

Lemma drawn_graft w t : (forall u, law (drafter u)) -> drawn t -> inside drafter c w -> drawn (graft w t).
Proof.
move=> ld dt; elim/last_ind: w => [|w x IH] //; rewrite graft_rcons -cats1 inside_cat /= andbT => /andP[iw dx].
by apply: drawn_grow => //; exact: IH.
Qed.

(** What [drawn(xs, q)] states is true of a path that is lawful for the drafter: growing it changes nothing either. *)
Lemma graft_keeps (value : tree -> R) (W : M text) t :
  (forall place q t, law q -> drawn t -> dot q (fun x => value (grow place x q t)) = value t) ->
  (forall u, law (drafter u)) -> prob W -> Law drafter c W -> drawn t -> E W (fun w => value (graft w t)) = value t.
Proof.
move=> keeps ld pW LW dt; pose J u := let w := drop (size c) u in if inside drafter c w then value (graft w t) else 0.
have Jc w : J (c ++ w) = if inside drafter c w then value (graft w t) else 0 by rewrite /J drop_size_cat.
have hJ : harmonic drafter c J.
  move=> w; rewrite Jc; have [iw|ni] := boolP (inside drafter c w); last first.
    by rewrite -[LHS](dot_const _ (ld (c ++ w))); apply: eq_dot => v; rewrite rcons_cat Jc -cats1 inside_cat (negPf ni).
  rewrite -(keeps (place w) _ _ (ld (c ++ w)) (drawn_graft ld dt iw)); apply: eq_bigr => v _.
  have [->|dv] := eqVneq (drafter (c ++ w) v) 0; first by rewrite !mul0r.
  by rewrite rcons_cat Jc -cats1 inside_cat iw /= dv cats1 graft_rcons.
have := LW J hJ; rewrite -[in J c](cats0 c) Jc /= /graft /= => <-.
by apply: E_always; apply: always_impl (Law_inside ld pW LW) => w iw; rewrite Jc iw.
Qed.
End Graft.

(** A drafting program: it may read the tree, keep a state, draw other things; it draws drafts and grows them, or grows a path that
    was drawn elsewhere ([drawn(xs, q)]: what an inner verification has committed). *)
Inductive draft (A : Type) :=
| Done (a : A)
| Toss (B : Type) (d : M B) (k : B -> draft A)                        (* any other random choice *)
| Grow (place : seq bool) (q : row) (k : V -> draft A)
| Inner (drafter : text -> row) (c : text) (W : M text) (place : text -> seq bool) (k : text -> draft A).

Fixpoint fits A (d : draft A) : Prop :=
  match d with
  | Done _ => True
  | Toss B d k => prob d /\ forall b, fits (k b)
  | Grow _ q k => law q /\ forall x, fits (k x)
  | Inner drafter c W _ k => [/\ forall u, law (drafter u), prob W, Law drafter c W & forall w, fits (k w)]
  end.

(** The tree that it leaves, from a tree on, and its result. *)
Fixpoint build A (d : draft A) (t : tree) : M (tree * A) :=
  match d with
  | Done a => ret (t, a)
  | Toss B d k => b <- d ;; build (k b) t
  | Grow place q k => x <- draw q ;; build (k x) (grow place x q t)
  | Inner drafter c W place k => w <- W ;; build (k w) (graft drafter c place w t)
  end.

(** If no grow changes the value of a tree, no drafting program does. *)
Lemma build_keeps (value : tree -> R) :
  (forall place q t, law q -> drawn t -> dot q (fun x => value (grow place x q t)) = value t) ->
  forall A (d : draft A) t, fits d -> drawn t -> E (build d t) (fun o => value o.1) = value t.
Proof.
move=> keeps A; elim=> [a|B d k IH|place q k IH|drafter c W place k IH] t /=; first by rewrite E_ret.
- case=> [[_ d1] fk] dt; rewrite E_bind -[RHS](E_const _ d1); apply: eq_E => b; exact: IH.
- case=> lq fk dt; rewrite E_bind E_draw -(keeps place q t lq dt); apply: eq_bigr => x _.
  have [->|qx] := eqVneq (q x) 0; first by rewrite !mul0r.
  by congr (_ * _); apply: IH => //; apply: drawn_grow.
- case=> ld pW LW fk dt; rewrite E_bind -[RHS](@graft_keeps drafter c place value W t keeps ld pW LW dt).
  by apply: E_always; apply: always_impl (Law_inside ld pW LW) => w iw; apply: IH => //; exact: drawn_graft.
Qed.

(** ** Walks *)
Section Walks.
Variables (target : text -> row) (r : rule R V) (valid : carried r -> Prop) (owed : carried r -> row).
Hypothesis target_law : forall c, law (target c).
Hypothesis L : @lossless R V r valid owed.

Lemma walk_leaf c J : harmonic target c J -> E (walk target r c (Leaf R V)) (fun w => J (c ++ w)) = J c.
Proof. by move=> hJ; have := walk_Law target_law L (fair_leaf R V) hJ; rewrite E_bind E_ret. Qed.

Lemma descend_grow q t : law q -> drawn t -> forall place c J s, harmonic target c J -> valid s ->
  dot q (fun x => E (descend target c (grow place x q t) s) (fun w => J (c ++ w))) = E (descend target c t s) (fun w => J (c ++ w)).
Proof.
move=> lq; have qs : E (draw q) (fun=> 1) = 1 by case: (prob_draw lq).
have below c x t' J : harmonic target c J ->
    E (s' <- start r (target (rcons c x)) ;; fmap (cons x) (descend target (rcons c x) t' s')) (fun w => J (c ++ w))
    = E (walk target r (rcons c x) t') (fun w => J (rcons c x ++ w)).
  move=> hJ; rewrite !E_bind; apply: eq_E => s'; rewrite E_fmap; apply: eq_E => w; by rewrite cat_rcons.
elim: t => [|y r' b IHb n IHn] /=.
  move=> _ place c J s hJ vs; rewrite E_bind (stop_owes L vs).
  under [in RHS]eq_dot do rewrite E_ret cats1.
  rewrite -(look_owes L vs lq); apply: eq_bigr => x _; have [->|qx] := eqVneq (q x) 0; first by rewrite !mul0r.
  congr (_ * _); rewrite E_bind; apply: E_always; apply: always_impl (look_valid L vs lq qx) => -[s' vs'|_] /=.
    by rewrite E_bind (stop_owes L vs'); apply: eq_dot => v; rewrite E_ret cats1.
  by rewrite (below _ _ (Leaf R V)) // walk_leaf //; exact: harmonic_rcons.
case=> lr ry db dn place c J s hJ vs.
have go place' : dot q (fun x => E (walk target r (rcons c y) (grow place' x q b)) (fun w => J (rcons c y ++ w)))
    = E (walk target r (rcons c y) b) (fun w => J (rcons c y ++ w)).
  rewrite -E_draw; under eq_E do rewrite E_bind; rewrite E_swap E_bind.
  apply: E_always; apply: always_impl (start_valid L (target_law (rcons c y))) => s' vs'.
  by rewrite E_draw; apply: IHb => //; exact: harmonic_rcons.
have inner x place' : E (descend target c (grow place' x q (Node y r' b n)) s) (fun w => J (c ++ w)) =
   E (look s y r') (fun o => E (if o is Some s' then descend target c (if place' is true :: _ then n else grow (behead place') x q n) s'
     else s' <- start r (target (rcons c y)) ;; fmap (cons y) (descend target (rcons c y) (if place' is true :: p' then grow p' x q b else b) s')) (fun w => J (c ++ w))).
  by rewrite -E_bind; case: place' => [|[] place'].
rewrite -E_draw; under eq_E do rewrite inner; rewrite E_swap E_bind.
apply: E_always; apply: always_impl (look_valid L vs lr ry) => -[s' vs'|_].
  by case: place => [|[] place]; rewrite ?(E_const _ qs) // E_draw; exact: IHn.
rewrite below //; under eq_E do rewrite below //.
by case: place => [|[] place]; rewrite ?(E_const _ qs) // E_draw go.
Qed.

Lemma walk_grow c J place q t : harmonic target c J -> law q -> drawn t ->
  dot q (fun x => E (walk target r c (grow place x q t)) (fun w => J (c ++ w))) = E (walk target r c t) (fun w => J (c ++ w)).
Proof.
move=> hJ lq dt; rewrite -E_draw; under eq_E do rewrite E_bind; rewrite E_swap E_bind.
apply: E_always; apply: always_impl (start_valid L (target_law c)) => s vs.
by rewrite E_draw; apply: descend_grow.
Qed.

(** T3 as a program drafts. *)
Theorem grown_Law c A (d : draft A) : fits d -> Law target c (o <- build d (Leaf R V) ;; walk target r c o.1).
Proof.
move=> fd J hJ; rewrite E_bind -[RHS](walk_leaf hJ).
apply: (build_keeps (value := fun t => E (walk target r c t) (fun w => J (c ++ w)))) => // *; exact: walk_grow.
Qed.

End Walks.
End Grow.
