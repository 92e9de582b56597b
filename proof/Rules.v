(** Rules that read siblings one after the other, and the judgment that a rule is lossless (T1, T2).

    A rule of [stdlib/rules.dec] with the header [rule name(p: dist, children: draws)] is a loop over the children. [start] is
    what stands before the loop, [look] its body, [stop] what stands after it.

    The judgment [lossless] carries the row that is still owed. At first it is p. In each iteration the accepted mass and the
    mass of going on times the row owed afterwards add up to the row owed before; after the loop a draw of it is emitted.
    [siblings_lossless]: a rule with this judgment, run over any number of siblings, each drawn from the row that it states given
    the ones before it, accepts or emits a token whose distribution is p. [rejection_lossless] and [matching_lossless] are the
    judgments for the rules [rejection] and [match]; [rejection_one] is the case of one draft that papers prove. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Rules.
Variables (R : realFieldType) (V : finType).
Notation row := (row R V).
Notation M := (M R).

Record rule := Rule {
  carried : Type;
  start : row -> M carried;                                (* from the row of the evidence *)
  look : carried -> V -> row -> M (option carried);        (* child x, drawn from q: None accepts it, Some s goes on *)
  stop : carried -> M V                                    (* no child left: the token to emit *)
}.

(** What is owed, averaged over one outcome: an accepted token has paid, after a refusal the next state owes. *)
Definition pays S (owed : S -> row) (f : V -> R) (x : V) (o : option S) : R :=
  if o is Some s then dot (owed s) f else f x.

(** The judgment. [owed] is the invariant, a row for each state; [valid] holds of every state that can be reached. *)
Record lossless (r : rule) (valid : carried r -> Prop) (owed : carried r -> row) : Prop := Lossless {
  start_owes : forall p, law p -> forall f, E (start r p) (fun s => dot (owed s) f) = dot p f;
  start_valid : forall p, law p -> always valid (start r p);
  look_owes : forall s q, valid s -> law q -> forall f,
    dot q (fun x => E (look s x q) (pays owed f x)) = dot (owed s) f;
  look_valid : forall s q x, valid s -> law q -> q x != 0 ->
    always (fun o => if o is Some s' then valid s' else True) (look s x q);
  stop_owes : forall s, valid s -> forall f, E (stop s) f = dot (owed s) f
}.

(** ** Siblings

    [Sib q more] draws a token x from the row q and goes on with [more x]: every distribution, and whether there is another
    sibling at all, may depend on all tokens before. Independent draws, draws without replacement, different drafters
    and tokens that are not drawn ([onehot]) are such sequences. *)
Inductive siblings := Nomore | Sib (q : row) (more : V -> siblings).

Fixpoint laws (d : siblings) : Prop :=
  if d is Sib q more then law q /\ forall x, q x != 0 -> laws (more x) else True.

Fixpoint sample (d : siblings) : M (seq (V * row)) :=
  if d is Sib q more then x <- draw q ;; l <- sample (more x) ;; ret ((x, q) :: l) else ret [::].

Fixpoint verify (r : rule) (s : carried r) (children : seq (V * row)) : M V :=
  if children is (x, q) :: children' then
    o <- look s x q ;; if o is Some s' then verify s' children' else ret x
  else stop s.

Definition apply (r : rule) (p : row) (children : seq (V * row)) : M V := s <- start r p ;; verify s children.

Lemma mass_sample d : laws d -> E (sample d) (fun=> 1) = 1.
Proof.
elim: d => [|q more IH] /=; first by rewrite E_ret.
case=> lq lm; rewrite E_bind E_draw -[RHS](dot_const 1 lq); apply: eq_bigr => y _.
have [->|qy] := eqVneq (q y) 0; first by rewrite !mul0r.
by congr (_ * _); rewrite E_bind -[RHS](IH y (lm y qy)); apply: eq_E => l; rewrite E_ret.
Qed.

(** T2, for every rule with the judgment. *)
Lemma verify_owes r valid owed : @lossless r valid owed -> forall d s, laws d -> valid s ->
  forall f, E (sample d) (fun l => E (verify s l) f) = dot (owed s) f.
Proof.
move=> L; elim=> [|q more IH] s /=; first by move=> _ vs f; rewrite E_ret (stop_owes L).
case=> lq lm vs f; rewrite E_bind E_draw -(look_owes L vs lq f).
apply: eq_bigr => x _; have [->|qx] := eqVneq (q x) 0; first by rewrite !mul0r.
congr (_ * _); rewrite E_bind; under eq_E do rewrite E_ret /= E_bind.
rewrite E_swap; apply: E_always; apply: always_impl (look_valid L vs lq qx).
case=> [s' /= vs'|_ /=]; first exact: IH (lm x qx) vs' f.
by rewrite E_const ?E_ret // mass_sample //; apply: lm.
Qed.

Theorem siblings_lossless r valid owed : @lossless r valid owed -> forall d p, laws d -> law p ->
  (l <- sample d ;; apply r p l) ~ draw p.
Proof.
move=> L d p ld lp f; rewrite E_bind; under eq_E do rewrite E_bind.
rewrite E_swap E_draw -(start_owes L lp f).
by apply: E_always; apply: always_impl (start_valid L lp) => s vs; apply: (verify_owes L).
Qed.

(** ** The rule [rejection]

<<
    for x in children:
        if bernoulli(p[x] / x.law[x]):
            accept x
        p = normalize(relu(p - x.law))
    y ~ p
    emit y
>> *)
Definition rejection : rule := {|
  carried := row;
  start p := ret p;
  look p x q := b <- coin (p x / q x) ;; ret (if b then None else Some (normalize (excess p q)));
  stop p := draw p
|}.

Lemma total_excess (p q : row) : \sum_v (q v - (p v - excess p q v)) = total q - total p + total (excess p q).
Proof. by rewrite !sumrB opprB addrA addrAC. Qed.

(** Nothing is missing only if nothing is ever refused. *)
Lemma excess0 (p q : row) : law p -> law q -> total (excess p q) = 0 -> p =1 q.
Proof.
case=> p0 p1 [q0 q1] /eqP; rewrite psumr_eq0 => [/allP z|v _]; last exact: relu_ge0.
have le v : p v <= q v.
  by have /eqP := z v (mem_index_enum v); rewrite /excess /relu; case: (leP (p v - q v) 0); rewrite ?subr_le0 // => /gt_eqF e /eqP; rewrite e.
move=> v; apply/eqP; rewrite eq_sym -subr_eq0; move: v; apply/forallP.
have : \sum_v (q v - p v) == 0 by rewrite sumrB p1 q1 subrr.
rewrite psumr_eq0 => [/allP h|v _]; last by rewrite subr_ge0.
by apply/forallP => v; apply: (h v (mem_index_enum v)).
Qed.

Lemma rejection_lossless : @lossless rejection (@law R V) id.
Proof.
split=> /= [p lp f|p lp|p q lp lq f|p q x lp lq qx|p lp f]; first by rewrite E_ret.
- exact: always_ret.
- have [p0 p1] := lp; have [q0 q1] := lq.
  have step x : q x * E (b <- coin (p x / q x) ;; ret (if b then None else Some (normalize (excess p q)))) (pays id f x)
      = (p x - excess p q x) * f x + (q x - (p x - excess p q x)) * dot (normalize (excess p q)) f.
    by rewrite E_bind E_coin !E_ret /= mulrDr !mulrA mulrBr mulr1 accepted.
  rewrite /dot (eq_bigr _ (fun x _ => step x)) big_split -mulr_suml total_excess /total p1 q1 subrr add0r -/(dot _ f).
  rewrite dot_normalize /=; under eq_bigr do rewrite mulrBl; rewrite sumrB.
  have [t0|t0] := eqVneq (total (excess p q)) 0; last by rewrite mulrC divfK // subrK.
  rewrite -[\sum_v excess p q v]/(total (excess p q)) t0 mul0r addr0 [X in _ - X]big1 ?subr0 // => v _.
  by rewrite /excess (excess0 lp lq t0) subrr /relu maxxx mul0r.
- split=> //; split=> //; rewrite mulr1 => c1; apply: law_normalize => [v|]; first exact: relu_ge0.
  apply: contra c1 => /eqP/(excess0 lp lq) ->.
  by rewrite divff // clip_id ?subrr // ler01 lexx.
- by rewrite E_draw.
Qed.

(** T2 for [rejection]: the token has distribution p, whatever the siblings, as long as each has the distribution it says it has. *)
Theorem rejection_siblings d p : laws d -> law p -> (l <- sample d ;; apply rejection p l) ~ draw p.
Proof. exact: siblings_lossless rejection_lossless d p. Qed.

(** T1: one draft. *)
Definition one (p q : row) : M V :=
  x <- draw q ;; b <- coin (p x / q x) ;; if b then ret x else draw (normalize (fun v => relu (p v - q v))).

Theorem rejection_one p q : law p -> law q -> one p q ~ draw p.
Proof.
move=> lp lq f; rewrite E_bind !E_draw -(look_owes rejection_lossless lp lq f).
by apply: eq_bigr => x _; rewrite !E_bind !E_coin !E_ret E_draw.
Qed.

(** ** The rule [match]: draw the target's own token first, follow the child that carries it. Nothing is asked of the distributions.

<<
    y ~ p as output
    for x in children:
        if x == y:
            accept x
    emit y
>> *)
Definition matching : rule := {|
  carried := V;
  start p := draw p;
  look y x q := ret (if x == y then None else Some y);
  stop y := ret y
|}.

Lemma matching_lossless : @lossless matching (fun=> True) (@onehot R V).
Proof.
split=> /= [p lp f|p lp|y q _ lq f|y q x _ lq qx|y _ f]; last by rewrite E_ret dot_onehot.
- by rewrite E_draw; apply: eq_bigr => v _; rewrite dot_onehot.
- exact: always_true.
- rewrite dot_onehot -[RHS](dot_const _ lq); apply: eq_bigr => x _.
  by rewrite E_ret; case: eqP => [->|_] //=; rewrite dot_onehot.
- by split=> //; case: (x == y).
Qed.

End Rules.
