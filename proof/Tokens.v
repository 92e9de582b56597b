(** Claims about the tokens themselves: matching (T5) and support (T8).

    [owned_steps]: if every step commits own tokens of the target, the run commits the specification's text, whatever drafted it.
    [follow_owned]: a rule that accepts and emits nothing but the target's own token commits own tokens down any tree.
    [inside_steps], [walk_inside]: the same for tokens that the target gives mass to; [rejection_keeps] has the rule [rejection],
    whatever its drafts are. [Law_inside]: what has the target's distribution stays within its support. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Steps.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** ** T5: matching

    The noise that the specification reads is keyed by position: once it is given, the target's own token after a text is a
    function of the text. All other noise (of drafts, of other models) may be anything. *)
Section Matching.
Variables (R : realFieldType) (V : finType).
Notation M := (M R).
Notation text := (seq V).
Variables (own : text -> V) (ended : text -> bool).

Fixpoint own_text n c : text :=
  if n is n'.+1 then if ended c then [::] else own c :: own_text n' (rcons c (own c)) else [::].

(** The fact [Tokens(target, c)]: each token is the target's own after those before it. *)
Fixpoint owned c (w : text) : bool := if w is x :: w' then (x == own c) && owned (rcons c x) w' else true.

Lemma owned_cat c w w' : owned c (w ++ w') = owned c w && owned (c ++ w) w'.
Proof. by elim: w c => [|x w IH] c /=; rewrite ?cats0 // IH cat_rcons andbA. Qed.

Lemma owned_cut c w : owned c w -> owned c (cut ended c w).
Proof. by elim: w c => //= x w IH c /andP[/eqP -> ow]; case: (ended c) => //=; rewrite eqxx IH. Qed.

Lemma owned_first n c w : ~~ ended c -> owned c w ->
  own_text n c = if (n <= size (cut ended c w))%N then take n (cut ended c w)
                 else cut ended c w ++ own_text (n - size (cut ended c w)) (c ++ cut ended c w).
Proof.
elim: w n c => [|x w IH] [|n] c go //=; rewrite ?cats0 //; first by rewrite (negbTE go).
case/andP=> /eqP -> ow; rewrite (negbTE go) /= ltnS subSS.
have [e|go'] := boolP (ended (rcons c (own c))); last by rewrite (IH n _ go' ow) cat_rcons; case: ifP.
have -> : cut ended (rcons c (own c)) w = [::] by case: w {IH ow} => //= ? ?; rewrite e.
by case: n => [|n] //=; rewrite e cats1 /= e.
Qed.

(** If every step commits own tokens, at least one, then with the same noise the run commits the specification's, whatever all
    other noise is. *)
Theorem owned_steps S (path : text -> S -> M (text * S)) (ok : text -> S -> Prop) :
  (forall c s, ok c s -> ~~ ended c -> E (path c s) (fun=> 1) = 1) ->
  (forall c s, ok c s -> ~~ ended c ->
    always (fun o => [/\ owned c o.1, (0 < size o.1)%N & ok (c ++ cut ended c o.1) o.2]) (path c s)) ->
  forall n c s, ok c s -> run ended (commit ended path) n n c s ~ ret (own_text n c).
