(** Finite distributions, as lists of weighted outcomes.

    The weights are in any real field, for instance the rational numbers ([rat]). Two distributions are the same, [d ~ d'], if
    every function has the same expectation under both. The other files say everything of programs in this monad; this one has
    its rules (the expectation of a sequence of draws, of a sum, of a constant), coins whose chance is cut to [0, 1], as
    [bernoulli] of the language, and rows: functions from tokens to weights.

    What the rest stands on is [accepted]: a draft x ~ q that is accepted with probability min(1, p x / q x) is accepted
    with mass min(p x, q x) = p x - relu(p x - q x), also where q x is 0. *)
From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Monad.
Variable R : realFieldType.

Definition M (A : Type) := seq (R * A).

Definition E A (d : M A) (f : A -> R) : R := \sum_(o <- d) o.1 * f o.2.

Definition ret A (a : A) : M A := [:: (1, a)].

Definition scale A (w : R) (d : M A) : M A := [seq (w * o.1, o.2) | o <- d].

Fixpoint bind A B (d : M A) (k : A -> M B) : M B :=
  if d is (w, a) :: d' then scale w (k a) ++ bind d' k else [::].

Definition fmap A B (h : A -> B) (d : M A) : M B := bind d (fun a => ret (h a)).

(** Equal in distribution. *)
Definition same A (d d' : M A) := forall f, E d f = E d' f.

(** Weights are at least 0 and sum up to 1. *)
Definition prob A (d : M A) := all (fun o : R * A => 0 <= o.1) d /\ E d (fun=> 1) = 1.

(** Whatever can come out satisfies P. *)
Fixpoint always A (P : A -> Prop) (d : M A) : Prop :=
  if d is (w, a) :: d' then (w != 0 -> P a) /\ always P d' else True.

Lemma E_nil A f : E ([::] : M A) f = 0. Proof. by rewrite /E big_nil. Qed.

Lemma E_cons A w (a : A) d f : E ((w, a) :: d) f = w * f a + E d f.
Proof. by rewrite /E big_cons. Qed.

Lemma E_cat A (d d' : M A) f : E (d ++ d') f = E d f + E d' f.
Proof. by rewrite /E big_cat. Qed.

Lemma E_scale A w (d : M A) f : E (scale w d) f = w * E d f.
Proof. by rewrite /E big_map mulr_sumr; apply: eq_bigr => o _; rewrite mulrA. Qed.

Lemma E_ret A (a : A) f : E (ret a) f = f a.
Proof. by rewrite E_cons E_nil mul1r addr0. Qed.

Lemma E_bind A B (d : M A) (k : A -> M B) f : E (bind d k) f = E d (fun a => E (k a) f).
Proof.
elim: d => [|[w a] d IH]; first by rewrite !E_nil.
by rewrite /= E_cat E_scale IH E_cons.
Qed.

Lemma E_fmap A B (h : A -> B) d f : E (fmap h d) f = E d (fun a => f (h a)).
Proof. by rewrite E_bind; apply: eq_bigr => o _; rewrite E_ret. Qed.

Lemma eq_E A (d : M A) f g : f =1 g -> E d f = E d g.
Proof. by move=> e; apply: eq_bigr => o _; rewrite e. Qed.

Lemma E_always A (d : M A) f g : always (fun a => f a = g a) d -> E d f = E d g.
Proof.
elim: d => [|[w a] d IH] /=; first by rewrite !E_nil.
by case=> e /IH h; rewrite !E_cons h; case: (eqVneq w 0) => [->|/e ->//]; rewrite !mul0r.
Qed.

Lemma E_add A (d : M A) f g : E d (fun x => f x + g x) = E d f + E d g.
Proof. by rewrite /E -big_split; apply: eq_bigr => o _ /=; rewrite mulrDr. Qed.

Lemma E_mull A (d : M A) a f : E d (fun x => a * f x) = a * E d f.
Proof. by rewrite /E mulr_sumr; apply: eq_bigr => o _; rewrite mulrCA. Qed.

Lemma E_sum A (I : finType) (d : M A) (F : I -> A -> R) : E d (fun a => \sum_i F i a) = \sum_i E d (F i).
Proof. by rewrite /E exchange_big /=; apply: eq_bigr => o _; rewrite mulr_sumr. Qed.

Lemma E_swap A B (d : M A) (d' : M B) (f : A -> B -> R) :
  E d (fun a => E d' (f a)) = E d' (fun b => E d (fun a => f a b)).
Proof.
rewrite /E; under eq_bigr do rewrite mulr_sumr; rewrite exchange_big.
by apply: eq_bigr => o _; rewrite mulr_sumr; apply: eq_bigr => u _; rewrite mulrCA.
Qed.

Lemma E_const A (d : M A) r : E d (fun=> 1) = 1 -> E d (fun=> r) = r.
Proof. by move=> h; rewrite -[RHS]mulr1 -h -E_mull; apply: eq_E => a; rewrite mulr1. Qed.

Lemma always_cat A P (d d' : M A) : always P (d ++ d') <-> always P d /\ always P d'.
Proof. by elim: d => [|[w a] d IH] /=; tauto. Qed.

Lemma always_scale A P w (d : M A) : (w != 0 -> always P d) -> always P (scale w d).
Proof.
move=> h; have [->|/h] := eqVneq w 0; first by elim: d {h} => //= -[u a] d IH; rewrite mul0r eqxx.
by elim: d {h} => //= -[u a] d IH [e /IH ?]; split=> //=; rewrite mulf_eq0 negb_or => /andP[_ /e].
Qed.

Lemma always_ret A (P : A -> Prop) a : P a -> always P (ret a). Proof. by move=> h; split. Qed.

Lemma always_bind A B (P : B -> Prop) (d : M A) (k : A -> M B) :
  always (fun a => always P (k a)) d -> always P (bind d k).
Proof.
elim: d => //= -[w a] d IH [h /IH ?]; apply/always_cat; split=> //; exact: always_scale.
Qed.

Lemma always_impl A (P Q : A -> Prop) (d : M A) : (forall a, P a -> Q a) -> always P d -> always Q d.
Proof. by move=> h; elim: d => //= -[w a] d IH [e /IH ?]; split=> // /e /h. Qed.

Lemma always_fmap A B (P : B -> Prop) (h : A -> B) d : always (fun a => P (h a)) d -> always P (fmap h d).
Proof. by move=> a; apply: always_bind; apply: always_impl a => x ?; apply: always_ret. Qed.

Lemma always_and A (P Q : A -> Prop) (d : M A) : always P d -> always Q d -> always (fun a => P a /\ Q a) d.
Proof. by elim: d => //= -[w a] d IH [? /IH h] [? /h ?]; split=> //; split; auto. Qed.

Lemma always_true A (P : A -> Prop) (d : M A) : (forall a, P a) -> always P d.
Proof. by move=> h; elim: d => //= -[w a]; split. Qed.

Lemma same_refl A (d : M A) : same d d. Proof. by []. Qed.
Lemma same_sym A (d d' : M A) : same d d' -> same d' d. Proof. by move=> h f. Qed.
Lemma same_trans A (d1 d2 d3 : M A) : same d1 d2 -> same d2 d3 -> same d1 d3.
Proof. by move=> h k f; rewrite h. Qed.

(** A coin: true with probability r, cut to [0, 1], as [bernoulli] of the language. *)
Definition clip (r : R) : R := Num.max 0 (Num.min 1 r).
Definition coin (r : R) : M bool := [:: (clip r, true); (1 - clip r, false)].

Lemma E_coin r f : E (coin r) f = clip r * f true + (1 - clip r) * f false.
Proof. by rewrite !E_cons E_nil addr0. Qed.

Lemma clip_id r : 0 <= r <= 1 -> clip r = r.
Proof. by case/andP=> r0 r1; rewrite /clip min_r // max_r. Qed.

Lemma clip01 r : 0 <= clip r <= 1.
Proof. by rewrite /clip le_maxr lexx /= le_maxl ler01 le_minl lexx. Qed.

Lemma prob_coin r : prob (coin r).
Proof.
case/andP: (clip01 r) => h0 h1; split; last by rewrite E_coin !mulr1 addrC subrK.
by rewrite /= h0 subr_ge0 h1.
Qed.

Lemma prob_ret A (a : A) : prob (ret a).
Proof. by split; rewrite ?E_ret //= ler01. Qed.

Lemma prob_bind A B (d : M A) (k : A -> M B) : prob d -> always (fun a => prob (k a)) d -> prob (bind d k).
Proof.
case=> d0 d1 h; split; last by rewrite E_bind -[RHS]d1; apply: E_always; apply: always_impl h => a [].
elim: d d0 h {d1} => //= -[w a] d IH /= /andP[w0 d0] [ha h].
rewrite all_cat IH // andbT /scale all_map.
have [->|/ha[ka _]] := eqVneq w 0; first by elim: (k a) => //= o s ->; rewrite mul0r lexx.
by apply: sub_all ka => o /= ?; rewrite mulr_ge0.
Qed.

End Monad.

Arguments ret {R A}.
Arguments ret : simpl never.
Arguments bind : simpl never.
Arguments coin : simpl never.
Arguments scale : simpl never.
Notation "d ~ d'" := (same d d') (at level 70).
Notation "x <- d ;; e" := (bind d (fun x => e)) (at level 100, d at next level, right associativity).

(** Rows: functions from tokens to weights. *)
Section Rows.
Variables (R : realFieldType) (V : finType).

Definition row := V -> R.
Definition law (p : row) := (forall v, 0 <= p v) /\ \sum_v p v = 1.
Definition draw (p : row) : M R V := [seq (p v, v) | v <- enum V].
Definition dot (p : row) (f : V -> R) : R := \sum_v p v * f v.

Definition relu (a : R) : R := Num.max a 0.
Definition total (p : row) : R := \sum_v p v.
Definition normalize (p : row) : row := fun v => p v / total p.
Definition excess (p q : row) : row := fun v => relu (p v - q v).
Definition onehot (x : V) : row := fun v => (v == x)%:R.

Lemma E_draw p f : E (draw p) f = dot p f.
Proof. by rewrite /E big_map big_enum. Qed.

Lemma prob_draw p : law p -> prob (draw p).
Proof.
case=> p0 p1; split; last by rewrite E_draw -[RHS]p1; apply: eq_bigr => v _; rewrite mulr1.
by rewrite all_map; apply/allP => v _ /=.
Qed.

Lemma always_draw (P : V -> Prop) p : (forall v, p v != 0 -> P v) -> always P (draw p).
Proof. by move=> h; rewrite /draw; elim: (enum V) => //= v s IH; split=> // /h. Qed.

Lemma eq_dot p f g : f =1 g -> dot p f = dot p g.
Proof. by move=> e; apply: eq_bigr => v _; rewrite e. Qed.

Lemma dot_const p r : law p -> dot p (fun=> r) = r.
Proof. by case=> _ p1; rewrite /dot -mulr_suml p1 mul1r. Qed.

Lemma dotD p f g : dot p (fun v => f v + g v) = dot p f + dot p g.
Proof. by rewrite /dot -big_split; apply: eq_bigr => v _; rewrite mulrDr. Qed.

Lemma dot_normalize p f : dot (normalize p) f = dot p f / total p.
Proof. by rewrite /dot mulr_suml; apply: eq_bigr => v _; rewrite /normalize mulrAC. Qed.

Lemma dot_onehot x f : dot (onehot x) f = f x.
Proof.
rewrite /dot (bigD1 x) //= /onehot eqxx mul1r big1 ?addr0 // => v /negPf ->.
by rewrite mul0r.
Qed.

Lemma law_onehot x : law (onehot x).
Proof.
split=> [v|]; first by rewrite ler0n.
by have := dot_onehot x (fun=> 1); rewrite /dot; under eq_bigr do rewrite mulr1.
Qed.

Lemma relu_ge0 a : 0 <= relu a. Proof. by rewrite /relu le_maxr lexx orbT. Qed.

Lemma law_normalize p : (forall v, 0 <= p v) -> total p != 0 -> law (normalize p).
Proof.
move=> p0 t0; split; last by rewrite /normalize -mulr_suml mulfV.
by move=> v; rewrite divr_ge0 // sumr_ge0.
Qed.

(** What a draft x ~ q that is worth a row p is accepted with: q x * min(1, p x / q x) = min(p x, q x) = p x - relu(p x - q x). *)
Lemma accepted (p q : R) : 0 <= p -> 0 <= q -> q * clip (p / q) = p - relu (p - q).
Proof.
rewrite le0r => p0; rewrite le0r => /orP[/eqP ->|q0].
  by rewrite mul0r subr0 /relu max_l ?subrr // le0r.
have pq : 0 <= p / q by rewrite divr_ge0 ?le0r // q0 orbT.
rewrite /clip /relu; case: (lerP p q) => h.
  rewrite (max_r (x := p - q)) ?subr_le0 // subr0 min_r ?ler_pdivr_mulr ?mul1r //.
  by rewrite max_r // mulrC divfK ?gt_eqF.
rewrite (max_l (x := p - q)) ?subr_ge0 1?ltW // opprB addrCA subrr addr0.
by rewrite min_l ?ler_pdivl_mulr ?mul1r 1?ltW // max_r ?mulr1 ?ler01.
Qed.

End Rows.
