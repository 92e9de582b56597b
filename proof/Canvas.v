(** Programs on a canvas: [block == 1] and [steps == 1].

    [block_one]: where every block is one position, which positions are decided first, by whatever score, threshold, memory or
    chance, decides nothing: the canvas has the distribution of one position after the other, each drawn from the model's row there.
    So all such programs refine each other ([block_one_agree]), and [static_masked] is one of them ([sensible_single]).
    [steps_one]: a program whose only step decides every masked position does what [llada] does in one step. [blocks_inside]: each
    step decides tokens that the model gives mass to on the canvas before it. [scheduled_agree]: more generally, programs
    whose steps decide the same positions, or choose them in the same way by what is drawn, have one distribution. [own_end]: where
    draws go by how many positions are decided, also which steps are made and which are put off decides nothing. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Canvas.
Variables (R : realFieldType) (V I : finType).
Notation row := (row R V).
Notation M := (M R).

(** A canvas: a token at each position, or none yet (it is masked). The model gives a row to each position of a canvas. *)
Definition canvas := {ffun I -> option V}.
Definition masked (c : canvas) i := c i == None.
Variable model : canvas -> I -> row.
Hypothesis model_law : forall c i, law (model c i).

(** [x ~ model(c)]: a token for each position, drawn independently. *)
Definition drawn_all (p : I -> row) : M {ffun I -> V} := 
  map (fun x : {ffun I -> V} => (\prod_i p i (x i), x)) (enum {: {ffun I -> V}}).

Lemma E_drawn_all p f : E (drawn_all p) f = \sum_(x : {ffun I -> V}) (\prod_i p i (x i)) * f x.
Proof. by rewrite /E big_map big_enum. Qed.

Lemma mass_drawn_all p : (forall i, law (p i)) -> E (drawn_all p) (fun=> 1) = 1.
Proof.
move=> lp; rewrite E_drawn_all; under eq_bigr do rewrite mulr1.
by rewrite -(bigA_distr_bigA (fun i v => p i v)) big1 // => i _; case: (lp i).
Qed.

(** One position alone has the row of that position. *)
Lemma marginal p i f : (forall j, law (p j)) -> E (drawn_all p) (fun x => f (x i)) = dot (p i) f.
Proof.
move=> lp; rewrite E_drawn_all.
pose F j v := p j v * (if j == i then f v else 1).
transitivity (\sum_(x : {ffun I -> V}) \prod_j F j (x j)).
  apply: eq_bigr => x _; rewrite big_split /=; congr (_ * _).
  by rewrite (bigD1 i) //= eqxx big1 ?mulr1 // => j /negPf ->.
rewrite -(bigA_distr_bigA F) (bigD1 i) //= [X in _ * X]big1 ?mulr1 => [|j /negPf ji].
  by apply: eq_bigr => v _; rewrite /F eqxx.
by rewrite /F ji; under eq_bigr do rewrite mulr1; case: (lp j).
Qed.

(** [unmask c where chosen with x] *)
Definition unmask (c : canvas) (chosen : pred I) (x : {ffun I -> V}) : canvas :=
  [ffun j => if chosen j then Some (x j) else c j].

Definition put (c : canvas) i v : canvas := [ffun j => if j == i then Some v else c j].

(** ** Programs that fill a canvas block after block *)
Section Blocks.
Variable S : Type.

(** Which positions of the block are decided next, and what else the program remembers: anything that depends on the canvas, on
    what was drawn for it, and on other random choices. *)
Variable choose : seq I -> S -> canvas -> {ffun I -> V} -> M (pred I * S).

(** [for b in blocks: while any(c.masked[b]): p = model(c); x ~ p; unmask c[b] where chosen with x], in k iterations at most. *)
Fixpoint fill k (b : seq I) (c : canvas) (s : S) : M (canvas * S) :=
  if k is k'.+1 then
    if has (masked c) b then
      x <- drawn_all (model c) ;; o <- choose b s c x ;; fill k' b (unmask c o.1 x) o.2
    else ret (c, s)
  else ret (c, s).

Fixpoint blocks k (bs : seq (seq I)) c s : M (canvas * S) :=
  if bs is b :: bs' then o <- fill k b c s ;; blocks k bs' o.1 o.2 else ret (c, s).

(** It chooses some of the block's masked positions, at least one where there is one. *)
Definition sensible := forall b s c x, prob (choose b s c x) /\
  (has (masked c) b -> always (fun o : pred I * S => (forall j, o.1 j -> (j \in b) && masked c j) /\ has o.1 b) (choose b s c x)).

(** A position after the other, each from the model's row there. *)
Fixpoint in_order (ps : seq I) (c : canvas) : M canvas :=
  if ps is i :: ps' then
    if masked c i then v <- draw (model c i) ;; in_order ps' (put c i v) else in_order ps' c
  else ret c.

Lemma fill_one k i c s f : sensible -> E (fill k.+1 [:: i] c s) (fun o => f o.1) =
  if masked c i then dot (model c i) (fun v => f (put c i v)) else f c.
Proof.
move=> sens; rewrite /fill -/fill /= orbF; case: ifP => [mi|_]; last by rewrite E_ret.
rewrite E_bind -(marginal _ _ (model_law c)); apply: eq_E => x.
have [[_ c1] cs] := sens [:: i] s c x; rewrite E_bind -[RHS](E_const _ c1).
have hm : has (masked c) [:: i] by rewrite /= mi.
apply: E_always; apply: always_impl (cs hm) => -[ch s'] /= [only some]; rewrite orbF in some.
have e : unmask c ch x = put c i (x i).
  apply/ffunP => j; rewrite !ffunE; case: eqVneq => [->|ji]; first by rewrite some.
  by case: ifP => // /only; rewrite inE (negPf ji).
case: k => [|k] /=; first by rewrite E_ret e.
by rewrite e {1}/masked ffunE eqxx /= E_ret.
Qed.

(** [block == 1]: where every block is one position, how positions are chosen decides nothing. *)
Theorem block_one k ps c s f : sensible ->
  E (blocks k.+1 [seq [:: i] | i <- ps] c s) (fun o => f o.1) = E (in_order ps c) f.
Proof.
move=> sens; elim: ps c s => [|i ps IH] c s /=; first by rewrite !E_ret.
rewrite E_bind; under eq_E do rewrite IH.
rewrite (@fill_one k i c s (fun c' => E (in_order ps c') f) sens); case: ifP => // _.
by rewrite E_bind E_draw.
Qed.

(** ** Programs that decide everything in one step *)

(** [steps == 1]: a step that chooses every masked position, by whatever schedule or score. *)
Definition one_step b c s : M (canvas * S) := x <- drawn_all (model c) ;; o <- choose b s c x ;; ret (unmask c o.1 x, o.2).

Definition at_once (c : canvas) : M canvas := x <- drawn_all (model c) ;; ret (unmask c (masked c) x).

Theorem steps_one b c s f :
  (forall x, prob (choose b s c x) /\ always (fun o : pred I * S => o.1 =1 masked c) (choose b s c x)) ->
  E (one_step b c s) (fun o => f o.1) = E (at_once c) f.
Proof.
move=> all; rewrite !E_bind; apply: eq_E => x; have [[_ c1] ch] := all x.
rewrite E_bind E_ret -[RHS](E_const _ c1); apply: E_always; apply: always_impl ch => o e.
by rewrite E_ret; congr f; apply/ffunP => j; rewrite !ffunE e.
Qed.

End Blocks.

(** Two programs of this kind refine each other. *)
Corollary block_one_agree S S' (choose : seq I -> S -> canvas -> {ffun I -> V} -> M (pred I * S))
    (choose' : seq I -> S' -> canvas -> {ffun I -> V} -> M (pred I * S')) k k' ps c s s' :
  sensible choose -> sensible choose' ->
  fmap fst (blocks choose k.+1 [seq [:: i] | i <- ps] c s) ~ fmap fst (blocks choose' k'.+1 [seq [:: i] | i <- ps] c s').
Proof. by move=> h h' f; rewrite !E_fmap !block_one. Qed.

(** [static_masked] is one: it decides one masked position, the surest ([one(p, x, b where c.masked[b])]). *)
Lemma sensible_single S (best : seq I -> canvas -> {ffun I -> V} -> I) :
  (forall b c x, has (masked c) b -> (best b c x \in b) && masked c (best b c x)) ->
  sensible (fun b (s : S) c x => ret ((fun j => j == best b c x), s)).
Proof.
move=> h b s c x; split=> [|m]; first exact: prob_ret.
apply: always_ret; split=> [j /eqP -> /=|]; first exact: h.
by apply/hasP; exists (best b c x); [case/andP: (h b c x m) | exact: eqxx].
Qed.

(** ** Programs with a schedule *)

(** Which positions a step decides: given, or a function of the canvas and of what was drawn for it, such as the surest. *)
Definition chooser := canvas -> {ffun I -> V} -> pred I.

(** Each step decides what the next of some choosers says, from a draw for every position of the canvas as it is then. *)
Fixpoint scheduled (steps : seq chooser) (c : canvas) : M canvas :=
  if steps is d :: rest then x <- drawn_all (model c) ;; scheduled rest (unmask c (d c x) x) else ret c.

(** A program that does so, and decides in any way, also by chance and by what was drawn, what it remembers. *)
Fixpoint follows S (choose : seq chooser -> S -> canvas -> {ffun I -> V} -> M (pred I * S)) steps c s : M (canvas * S) :=
  if steps is d :: rest then
    x <- drawn_all (model c) ;; o <- choose steps s c x ;; follows choose rest (unmask c o.1 x) o.2
  else ret (c, s).

Definition punctual S (choose : seq chooser -> S -> canvas -> {ffun I -> V} -> M (pred I * S)) :=
  forall d rest s c x, prob (choose (d :: rest) s c x) /\ always (fun o : pred I * S => o.1 =1 d c x) (choose (d :: rest) s c x).

Theorem scheduled_unique S (choose : seq chooser -> S -> canvas -> {ffun I -> V} -> M (pred I * S)) steps c s f :
  punctual choose -> E (follows choose steps c s) (fun o => f o.1) = E (scheduled steps c) f.
Proof.
move=> on; elim: steps c s => [|d rest IH] c s /=; first by rewrite !E_ret.
rewrite !E_bind; apply: eq_E => x; have [[_ c1] ch] := on d rest s c x.
rewrite E_bind -[RHS](E_const _ c1); apply: E_always; apply: always_impl ch => o e; rewrite IH.
by congr (E (scheduled rest _) f); apply/ffunP => j; rewrite !ffunE e.
Qed.

(** Two programs with one schedule refine each other. *)
Corollary scheduled_agree S S' (choose : seq chooser -> S -> canvas -> {ffun I -> V} -> M (pred I * S))
    (choose' : seq chooser -> S' -> canvas -> {ffun I -> V} -> M (pred I * S')) steps c s s' :
  punctual choose -> punctual choose' ->
  fmap fst (follows choose steps c s) ~ fmap fst (follows choose' steps c s').
Proof. by move=> h h' f; rewrite !E_fmap (scheduled_unique _ _ _ _ h) (scheduled_unique _ _ _ _ h'). Qed.

(** ** Own draws: noise that goes by how many positions are decided *)

(** What is drawn on a canvas is a function of the canvas: of the model there, and of the noise of that many decided positions. So
    a step that is put off is made later in the same way. [now]: whether the program makes it, by anything that it remembers. *)
Section Own.
Variables (own : canvas -> {ffun I -> V}) (d : chooser) (S : Type) (now : S -> canvas -> bool) (next : S -> canvas -> S).

Definition step c := unmask c (d c (own c)) (own c).

Fixpoint tries k c s : canvas := if k is k'.+1 then tries k' (if now s c then step c else c) (next s c) else c.

Theorem own_steps (k : nat) (c : canvas) (s : S) : exists2 j, (j <= k)%N & tries k c s = iter j step c.
Proof.
elim: k c s => [|k IH] c s /=; first by exists 0%N.
have [j jk ->] := IH (if now s c then step c else c) (next s c); case: (now s c).
- by exists j.+1%N => //; rewrite iterSr.
- by exists j => //; apply: leqW.
Qed.

(** So where no position of a part is masked any more, there is one canvas that it can have come to. *)
Corollary own_end (k k' : nat) (c : canvas) (s s' : S) (full : pred canvas) :
  (forall c', full c' -> step c' = c') -> full (tries k c s) -> full (tries k' c s') -> tries k c s = tries k' c s'.
Proof.
move=> stays; have [j _ ->] := own_steps k c s; have [i _ ->] := own_steps k' c s' => fj fi.
have at_end m n : full (iter m step c) -> (m <= n)%N -> iter n step c = iter m step c.
  by move=> f /subnK <-; elim: (n - m)%N => //= u IH; rewrite IH stays.
by case/orP: (leq_total j i) => [/(at_end _ _ fj)|/(at_end _ _ fi)] ->.
Qed.
End Own.

(** ** Support: a step decides tokens that the model gives mass to on the canvas before it; it may mask positions again. *)
Definition step_inside (c c' : canvas) := forall j, [\/ c' j = c j, c' j = None | exists2 v, c' j = Some v & model c j v != 0].

Lemma drawn_all_inside p : always (fun x : {ffun I -> V} => forall j, p j (x j) != 0) (drawn_all p).
Proof. by rewrite /drawn_all; elim: (enum _) => //= x xs IH; split=> // wx j; move/prodf_neq0: wx; apply. Qed.

Lemma unmask_inside c chosen (x : {ffun I -> V}) : (forall j, model c j (x j) != 0) -> step_inside c (unmask c chosen x).
Proof. by move=> h j; rewrite ffunE; case: (chosen j); [constructor 3; exists (x j) | constructor 1]. Qed.

(** A canvas that steps of this kind lead to. *)
Inductive reached (c : canvas) : canvas -> Prop :=
| reached_here : reached c c
| reached_next c' c'' : reached c c' -> step_inside c' c'' -> reached c c''.

Theorem blocks_inside S (choose : seq I -> S -> canvas -> {ffun I -> V} -> M (pred I * S)) k bs c s :
  always (fun o => reached c o.1) (blocks choose k bs c s).
Proof.
have one k' b c0 c1 s1 : reached c0 c1 -> always (fun o => reached c0 o.1) (fill choose k' b c1 s1).
  elim: k' c1 s1 => [|k' IH] c1 s1 rc /=; first exact: always_ret.
  case: ifP => _; last exact: always_ret.
  apply: always_bind; apply: always_impl (drawn_all_inside (model c1)) => x px.
  by apply: always_bind; apply: always_true => o; apply: IH; apply: reached_next rc (unmask_inside _ px).
suff h c1 s1 : reached c c1 -> always (fun o => reached c o.1) (blocks choose k bs c1 s1) by apply: h; exact: reached_here.
elim: bs c1 s1 => [|b bs IH] c1 s1 rc /=; first exact: always_ret.
by apply: always_bind; apply: always_impl (one k b c c1 s1 rc) => o; exact: IH.
Qed.

End Canvas.
