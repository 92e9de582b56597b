(** A lossless rule stays within the support of its evidence, also where drafts do not have the distributions that they state.

    [lossless_inside]: a walk by a lossless rule commits tokens that the target gives mass to, if each draft states a distribution
    that gives mass to its token; how it was drawn or chosen does not matter. [way_inside]: so does the way to any node of a tree
    whose edges are tokens that the target gives mass to. The weights of the rule's own choices and of what it
    owes must not be negative, which is so of all that a program can do. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Steps Tokens Grow.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Support.
Variables (R : realFieldType) (V : finType).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Notation tree := (tree R V).

(** No weight is negative. *)
Definition weighed A (d : M A) := all (fun o : R * A => 0 <= o.1) d.

(** What is 0 on average and nowhere negative is 0 wherever there is mass. *)
Lemma always_zero A (d : M A) (g : A -> R) : weighed d -> always (fun a => 0 <= g a) d -> E d g = 0 -> always (fun a => g a = 0) d.
Proof.
elim: d => [|[w a] d IH] //= /andP[w0 d0] [ga gd]; rewrite E_cons => e.
have ge : 0 <= E d g.
  elim: d d0 gd {IH e} => [|[u b] d IHd] /=; first by rewrite E_nil.
  case/andP=> u0 d0 [gb gd]; rewrite E_cons addr_ge0 ?IHd //.
  by have [->|/gb gb0] := eqVneq u 0; [rewrite mul0r | exact: mulr_ge0].
have wg : 0 <= w * g a by have [->|/ga ga0] := eqVneq w 0; [rewrite mul0r | exact: mulr_ge0].
move/eqP: e; rewrite paddr_eq0 // => /andP[/eqP wz /eqP ez]; split; last exact: IH.
by move=> wn; apply/eqP; move/eqP: wz; rewrite mulf_eq0 (negPf wn).
Qed.

(** A function that is 1 where a row is 0. *)
Definition outside (p : row) : V -> R := fun v => (p v == 0)%:R.

Lemma dot_outside p : dot p (outside p) = 0.
Proof. by rewrite /dot big1 // => v _; rewrite /outside; case: eqP => [->|_]; rewrite ?mul0r ?mulr0. Qed.

Lemma dot_ge0 (p : row) f : (forall v, 0 <= p v) -> (forall v, 0 <= f v) -> 0 <= dot p f.
Proof. by move=> p0 f0; apply: sumr_ge0 => v _; exact: mulr_ge0. Qed.

Lemma within (p q : row) : (forall v, 0 <= p v) -> dot p (outside q) = 0 -> forall v, p v != 0 -> q v != 0.
Proof.
move=> p0 /eqP; rewrite psumr_eq0 => [/allP h v pv|v _]; last by rewrite mulr_ge0 // ler0n.
apply: contra pv => /eqP qv; have := h v (mem_index_enum v).
by rewrite /outside qv eqxx mulr1.
Qed.

Lemma outside_ge0 p v : 0 <= outside p v. Proof. exact: ler0n. Qed.

Section Rule.
Variables (r : rule R V) (valid : carried r -> Prop) (owed : carried r -> row).
Hypothesis L : @lossless R V r valid owed.
Hypotheses (start_weighed : forall p, law p -> weighed (start r p)) (stop_weighed : forall s, valid s -> weighed (stop s))
  (look_weighed : forall s x q, valid s -> law q -> weighed (look s x q)) (owed_ge0 : forall s, valid s -> forall v, 0 <= owed s v).

Lemma start_within p : law p -> always (fun s => valid s /\ forall v, owed s v != 0 -> p v != 0) (start r p).
Proof.
move=> lp; have vs := start_valid L lp.
have z : E (start r p) (fun s => dot (owed s) (outside p)) = 0 by rewrite (start_owes L lp) dot_outside.
have ge : always (fun s => 0 <= dot (owed s) (outside p)) (start r p).
  by apply: always_impl vs => s v; apply: dot_ge0 => [w|w]; [exact: owed_ge0 | exact: outside_ge0].
apply: always_impl (always_and vs (always_zero (start_weighed lp) ge z)) => s [v e]; split=> //.
exact: within (owed_ge0 v) e.
Qed.

Lemma look_within s x q : valid s -> law q -> q x != 0 ->
  always (fun o => if o is Some s' then valid s' /\ forall v, owed s' v != 0 -> owed s v != 0 else owed s x != 0) (look s x q).
Proof.
move=> vs lq qx; have vl := look_valid L vs lq qx.
pose g y o := pays owed (outside (owed s)) y o.
have ge y : q y != 0 -> always (fun o => 0 <= g y o) (look s y q).
  move=> qy; apply: always_impl (look_valid L vs lq qy) => -[s' v|_]; last exact: outside_ge0.
  by apply: dot_ge0 => w; [exact: owed_ge0 | exact: outside_ge0].
have ge_all y : 0 <= q y * E (look s y q) (g y).
  have [->|qy] := eqVneq (q y) 0; first by rewrite mul0r.
  apply: mulr_ge0; first by case: lq.
  have := look_weighed y vs lq; have := ge y qy; elim: (look s y q) => [|[w o] d IH] /=; first by rewrite E_nil.
  case=> wo wd /andP[w0 d0]; rewrite E_cons addr_ge0 ?IH //.
  by have [->|/wo ?] := eqVneq w 0; [rewrite mul0r | exact: mulr_ge0].
have z : E (look s x q) (g x) = 0.
  have := look_owes L vs lq (outside (owed s)); rewrite dot_outside => /eqP.
  rewrite psumr_eq0 => [/allP /(_ x (mem_index_enum x))|y _]; last exact: ge_all.
  by rewrite mulf_eq0 (negPf qx) => /eqP.
apply: always_impl (always_and vl (always_zero (look_weighed x vs lq) (ge x qx) z)) => -[s'|] [v e].
  by split=> //; exact: within (owed_ge0 v) e.
by move: e; rewrite /g /= /outside; case: eqP => // _ /eqP; rewrite oner_eq0.
Qed.

Lemma stop_within s : valid s -> always (fun y => owed s y != 0) (stop s).
Proof.
move=> vs; have z : E (stop s) (outside (owed s)) = 0 by rewrite (stop_owes L vs) dot_outside.
have ge : always (fun y => 0 <= outside (owed s) y) (stop s) by apply: always_true => y; exact: outside_ge0.
apply: always_impl (always_zero (stop_weighed vs) ge z) => y; rewrite /outside; case: eqP => // _ /eqP.
by rewrite oner_eq0.
Qed.

Variable target : text -> row.
Hypothesis target_law : forall c, law (target c).

(** T8 for every lossless rule. *)
Theorem lossless_inside t c : drawn t -> always (inside target c) (walk target r c t).
Proof.
have h : forall t c s, drawn t -> valid s -> (forall v, owed s v != 0 -> target c v != 0) -> always (inside target c) (descend target c t s).
  elim=> [|x q below IHb next IHn] {}c s /=.
    move=> _ vs w; apply: always_bind; apply: always_impl (stop_within vs) => y oy.
    by apply: always_ret; rewrite /= w.
  case=> lq qx db dn vs w; apply: always_bind; apply: always_impl (look_within vs lq qx) => -[s' [vs' w']|ox].
    by apply: IHn => // v /w'; exact: w.
  apply: always_bind; apply: always_impl (start_within (target_law (rcons c x))) => s' [vs' w'].
  by apply: always_fmap; apply: always_impl (IHb _ _ db vs' w') => u iu; rewrite /= w.
move=> dt; apply: always_bind; apply: always_impl (start_within (target_law c)) => s [vs w]; exact: h.
Qed.

End Rule.

(** ** Trees of tokens that the target gives mass to

    [rooted c t]: of every edge, after the text above it. It stays so where a token is grown below a node after which it has mass
    ([rooted_grow]), and the way to every node is inside the support ([way_inside]). *)
Section Ways.
Variable target : text -> row.

Fixpoint rooted c (t : tree) : Prop :=
  if t is Node x _ below next then [/\ target c x != 0, rooted (rcons c x) below & rooted c next] else True.

(** The text of the node below which [grow place] grows. *)
Fixpoint text_at c (place : seq bool) (t : tree) : text :=
  if t is Node y _ below next then
    if place is true :: place' then text_at (rcons c y) place' below else text_at c (behead place) next
  else c.

Lemma rooted_grow place x q c t : target (text_at c place t) x != 0 -> rooted c t -> rooted c (grow place x q t).
Proof.
elim: t place c => [|y r b IHb n IHn] place c //= tx [ty rb rn].
by case: place tx => [|[] place] /= tx; split; auto.
Qed.

(** The ways from the root to all other nodes. *)
Fixpoint ways (t : tree) : seq text :=
  if t is Node x _ below next then [:: x] :: map (cons x) (ways below) ++ ways next else [::].

Theorem way_inside c t w : rooted c t -> w \in ways t -> inside target c w.
Proof.
elim: t c w => [|x q b IHb n IHn] c w //= [tx rb rn]; rewrite in_cons mem_cat => /or3P[/eqP ->|/mapP[u uw ->]|wn] /=.
- by rewrite tx.
- by rewrite tx; exact: IHb.
- exact: IHn.
Qed.

End Ways.

(** ** Computed rows

    [within_row p q]: q is 0 wherever p is. It stays so under what programs do to rows, and what is drawn from q has mass in p.
    Scores are the same rows in logarithms: -inf where q is 0. *)
Definition within_row (p q : row) := forall v, p v = 0 -> q v = 0.

Lemma within_times p q (g : V -> R) : within_row p q -> within_row p (fun v => q v * g v).
Proof. by move=> w v /w ->; rewrite mul0r. Qed.

Lemma within_where p q r (b : V -> bool) : within_row p q -> within_row p r -> within_row p (fun v => if b v then q v else r v).
Proof. by move=> wq wr v p0; case: (b v); [exact: wq | exact: wr]. Qed.

Lemma within_relu p q (g : V -> R) : (forall v, 0 <= g v) -> within_row p q -> within_row p (fun v => relu (q v - g v)).
Proof. by move=> g0 w v /w ->; rewrite sub0r /relu max_r // oppr_le0. Qed.

Lemma within_normalize p q : within_row p q -> within_row p (normalize q).
Proof. exact: within_times. Qed.

Theorem draw_within p q : within_row p q -> always (fun x => p x != 0) (draw q).
Proof. by move=> w; apply: always_draw => v; apply: contra => /eqP /w /eqP. Qed.

(** What is inside the support of one model is inside that of either: [keeps support of a or b]. *)
Lemma inside_either (a b : text -> row) c w : inside a c w -> inside (fun t v => ((a t v != 0) || (b t v != 0))%:R : R) c w.
Proof. by elim: w c => [|x w IH] c //= /andP[-> /IH ->]; rewrite oner_eq0. Qed.

End Support.