Proof.
move=> mass next n c s oks.
apply: (steps (spec := fun n c => ret (own_text n c)) (ok := ok)) => // {c s n oks} [n c s oks|c s oks].
  have [e f|go f] := boolP (ended c); first by rewrite /once orbC e; case: n => //= n; rewrite e.
  rewrite /once; case: n => // n; rewrite orFb (negbTE go) /commit E_bind E_bind E_ret -[RHS](E_const _ (mass c s oks go)).
  apply: E_always; apply: always_impl (next c s oks go) => -[w s'] [ow _ _].
  by rewrite E_ret (owned_first n.+1 go ow) /first; case: ifP => _; rewrite ?E_fmap !E_ret.
move=> go; apply: always_bind; apply: always_impl (next c s oks go) => -[w s'] /= [_ w0 oks'].
by apply: always_ret => /=; case: w w0 oks' => //= x w _; rewrite (negbTE go).
Qed.

(** The judgment for a rule: it accepts and emits nothing but the target's own token. A state may know it: [knows c s]. *)
Section ByRule.
Variables (S : Type) (start : text -> S) (look : S -> V -> option S) (stop : S -> V) (knows : text -> S -> Prop).

Record matches : Prop := Matches {
  start_knows : forall c, knows c (start c);
  look_knows : forall c s x, knows c s -> if look s x is Some s' then knows c s' else x = own c;
  stop_knows : forall c s, knows c s -> stop s = own c
}.

(** The walk goes on below an accepted node if there is evidence at it. *)
Variable evidence : text -> bool.

Fixpoint follow c (t : tree R V) s : text :=
  if t is Node x _ below next then
    if look s x is Some s' then follow c next s'
    else x :: (if evidence (rcons c x) then follow (rcons c x) below (start (rcons c x)) else [::])
  else [:: stop s].

(** Any tree, however it was drafted, with evidence at any of its nodes. *)
Theorem follow_owned : matches -> forall t c, owned c (follow c t (start c)).
Proof.
move=> m; have h : forall t c s, knows c s -> owned c (follow c t s); last by move=> t c; apply/h/start_knows.
elim=> [|x q below IHb next IHn] c s k /=; first by rewrite (stop_knows m k) eqxx.
have := look_knows m x k; case: (look s x) => [s' /IHn //|/= e].
by rewrite e eqxx /=; case: evidence => //; apply/IHb/start_knows.
Qed.

End ByRule.

(** The rule [match]: y is the target's own token. *)
Lemma match_matches : matches own (fun y x => if x == y then None else Some y) id (fun c y => y = own c).
Proof. by split=> // c y x ->; case: eqP. Qed.

End Matching.

(** ** T8: support *)
Section Support.
Variables (R : realFieldType) (V : finType).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Variables (target : text -> row) (ended : text -> bool).

(** The fact [Support(target, c)]: the target gives mass to each token, after those before it. *)
Fixpoint inside c (w : text) : bool := if w is x :: w' then (target c x != 0) && inside (rcons c x) w' else true.

Lemma inside_cat c w w' : inside c (w ++ w') = inside c w && inside (c ++ w) w'.
Proof. by elim: w c => [|x w IH] c /=; rewrite ?cats0 // IH cat_rcons andbA. Qed.

Lemma inside_take n c w : inside c w -> inside c (take n w).
Proof. by elim: w n c => [|x w IH] [|n] c //= /andP[-> /IH ->]. Qed.

Theorem inside_steps S (step : text -> S -> M (outcome V S)) (ok : text -> S -> Prop) :
  (forall c s, ok c s -> ~~ ended c ->
    always (fun o => inside c o.1 /\ if o.2 is Some s' then ok (c ++ o.1) s' else True) (step c s)) ->
  forall k n c s, ok c s -> always (inside c) (run ended step k n c s).
Proof.
move=> next; elim=> [|k IH] n c s oks; first exact: always_ret.
rewrite /run -/run; case: ifP => [_|/norP[_ go]]; first exact: always_ret.
apply: always_bind; apply: always_impl (next c s oks go) => -[w [s'|]] /= [iw oks'].
all: rewrite /first; case: ifP => _; first by apply/always_ret/inside_take.
  by apply: always_fmap; apply: always_impl (IH _ _ _ oks') => u iu; rewrite inside_cat iw.
by apply: always_fmap; apply: always_ret; rewrite cats0.
Qed.

(** The judgment for a rule, for siblings of any distribution: [knows p s] says that s stays within the row p. *)
Section ByRule.
Variables (r : rule R V) (knows : row -> carried r -> Prop).

Record keeps : Prop := Keeps {
  start_keeps : forall p, law p -> always (knows p) (start r p);
  look_keeps : forall p s q x, law p -> (forall v, 0 <= q v) -> knows p s ->
    always (fun o => if o is Some s' then knows p s' else p x != 0) (look s x q);
  stop_keeps : forall p s, law p -> knows p s -> always (fun y => p y != 0) (stop s)
}.

Fixpoint weights (t : tree R V) : Prop :=
  if t is Node _ q below next then [/\ forall v, 0 <= q v, weights below & weights next] else True.

Hypothesis target_law : forall c, law (target c).

Theorem walk_inside : keeps -> forall t c, weights t -> always (inside c) (walk target r c t).
Proof.
move=> k; have h : forall t c s, weights t -> knows (target c) s -> always (inside c) (descend target c t s).
  elim=> [|x q below IHb next IHn] c s /=.
    move=> _ ks; apply: always_bind; apply: always_impl (stop_keeps k (target_law c) ks) => y py.
    by apply: always_ret; rewrite /= py.
  case=> q0 wb wn ks; apply: always_bind.
  apply: always_impl (look_keeps k x (target_law c) q0 ks) => -[s' ks'|px]; first exact: IHn.
  apply: always_bind; apply: always_impl (start_keeps k (target_law (rcons c x))) => s' ks'.
  by apply: always_fmap; apply: always_impl (IHb _ _ wb ks') => w iw; rewrite /= px.
move=> t c wt; apply: always_bind; apply: always_impl (start_keeps k (target_law c)) => s ks; exact: h.
Qed.

End ByRule.

(** [rejection] keeps support for siblings of any distribution: nothing of the label check is needed. *)
Lemma rejection_keeps : @keeps (rejection R V) (fun p s => forall v, s v != 0 -> p v != 0).
Proof.
split=> /= [p lp|p s q x lp q0 ks|p s lp ks].
- by split.
- split; last split=> //; rewrite mulr1.
    move=> c0; apply: ks; apply: contra c0 => /eqP ->; rewrite mul0r clip_id ?lexx ?ler01 //.
  move=> _ v; rewrite /normalize mulf_eq0 negb_or => /andP[e _]; apply: ks; apply: contra e => /eqP s0.
  by rewrite /excess s0 sub0r /relu max_r // oppr_le0.
- exact: always_draw.
Qed.

(** A path of the target's distribution is inside its support: [in distribution] implies [keeps support]. *)
Theorem Law_inside c (W : M text) : (forall t, law (target t)) -> prob W -> Law target c W -> always (inside c) W.
Proof.
move=> lt [W0 W1] L; pose J t := (~~ inside c (drop (size c) t))%:R : R.
have Jc w : J (c ++ w) = (~~ inside c w)%:R by rewrite /J drop_size_cat.
have J0 : J c = 0 by have := Jc [::]; rewrite cats0.
have : E W (fun w => (~~ inside c w)%:R) = 0.
  rewrite -J0 -L => [|w]; first by apply: eq_E => w; rewrite Jc.
  rewrite Jc; under eq_dot do rewrite rcons_cat Jc -cats1 inside_cat /= andbT negb_and.
  case: (inside c w) => /=; last by rewrite dot_const.
  by rewrite /dot big1 // => v _; case: eqP => [->|_]; rewrite ?mul0r ?mulr0.
elim: W W0 {W1 L} => //= -[p w] W IH /= /andP[p0 W0]; rewrite E_cons => /eqP.
have i0 u : 0 <= (~~ inside c u)%:R :> R by rewrite ler0n.
rewrite paddr_eq0 ?mulr_ge0 //; last by rewrite /E; elim: W W0 {IH} => [|o W IH] /=; rewrite ?big_nil // big_cons => /andP[? /IH]; apply: addr_ge0; rewrite mulr_ge0.
case/andP=> pw /eqP /(IH W0) aw; split=> // pn; move: pw; rewrite mulf_eq0 (negbTE pn) /=.
by case: (inside c w) => //; rewrite oner_eq0.
Qed.

End Support.
