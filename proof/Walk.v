(** The distribution of a committed path, and walks down trees of drafts (T3).

    [Law target c W] says that a random path W after the text c is a piece of the target's own text: the target can go on from
    wherever it ends, and nobody can tell ([Law_complete]). Such paths are called lawful. One draw of the target is lawful;
    so are nothing at all, mixtures, one lawful path after another, and what is left of one at the end of the text.

    [walk_Law]: a walk by a lossless rule down a tree commits a lawful path, if every edge has the distribution that it states
    given what the walk has read before it ([fair]). Grow.v has this for trees as programs draft them. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Walk.
Variables (R : realFieldType) (V : finType).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).

(** The target: a row after each text. [ended c]: the request says that c is complete (a stop token, the limit of length). *)
Variables (target : text -> row) (ended : text -> bool).
Hypothesis target_law : forall c, law (target c).

(** The specification [autoregressive(target)]: the first n tokens after c; fewer, if it ends. *)
Fixpoint spec n c : M text :=
  if n is n'.+1 then
    if ended c then ret [::] else y <- draw (target c) ;; fmap (cons y) (spec n' (rcons c y))
  else ret [::].

(** The first n tokens, if w is committed after c and the specification goes on from there. What stands after the end is not committed. *)
Fixpoint complete n c w : M text :=
  if n is n'.+1 then
    if ended c then ret [::] else if w is x :: w' then fmap (cons x) (complete n' (rcons c x) w') else spec n c
  else ret [::].

(** What a commit leaves of w after c: nothing that stands after the end. *)
Fixpoint cut c w : text :=
  if w is x :: w' then if ended c then [::] else x :: cut (rcons c x) w' else [::].

(** ** The fact [Law(target, c)] of a random path

    J is fair for the target from c on if, wherever one stands, it is worth what it is worth on average after the next
    token of the target. A path has the target's distribution if no such J gains or loses on it. *)
Definition harmonic c (J : text -> R) :=
  forall w, J (c ++ w) = dot (target (c ++ w)) (fun v => J (rcons (c ++ w) v)).

Definition Law c (W : M text) := forall J, harmonic c J -> E W (fun w => J (c ++ w)) = J c.

Lemma harmonic_rcons c x J : harmonic c J -> harmonic (rcons c x) J.
Proof. by move=> h w; rewrite cat_rcons. Qed.

Lemma harmonic_cat c u J : harmonic c J -> harmonic (c ++ u) J.
Proof. by move=> h w; rewrite -catA. Qed.

Lemma harmonic_here c J : harmonic c J -> dot (target c) (fun v => J (rcons c v)) = J c.
Proof. by move=> h; have := h [::]; rewrite cats0. Qed.

Lemma complete0 n c : complete n c [::] = spec n c. Proof. by case: n => //= n; case: (ended c). Qed.

Lemma complete_fair n c w f :
  E (complete n c w) f = dot (target (c ++ w)) (fun v => E (complete n c (rcons w v)) f).
Proof.
elim: w n c f => [|x w IH] [|n] c f /=; rewrite ?dot_const //; case: (ended c); rewrite ?dot_const //.
  by rewrite E_bind E_draw cats0; apply: eq_bigr => v _; rewrite complete0.
by rewrite E_fmap IH cat_rcons; apply: eq_bigr => v _; rewrite E_fmap.
Qed.

(** What a lawful path means: completed by the target it is the target, for every number of tokens. *)
Theorem Law_complete c W n : Law c W -> (w <- W ;; complete n c w) ~ spec n c.
Proof.
move=> L f; rewrite E_bind; pose J t := E (complete n c (drop (size c) t)) f.
have Jc w : J (c ++ w) = E (complete n c w) f by rewrite /J drop_size_cat.
rewrite -complete0 -Jc cats0 -L => [|w]; first by apply: eq_E => w; rewrite Jc.
by rewrite Jc complete_fair; apply: eq_bigr => v _; rewrite rcons_cat Jc.
Qed.

(** How lawful paths are made: what a kernel needs besides walks. *)
Lemma Law_same c W W' : W ~ W' -> Law c W -> Law c W'.
Proof. by move=> e L J h; rewrite -e L. Qed.

Lemma Law_nil c : Law c (ret [::]). Proof. by move=> J h; rewrite E_ret cats0. Qed.

Lemma Law_draw c : Law c (fmap (fun y => [:: y]) (draw (target c))).
Proof. by move=> J h; rewrite E_fmap E_draw -(harmonic_here h); apply: eq_bigr => v _; rewrite cats1. Qed.

Lemma Law_mix A c (d : M A) W : E d (fun=> 1) = 1 -> always (fun a => Law c (W a)) d -> Law c (bind d W).
Proof.
by move=> d1 h J hJ; rewrite E_bind -[RHS](E_const (J c) d1); apply: E_always; apply: always_impl h => a ->.
Qed.

Lemma Law_cat c W W' : Law c W -> (forall w, Law (c ++ w) (W' w)) -> Law c (w <- W ;; fmap (cat w) (W' w)).
Proof.
move=> L L' J h; rewrite E_bind -[RHS]L //; apply: eq_E => w; rewrite E_fmap -(L' w); last exact: harmonic_cat.
by apply: eq_E => u; rewrite catA.
Qed.

Lemma Law_cons c x W J : Law (rcons c x) W -> harmonic c J -> E W (fun w => J (c ++ x :: w)) = J (rcons c x).
Proof. by move=> L h; rewrite -(L J) => [|w]; [apply: eq_E => w|]; rewrite cat_rcons. Qed.

(** A run that draws as the target does and is left once a condition on what it has committed holds, after n tokens at the
    latest. The condition is any: what is left out is drawn anew later, by whoever goes on. *)
Fixpoint left_when (p : text -> bool) n c u : M text :=
  if n is n'.+1 then
    if p u then ret [::] else x <- draw (target c) ;; fmap (cons x) (left_when p n' (rcons c x) (rcons u x))
  else ret [::].

Theorem left_when_Law p n c u : Law c (left_when p n c u).
Proof.
elim: n c u => [|n IH] c u /=; first exact: Law_nil.
case: (p u); first exact: Law_nil.
move=> J h; rewrite E_bind E_draw -(harmonic_here h); apply: eq_bigr => x _.
by rewrite E_fmap (Law_cons (IH _ _) h).
Qed.

Lemma cut_rcons c w v : cut c (rcons w v) = if (cut c w == w) && ~~ ended (c ++ w) then rcons w v else cut c w.
Proof.
elim: w c => [|x w IH] c /=; first by rewrite cats0; case: (ended c).
case: (ended c) => //=; rewrite IH eqseq_cons eqxx cat_rcons /=.
by case: (_ && _).
Qed.

Lemma Law_cut c W : Law c W -> Law c (fmap (cut c) W).
Proof.
move=> L J h; rewrite E_fmap; pose J' t := J (c ++ cut c (drop (size c) t)).
have Jc w : J' (c ++ w) = J (c ++ cut c w) by rewrite /J' drop_size_cat.
under eq_E do rewrite -Jc; rewrite L => [|w]; first by rewrite -[in LHS](cats0 c) Jc /= cats0.
rewrite Jc; have [/andP[/eqP e go]|b] := boolP ((cut c w == w) && ~~ ended (c ++ w)).
  by rewrite e h; apply: eq_dot => v; rewrite rcons_cat Jc cut_rcons e eqxx go.
by rewrite -[LHS](dot_const _ (target_law (c ++ w))); apply: eq_dot => v; rewrite rcons_cat Jc cut_rcons (negPf b).
Qed.

(** ** Trees of drafts

    The children of a node as a list: the first child is x, drawn from q; [below] are its own children, [next] its
    younger siblings. *)
Inductive tree := Leaf | Node (x : V) (q : row) (below next : tree).

(** A tree is drafted fairly if every edge has the distribution that it carries, given what a walk has read before it:
    the tokens on the path and the siblings that were refused. What is below a node and what is beside it may depend on
    each other in any way, and on other draws that the walk does not read ([fair_mix]). It is what the label check decides. *)
Inductive fair : M tree -> Prop :=
| fair_leaf : fair (ret Leaf)
| fair_node q (K : V -> M (tree * tree)) : law q ->
    (forall x, q x != 0 -> fair (fmap fst (K x))) -> (forall x, q x != 0 -> fair (fmap snd (K x))) ->
    fair (x <- draw q ;; t <- K x ;; ret (Node x q t.1 t.2))
| fair_mix A (d : M A) (P : A -> Prop) T : E d (fun=> 1) = 1 -> always P d -> (forall a, P a -> fair (T a)) -> fair (bind d T)
| fair_same T T' : T ~ T' -> fair T -> fair T'.

(** A walk by a rule that reads siblings one after the other: the accepted tokens, and the one that is emitted. *)
Section ByRule.
Variable r : rule R V.

Fixpoint descend c (t : tree) (s : carried r) : M text :=
  if t is Node x q below next then
    o <- look s x q ;;
    if o is Some s' then descend c next s'
    else s' <- start r (target (rcons c x)) ;; fmap (cons x) (descend (rcons c x) below s')
  else y <- stop s ;; ret [:: y].

Definition walk c t : M text := s <- start r (target c) ;; descend c t s.

Variables (valid : carried r -> Prop) (owed : carried r -> row).
Hypothesis L : @lossless R V r valid owed.

Lemma start_walk c T J :
  (forall s, valid s -> E T (fun t => E (descend c t s) (fun w => J (c ++ w))) = dot (owed s) (fun v => J (rcons c v))) ->
  harmonic c J -> E T (fun t => E (walk c t) (fun w => J (c ++ w))) = J c.
Proof.
move=> h hJ; under eq_E do rewrite E_bind.
rewrite E_swap -(harmonic_here hJ) -(start_owes L (target_law c)).
by apply: E_always; apply: always_impl (start_valid L (target_law c)) => s /h.
Qed.

Lemma descend_owes T : fair T -> forall c J s, harmonic c J -> valid s ->
  E T (fun t => E (descend c t s) (fun w => J (c ++ w))) = dot (owed s) (fun v => J (rcons c v)).
Proof.
elim {T} => [|q K lq _ IHb _ IHn|A d P T d1 aP _ IH|T T' e _ IH] c J s hJ vs.
- by rewrite E_ret /= E_bind -(stop_owes L vs); apply: eq_E => v; rewrite E_ret cats1.
- rewrite E_bind E_draw -(look_owes L vs lq); apply: eq_bigr => x _; have [->|qx] := eqVneq (q x) 0; first by rewrite !mul0r.
  congr (_ * _); rewrite E_bind; under eq_E do rewrite E_ret /= E_bind.
  rewrite E_swap; apply: E_always; apply: always_impl (look_valid L vs lq qx) => -[s' vs'|_] /=.
    by have := IHn x qx c J s' hJ vs'; rewrite E_fmap.
  have := @start_walk (rcons c x) (fmap fst (K x)) J (fun s' vs' => IHb x qx _ J s' (harmonic_rcons x hJ) vs') (harmonic_rcons x hJ).
  rewrite E_fmap => <-; apply: eq_E => t; rewrite !E_bind; apply: eq_E => s'; rewrite E_fmap.
  by apply: eq_E => w; rewrite cat_rcons.
- rewrite E_bind -[RHS](E_const _ d1); apply: E_always; apply: always_impl aP => a Pa; exact: IH.
- by rewrite -e IH.
Qed.

(** T3: a walk by a lossless rule down a fairly drafted tree keeps the target's distribution. *)
Theorem walk_Law c T : fair T -> Law c (t <- T ;; walk c t).
Proof.
by move=> f J hJ; rewrite E_bind; apply: start_walk => // s vs; exact: descend_owes.
Qed.

Corollary walk_complete c T n : fair T -> (w <- (t <- T ;; walk c t) ;; complete n c w) ~ spec n c.
Proof. by move=> f; apply/Law_complete/walk_Law. Qed.

Lemma walk_nonempty c t : always (fun w => 0 < size w)%N (walk c t).
Proof.
have h : forall t c s, always (fun w => 0 < size w)%N (descend c t s).
  elim=> [|x q b _ n IH] {}c s /=; apply: always_bind.
    by apply: always_true => y; apply: always_ret.
  apply: always_true => -[s'|]; first exact: IH.
  by apply: always_bind; apply: always_true => s'; apply: always_fmap; apply: always_true.
by apply: always_bind; apply: always_true => s; exact: h.
Qed.

End ByRule.

(** ** Ways to draft: fair by construction, in the order in which a program draws *)

(** A chain of n draws from a small model, as in [speculative]. *)
Fixpoint chain (drafter : text -> row) n c : M tree :=
  if n is n'.+1 then x <- draw (drafter c) ;; t <- chain drafter n' (rcons c x) ;; ret (Node x (drafter c) t Leaf)
  else ret Leaf.

Lemma mass_fair T : fair T -> E T (fun=> 1) = 1.
Proof.
elim=> [|q K lq fb IHb _ _|A d P U d1 aP _ IH|U U' e _ IH]; first by rewrite E_ret.
  rewrite E_bind E_draw -[RHS](dot_const _ lq); apply: eq_bigr => x _; have [->|qx] := eqVneq (q x) 0; first by rewrite !mul0r.
  by congr (_ * _); rewrite E_bind -[RHS](IHb x qx) E_fmap; apply: eq_E => t; rewrite E_ret.
  by rewrite E_bind -[RHS]d1; apply: E_always; apply: always_impl aP => a /IH.
by rewrite -e.
Qed.

(** Children and siblings that are drafted one after the other, each on its own draws. *)
Lemma fair_both q (B N : V -> M tree) : law q ->
  (forall x, q x != 0 -> fair (B x)) -> (forall x, q x != 0 -> fair (N x)) ->
  fair (x <- draw q ;; b <- B x ;; n <- N x ;; ret (Node x q b n)).
Proof.
move=> lq fB fN; pose K x := b <- B x ;; n <- N x ;; ret (b, n).
apply: (@fair_same (x <- draw q ;; t <- K x ;; ret (Node x q t.1 t.2))) => [f|].
  rewrite !E_bind; apply: eq_E => x; rewrite /K !E_bind; apply: eq_E => b; rewrite !E_bind.
  by apply: eq_E => n; rewrite !E_ret.
apply: fair_node => // x qx.
  apply: fair_same (fB x qx) => f; rewrite E_fmap E_bind; apply: eq_E => b; rewrite E_bind.
  by under eq_E do rewrite E_ret /=; rewrite E_const //; apply/mass_fair/fN.
apply: fair_same (fN x qx) => f; rewrite E_fmap E_bind -[LHS](E_const _ (mass_fair (fB x qx))).
by apply: eq_E => b; rewrite E_bind; apply: eq_E => n; rewrite E_ret.
Qed.

Lemma fair_chain drafter n c : (forall c, law (drafter c)) -> fair (chain drafter n c).
Proof.
move=> l; elim: n c => [|n IH] c /=; first exact: fair_leaf.
apply: fair_same (fair_both (l c) (fun x _ => IH (rcons c x)) (fun _ _ => fair_leaf)) => f.
by rewrite !E_bind; apply: eq_E => x; rewrite !E_bind; apply: eq_E => b; rewrite E_bind E_ret.
Qed.

End Walk.
