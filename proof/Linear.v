(** Draws that are made at one place and read at another, and the noise behind them (T9).

    A program draws x, carries it in a variable, and grows it later; other draws and reads of the tree may lie in between. The
    theorem [exec_build]: if every noise is fresh, and a draw is grown or read at one place only, then what the program leaves is
    distributed as if each draw were made where it is first read. So every draw that a rule tests has, given all that was read
    before, the distribution that it states, which is what [fits] of Grow.v demands; a draw that nothing has read in the end has it
    still. [linear_keeps] and [linear_Law] draw the conclusion for verifications. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Steps Traversal Grow GrowTree.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Noise.
Variables (R : realFieldType) (K : eqType) (N : Type) (b0 : N).
Notation M := (M R).

(** Noise: a table of independent random values, one for each key. *)
Variable noise : K -> M N.
Hypothesis noise_prob : forall k, prob (noise k).

Definition upd (w : K -> N) k b : K -> N := fun j => if j == k then b else w j.

Fixpoint table (ks : seq K) : M (K -> N) :=
  if ks is k :: ks' then b <- noise k ;; w <- table ks' ;; ret (upd w k b) else ret (fun=> b0).

Lemma mass_table ks : E (table ks) (fun=> 1) = 1.
Proof.
elim: ks => [|k ks IH] /=; first by rewrite E_ret.
rewrite E_bind -[RHS](E_const 1 (noise_prob k).2); apply: eq_E => b; rewrite E_bind -[RHS]IH.
by apply: eq_E => w; rewrite E_ret.
Qed.

(** A value of the table that is read nowhere else is a draw of its own. *)
Lemma table_split ks k (F : N -> (K -> N) -> R) : uniq ks -> k \in ks ->
  (forall b w w', (forall j, j != k -> w j = w' j) -> F b w = F b w') ->
  E (table ks) (fun w => F (w k) w) = E (noise k) (fun b => E (table ks) (F b)).
Proof.
elim: ks F => // k' ks IH F /= /andP[k'ks uks]; rewrite inE => kks ind.
have cons g : E (b <- noise k' ;; w <- table ks ;; ret (upd w k' b)) g = E (noise k') (fun b => E (table ks) (fun w => g (upd w k' b))).
  by rewrite E_bind; apply: eq_E => b; rewrite E_bind; apply: eq_E => w; rewrite E_ret.
under [in RHS]eq_E do rewrite cons; rewrite cons.
have [e|ne] := eqVneq k k'.
  rewrite -e; apply: eq_E => b; rewrite -[LHS](E_const _ (noise_prob k).2); apply: eq_E => b'.
  by apply: eq_E => w; rewrite {1}/upd eqxx; apply: ind => j /negPf jk; rewrite /upd jk.
