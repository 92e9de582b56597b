(** From one step to the whole run (T4), and the theorem for whole algorithms.

    [steps]: if one step followed by the specification is the specification, from wherever a step can start, and a step that goes
    on commits at least one token, then the run is the specification. Ending, also by an error, is an outcome like any other.
    [lawful_steps]: so it is for an algorithm each of whose steps commits a lawful path. [verified_lossless]: so it is for an
    algorithm that drafts a fair tree in any way, walks it by a lossless rule and then updates any state by all it has seen. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Steps.
Variables (R : realFieldType) (V : finType).
Notation M := (M R).
Notation text := (seq V).

Variable ended : text -> bool.

(** What one step of an algorithm leads to: the tokens that it commits, and the state it leaves; no state if the run is over
    after it, by an error or in any other way. *)
Definition outcome S := (text * option S)%type.

(** Some tokens, then whatever [go] says of the rest: the first n. *)
Definition first n c (w : text) (go : nat -> text -> M text) : M text :=
  if (n <= size w)%N then ret (take n w) else fmap (cat w) (go (n - size w)%N (c ++ w)).

Section Run.
Variable S : Type.
Variable step : text -> S -> M (outcome S).

(** [while not done: step]: the first n tokens in at most k iterations. *)
Fixpoint run k n c s : M text :=
  if k is k'.+1 then
    if (n == 0)%N || ended c then ret [::]
    else o <- step c s ;; first n c o.1 (fun n' c' => if o.2 is Some s' then run k' n' c' s' else ret [::])
  else ret [::].

(** A specification, as the distribution of the first n tokens after c, and one step of the algorithm followed by it. *)
Variable spec : nat -> text -> M text.

Definition once n c s : M text :=
  if (n == 0)%N || ended c then ret [::]
  else o <- step c s ;; first n c o.1 (fun n' c' => if o.2 is Some _ then spec n' c' else ret [::]).

(** [ok c s]: a step may start at c with s. *)
Variable ok : text -> S -> Prop.

(** T4. If from wherever a step can start, one step followed by the specification is the specification, and a step that goes on
    commits something and ends where a step can start, then the run is the specification; n tokens need n iterations at most. *)
Theorem steps :
  (forall n c s, ok c s -> once n c s ~ spec n c) ->
  (forall c s, ok c s -> ~~ ended c ->
    always (fun o => if o.2 is Some s' then (0 < size o.1)%N /\ ok (c ++ o.1) s' else True) (step c s)) ->
  forall k n c s, (n <= k)%N -> ok c s -> run k n c s ~ spec n c.
Proof.
move=> one next; elim=> [|k IH] n c s nk oks f.
  by rewrite -(one n c s oks); case: n nk.
rewrite -(one n c s oks) /run -/run /once; case: eqP => //= n0; case: ifP => // /negbT go.
rewrite !E_bind; apply: E_always; apply: always_impl (next c s oks go) => -[w [s'|]] //= [w0 oks'].
rewrite /first; case: leqP => // wn; rewrite !E_fmap; apply: IH => //.
by rewrite leq_subLR (leq_trans nk) // -add1n leq_add2r.
Qed.

End Run.

(** ** Steps that commit a lawful path

    Whatever an algorithm carries, counts, measures or chooses decides which path it commits next; all that is asked is that the
    path is lawful at the context on which it stands. *)
Section Lawful.
Variable target : text -> row R V.
Hypothesis target_law : forall c, law (target c).

Lemma first_complete n c w f : ~~ ended c ->
  E (complete target ended n c w) f = E (first n c (cut ended c w) (spec target ended)) f.
Proof.
move=> go; rewrite /first; elim: w n c f go => [|x w IH] [|n] c f go.
- by rewrite complete0 /=.
- by rewrite complete0 /= E_fmap cats0; apply: eq_E.
- by rewrite leq0n take0 /=.
rewrite /= (negbTE go) /= ltnS E_fmap subSS.
have [e|go'] := boolP (ended (rcons c x)); last first.
  rewrite IH //; case: ifP => _; first by rewrite !E_ret.
  by rewrite !E_fmap cat_rcons.
have -> : cut ended (rcons c x) w = [::] by case: w {IH} => //= ? ?; rewrite e.
case: n => [|n] /=; first by rewrite !E_ret.
by rewrite e E_ret E_fmap cats1 /= e E_ret.
Qed.

Variables (S : Type) (path : text -> S -> M (text * S)) (ok : text -> S -> Prop).

(** [path c s]: what a step commits, and the state after it. *)
Definition commit c s : M (outcome S) := o <- path c s ;; ret (cut ended c o.1, Some o.2).

Theorem lawful_steps :
  (forall c s, ok c s -> ~~ ended c -> Law target c (fmap fst (path c s))) ->
  (forall c s, ok c s -> ~~ ended c -> always (fun o => (0 < size o.1)%N /\ ok (c ++ cut ended c o.1) o.2) (path c s)) ->
  forall n c s, ok c s -> run commit n n c s ~ spec target ended n c.
Proof.
move=> lawful next n c s oks; apply: (steps (ok := ok)) => // {c s n oks} [n c s oks|c s oks].
  have [e f|go f] := boolP (ended c); first by rewrite /once orbC e; case: n => //= n; rewrite e.
  rewrite /once; case: n => // n; rewrite orFb (negbTE go).
  rewrite -(Law_complete ended target_law n.+1 (lawful c s oks go)) /commit !E_bind.
  by apply: eq_E => o; rewrite !E_ret (first_complete _ _ _ go).
move=> go; apply: always_bind; apply: always_impl (next c s oks go) => -[w s'] /= [w0 oks'].
by apply: always_ret => /=; case: w w0 oks' => //= x w _; rewrite (negbTE go).
Qed.

(** Draft a tree, walk it, commit the path: the theorem for all programs that verify with a lossless rule. *)
Variables (r : rule R V) (draft : text -> S -> M (tree R V)) (update : text -> S -> tree R V -> text -> M S).

Definition verified c s : M (text * S) :=
  t <- draft c s ;; w <- walk target r c t ;; s' <- update c s t w ;; ret (w, s').

End Lawful.

Theorem verified_lossless (target : text -> row R V) S r valid owed draft update :
  (forall c, law (target c)) -> @lossless R V r valid owed ->
  (forall c s, fair (draft c s)) -> (forall c s t w, prob (update c s t w)) ->
  forall n c (s : S), run (commit (verified target r draft update)) n n c s ~ spec target ended n c.
Proof.
move=> lt L fd pu n c s; apply: (@lawful_steps target lt S _ (fun _ _ => True)) => // {n} {}c {}s _ go.
  apply: Law_same (walk_Law lt L (fd c s)) => f; rewrite /verified E_fmap !E_bind; apply: eq_E => t.
  rewrite E_bind; apply: eq_E => w; rewrite E_bind; under eq_E do rewrite E_ret /=.
  by rewrite E_const //; case: (pu c s t w).
apply: always_bind; apply: always_true => t; apply: always_bind.
apply: always_impl (walk_nonempty target r c t) => w w0; apply: always_bind; apply: always_true => s'.
exact: always_ret.
Qed.

End Steps.