rewrite [RHS]E_swap; apply: eq_E => b'.
have kin : k \in ks by case/orP: kks => // /eqP e; rewrite e eqxx in ne.
rewrite -(IH (fun b w => F b (upd w k' b')) uks kin) => [|b w w' h].
  by apply: eq_E => w; rewrite {1}/upd (negPf ne).
by apply: ind => j jk; rewrite /upd; case: eqP => // _; exact: h.
Qed.

End Noise.

Section Linear.
Variables (R : realFieldType) (V : finType) (K : eqType) (N : Type) (b0 : N) (x0 : V).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Notation tree := (tree R V).
Notation pending := (seq (V * row)).
Variable noise : K -> M N.
Hypothesis noise_prob : forall k, prob (noise k).
(** How a noise chooses a token from a row. *)
Variable pick : row -> N -> V.

(** A drafting program as it is written. [Sample]: x ~ q with the noise of a key; nothing reads x yet, it is pending.
    [Put]: a pending draw is grown; what follows may depend on it. [See]: it is read in any other way. Both take it out of the
    pending ones: a program cannot grow a draw twice, nor after it was read. [Read]: a noise is read for anything else. *)
Inductive linear (A : Type) :=
| End (a : A)
| Read (k : K) (h : N -> linear A)
| Sample (k : K) (q : row) (h : linear A)
| Put (i : nat) (place : seq bool) (h : V -> linear A)
| See (i : nat) (h : V -> linear A).

Definition absent : V * row := (x0, onehot R x0).
Definition others T i (l : seq T) := take i l ++ drop i.+1 l.

(** What it does, given the table of all noise: tree, result, and the draws still pending. *)
Fixpoint exec A (w : K -> N) (p : linear A) (l : pending) (t : tree) : tree * A * pending :=
  match p with
  | End a => (t, a, l)
  | Read k h => exec w (h (w k)) l t
  | Sample k q h => exec w h (rcons l (pick q (w k), q)) t
  | Put i place h => let o := nth absent l i in exec w (h o.1) (others i l) (grow place o.1 o.2 t)
  | See i h => exec w (h (nth absent l i).1) (others i l) t
  end.

(** The same as a drafting program that draws x where it grows: only the rows of pending draws are kept. *)
Fixpoint delay A (p : linear A) (qs : seq row) : draft R V (A * seq row) :=
  match p with
  | End a => Done R V (a, qs)
  | Read k h => Toss (noise k) (fun b => delay (h b) qs)
  | Sample k q h => delay h (rcons qs q)
  | Put i place h => Grow place (nth (onehot R x0) qs i) (fun x => delay (h x) (others i qs))
  | See i h => Toss (draw (nth (onehot R x0) qs i)) (fun x => delay (h x) (others i qs))
  end.

(** Noise is fresh: of a key of the table that nothing has read before ([seen]). What is drawn from q with it has the distribution q. *)
Fixpoint fresh A (ks seen : seq K) (p : linear A) : Prop :=
  match p with
  | End _ => True
  | Read k h => [/\ k \in ks, k \notin seen & forall b, fresh ks (k :: seen) (h b)]
  | Sample k q h => [/\ k \in ks, k \notin seen, law q, fmap (pick q) (noise k) ~ draw q & fresh ks (k :: seen) h]
  | Put _ _ h => forall x, fresh ks seen (h x)
  | See _ h => forall x, fresh ks seen (h x)
  end.

Lemma exec_unseen A (p : linear A) ks seen w w' : fresh ks seen p -> (forall k, k \notin seen -> w k = w' k) ->
  forall l t, exec w p l t = exec w' p l t.
Proof.
elim: p seen => [a|k h IH|k q h IH|i place h IH|i h IH] seen //=.
- case=> _ ks' f e l t; rewrite -e //; apply: (IH _ (k :: seen)) => // j; rewrite inE => /norP[_]; exact: e.
- case=> _ ks' _ _ f e l t; rewrite -e //; apply: (IH (k :: seen)) => // j; rewrite inE => /norP[_]; exact: e.
- move=> f e l t; exact: IH.
- move=> f e l t; exact: IH.
Qed.

(** Pending draws: independent, each from its row. *)
Fixpoint draws (qs : seq row) : M pending :=
  if qs is q :: qs' then x <- draw q ;; l <- draws qs' ;; ret ((x, q) :: l) else ret [::].

Lemma E_draws q qs f : E (draws (q :: qs)) f = E (draw q) (fun x => E (draws qs) (fun l => f ((x, q) :: l))).
Proof. by rewrite E_bind; apply: eq_E => x; rewrite E_bind; apply: eq_E => l; rewrite E_ret. Qed.

Lemma draws_rcons q qs f : E (draws (rcons qs q)) f = E (draw q) (fun x => E (draws qs) (fun l => f (rcons l (x, q)))).
Proof.
elim: qs f => [|r qs IH] f.
  by rewrite E_draws; apply: eq_E => x; rewrite !E_ret.
rewrite rcons_cons E_draws; under eq_E do rewrite IH.
by rewrite E_swap; apply: eq_E => x; rewrite E_draws.
Qed.

(** One of them, and the others. *)
Lemma draws_nth qs i (g : V * row -> pending -> R) :
  E (draws qs) (fun l => g (nth absent l i) (others i l))
  = E (draw (nth (onehot R x0) qs i)) (fun x => E (draws (others i qs)) (g (x, nth (onehot R x0) qs i))).
Proof.
elim: qs i g => [|q qs IH] i g.
  by rewrite !nth_nil E_draw dot_onehot !E_ret nth_nil.
case: i => [|i] /=; first by rewrite E_draws /others /= drop0; apply: eq_E => x; apply: eq_E => l; rewrite drop0.
rewrite E_draws; under eq_E do rewrite (IH i (fun o l => g o ((_, q) :: l))).
by rewrite E_swap; apply: eq_E => x; rewrite E_draws.
Qed.

Lemma mass_draws qs : (forall i, law (nth (onehot R x0) qs i)) -> E (draws qs) (fun=> 1) = 1.
Proof.
elim: qs => [|q qs IH] l; first by rewrite E_ret.
rewrite E_draws E_draw -[RHS](dot_const 1 (l 0%N)); apply: eq_dot => x; apply: IH => i; exact: (l i.+1).
Qed.

(** T9: what a program leaves, with the draws still pending, is distributed as if each draw were made where it is first read. *)
Theorem exec_build A (p : linear A) ks seen : uniq ks -> fresh ks seen p -> forall qs t f,
  E (table b0 noise ks) (fun w => E (draws qs) (fun l => f (exec w p l t)))
  = E (build (delay p qs) t) (fun o => E (draws o.2.2) (fun l => f (o.1, o.2.1, l))).
Proof.
move=> uks; elim: p seen => [a|k h IH|k q h IH|i place h IH|i h IH] seen /=.
- by move=> _ qs t f; rewrite E_ret; apply: E_const; exact: mass_table.
- case=> kks ns fh qs t f; rewrite E_bind.
  rewrite (table_split b0 noise_prob (F := fun b w => E (draws qs) (fun l => f (exec w (h b) l t))) uks kks) => [|b w w' e].
    by apply: eq_E => b; exact: (IH b (k :: seen)).
  apply: eq_E => l; rewrite (exec_unseen (fh b) (w' := w')) // => j; rewrite inE => /norP[jk _]; exact: e.
- case=> kks ns lq faith fh qs t f.
  rewrite (table_split b0 noise_prob (F := fun b w => E (draws qs) (fun l => f (exec w h (rcons l (pick q b, q)) t))) uks kks) => [|b w w' e].
    rewrite -(IH (k :: seen) fh) E_swap.
    under [in RHS]eq_E do rewrite draws_rcons; rewrite [RHS]E_swap -faith E_fmap.
    by rewrite E_swap.
  apply: eq_E => l; rewrite (exec_unseen fh (w' := w')) // => j; rewrite inE => /norP[jk _]; exact: e.
- move=> fh qs t f; rewrite E_bind.
  under eq_E do rewrite (draws_nth _ _ (fun o l => f (exec _ (h o.1) l (grow place o.1 o.2 t)))).
  by rewrite E_swap; apply: eq_E => x; exact: (IH x seen).
- move=> fh qs t f; rewrite E_bind.
  under eq_E do rewrite (draws_nth _ _ (fun o l => f (exec _ (h o.1) l t))).
  by rewrite E_swap; apply: eq_E => x; exact: (IH x seen).
Qed.

(** The rows of pending draws are distributions; so is the default where there is none. *)
Let lawful (qs : seq row) := forall i, law (nth (onehot R x0) qs i).

Lemma lawful_others i qs : lawful qs -> lawful (others i qs).
Proof.
move=> lqs j; rewrite /others; case: (leqP (size qs) i) => s.
  by rewrite take_oversize // drop_oversize ?cats0 // leqW.
by rewrite nth_cat (size_takel (ltnW s)); case: ltnP => ji; [rewrite nth_take | rewrite nth_drop].
Qed.

Lemma fits_delay A (p : linear A) ks seen qs : fresh ks seen p -> lawful qs -> fits (delay p qs).
Proof.
elim: p seen qs => [a|k h IH|k q h IH|i place h IH|i h IH] seen qs //=.
- by case=> _ _ fh lqs; split=> // b; exact: (IH b (k :: seen)).
- case=> _ _ lq _ fh lqs; apply: (IH (k :: seen)) => // i; rewrite nth_rcons; case: ltngtP => // _; exact: law_onehot.
- by move=> fh lqs; split=> // x; apply: (IH x seen) => //; exact: lawful_others.
- by move=> fh lqs; split=> [|x]; [exact: prob_draw | apply: (IH x seen) => //; exact: lawful_others].
Qed.

Lemma lawful_delay A (p : linear A) ks seen qs t : fresh ks seen p -> lawful qs -> always (fun o => lawful o.2.2) (build (delay p qs) t).
Proof.
elim: p seen qs t => [a|k h IH|k q h IH|i place h IH|i h IH] seen qs t /=; first by move=> _ lqs; exact: always_ret.
- by case=> _ _ fh lqs; apply: always_bind; apply: always_true => b; exact: (IH b (k :: seen)).
- case=> _ _ lq _ fh lqs; apply: (IH (k :: seen)) => // i; rewrite nth_rcons; case: ltngtP => // _; exact: law_onehot.
all: by move=> fh lqs; apply: always_bind; apply: always_true => x; apply: (IH x seen) => //; exact: lawful_others.
Qed.

(** So the tree and the result of a program are those of the program that draws where it reads. A token that is drawn from the
    target's row, carried and committed later is a draw made at the commit, if what decides about it has not read it. *)
Theorem linear_result A (p : linear A) ks : uniq ks -> fresh ks [::] p -> forall t,
  fmap (fun w => (exec w p [::] t).1) (table b0 noise ks) ~ fmap (fun o => (o.1, o.2.1)) (build (delay p [::]) t).
Proof.
move=> uks fp t f; have l0 : lawful [::] by move=> i; rewrite nth_nil; exact: law_onehot.
have := exec_build uks fp [::] t (fun o => f o.1); rewrite /= !E_fmap; under eq_E do rewrite E_ret.
move=> ->; apply: E_always; apply: always_impl (lawful_delay t fp l0) => o lo.
by rewrite E_const // mass_draws.
Qed.

(** And no program changes, on average, the value of the tree that it grows, if one grow does not. *)
Theorem linear_keeps (value : tree -> R) A (p : linear A) ks : uniq ks -> fresh ks [::] p ->
  (forall place q t, law q -> drawn t -> dot q (fun x => value (grow place x q t)) = value t) ->
  forall t, drawn t -> E (table b0 noise ks) (fun w => value (exec w p [::] t).1.1) = value t.
Proof.
move=> uks fp keeps t dt; have l0 : lawful [::] by move=> i; rewrite nth_nil; exact: law_onehot.
rewrite -(build_keeps keeps (fits_delay fp l0) dt).
by have := linear_result uks fp t (fun o => value o.1); rewrite !E_fmap.
Qed.

(** T3, T6 and T7 for programs as they are written. *)
Section Verified.
Variables (target : text -> row) (c : text) (A : Type) (p : linear A) (ks : seq K).
Hypotheses (target_law : forall c, law (target c)) (uks : uniq ks) (fp : fresh ks [::] p).
Let grown w := (exec w p [::] (Leaf R V)).1.1.

Theorem linear_Law r valid owed : @lossless R V r valid owed -> Law target c (w <- table b0 noise ks ;; walk target r c (grown w)).
Proof.
move=> L J hJ; rewrite E_bind -[RHS](walk_leaf target_law L hJ).
apply: (linear_keeps (value := fun t => E (walk target r c t) (fun w => J (c ++ w)))) => // place q t lq dt.
exact: (walk_grow target_law L place hJ lq dt).
Qed.

Theorem linear_block_Law : Law target c (w <- table b0 noise ks ;; block_rejection target c (grown w)).
Proof.
move=> J hJ; rewrite E_bind -[RHS](block_leaf target_law hJ).
apply: (linear_keeps (value := fun t => E (block_rejection target c t) (fun w => J (c ++ w)))) => // place q t lq dt.
exact: (block_rejection_grow target_law place hJ lq dt).
Qed.

Theorem linear_traverse_Law : Law target c (w <- table b0 noise ks ;; traverse target c (grown w)).
Proof.
move=> J hJ; rewrite E_bind -[RHS](traverse_leaf target_law hJ).
apply: (linear_keeps (value := fun t => E (traverse target c t) (fun w => J (c ++ w)))) => // place q t lq dt.
exact: (traverse_grow target_law place hJ lq dt).
Qed.

End Verified.
End Linear.
