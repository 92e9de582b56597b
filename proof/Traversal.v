(** Verification of whole trees: block verification (T6, [block_Law]) and traversal verification (T7, [traverse_Law]).

    Both rules commit a lawful path. They rest on one invariant. A node that is worth a, with the row p, pays a times p: with
    probability a some path through it is committed, which has the distribution p and then the target's; with probability
    1 - a nothing is, whatever follows then. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Traversal.
Variables (R : realFieldType) (V : finType).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).

Variable target : text -> row.
Hypothesis target_law : forall c, law (target c).

(** What the draft x from q is worth below a node that is worth a, and what is missing if it is refused. *)
Definition worth (a : R) (p q : row) x : R := Num.min 1 (a * p x / q x).
Definition missing (a : R) (p q : row) : row := fun v => relu (a * p v - q v).
Definition back (a z : R) : R := z / (z + (1 - a)).

Lemma missing_ge0 a p q : 0 <= total (missing a p q).
Proof. by apply: sumr_ge0 => v _; apply: relu_ge0. Qed.

Lemma missing0 a p q f : total (missing a p q) = 0 -> dot (missing a p q) f = 0.
Proof.
move/eqP; rewrite psumr_eq0 => [/allP h|v _]; last exact: relu_ge0.
by apply: big1 => v _; rewrite (eqP (h v (mem_index_enum v))) mul0r.
Qed.

Lemma worth01 a p q x : 0 <= a -> law p -> law q -> 0 <= worth a p q x <= 1.
Proof.
by move=> a0 [p0 _] [q0 _]; rewrite /worth le_minr ler01 divr_ge0 ?mulr_ge0 //= le_minl lexx.
Qed.

Lemma back01 a z : a <= 1 -> 0 <= z -> 0 <= back a z <= 1.
Proof.
move=> a1 z0; rewrite /back; have s0 : 0 <= z + (1 - a) by rewrite addr_ge0 ?subr_ge0.
rewrite divr_ge0 //=; move: s0; rewrite le0r => /orP[/eqP ->|s0]; first by rewrite invr0 mulr0 ler01.
by rewrite ler_pdivr_mulr // mul1r ler_addl subr_ge0.
Qed.

(** The draft pays min(q, a p), and is refused with what is missing and 1 - a. *)
Lemma paid a p q f g : 0 <= a -> law p -> law q ->
  dot q (fun x => worth a p q x * f x + (1 - worth a p q x) * g)
  = a * dot p f - dot (missing a p q) f + (total (missing a p q) + (1 - a)) * g.
Proof.
move=> a0 lp lq; have [p0 p1] := lp; have [q0 q1] := lq.
have qw x : q x * worth a p q x = a * p x - missing a p q x.
  rewrite -accepted ?mulr_ge0 // /clip max_r //; last first.
  by case/andP: (worth01 x a0 lp lq).
have step x : q x * (worth a p q x * f x + (1 - worth a p q x) * g)
    = a * (p x * f x) - missing a p q x * f x + (q x - a * p x + missing a p q x) * g.
  rewrite mulrDr !mulrA [q x * (1 - _)]mulrBr mulr1 qw [_ * f x]mulrBl; congr (_ + _ * _).
  by rewrite opprB addrA addrAC.
rewrite /dot (eq_bigr _ (fun x _ => step x)) !big_split /= sumrN -mulr_sumr -mulr_suml !big_split /= sumrN -mulr_sumr.
by rewrite p1 q1 mulr1 addrC [_ + \sum_x missing _ _ _ _]addrC addrC.
Qed.

(** ** Traversal verification: from the leaves to the root

    [None]: nothing on the paths through c was accepted. The root is accepted always. *)
Fixpoint climb (root : bool) c (a : R) (p : row) (t : tree R V) : M (option text) :=
  if t is Node x q below next then
    o <- climb false (rcons c x) (worth a p q x) (target (rcons c x)) below ;;
    if o is Some w then ret (Some (x :: w))
    else let m := missing a p q in let z := total m in
      climb root c (if 0 < z then back a z else 0) (if 0 < z then normalize m else p) next
  else b <- coin (if root then 1 else a) ;; if b then fmap (fun y => Some [:: y]) (draw p) else ret None.

Definition traverse c t : M text := fmap (odflt [::]) (climb true c 1 (target c) t).

(** A tree is drafted fairly for a traversal if every edge has the distribution that it carries, given its elder siblings and all that
    is below them: the traversal has read all of that when it comes to an edge. It is more than [fair] asks for. *)
Inductive fair_below : M (tree R V) -> Prop :=
| below_leaf : fair_below (ret (Leaf R V))
| below_node q B N : law q -> (forall x, q x != 0 -> fair_below (B x)) -> (forall x b, q x != 0 -> fair_below (N x b)) ->
    fair_below (x <- draw q ;; b <- B x ;; n <- N x b ;; ret (Node x q b n))
| below_mix A (d : M A) (P : A -> Prop) T : E d (fun=> 1) = 1 -> always P d -> (forall a, P a -> fair_below (T a)) ->
    fair_below (bind d T)
| below_same T T' : T ~ T' -> fair_below T -> fair_below T'.

Lemma mass_below T : fair_below T -> E T (fun=> 1) = 1.
Proof.
elim=> [|q B N lq _ IHB _ IHN|A d P U d1 aP _ IH|U U' e _ IH]; first by rewrite E_ret.
- rewrite E_bind E_draw -[RHS](dot_const 1 lq); apply: eq_bigr => x _; have [->|qx] := eqVneq (q x) 0; first by rewrite !mul0r.
  congr (_ * _); rewrite E_bind -[RHS](IHB x qx); apply: eq_E => b.
  by rewrite E_bind -[RHS](IHN x b qx); apply: eq_E => n; rewrite E_ret.
- by rewrite E_bind -[RHS]d1; apply: E_always; apply: always_impl aP => a /IH.
- by rewrite -e.
Qed.

Definition value (J : text -> R) c (g : R) (o : option text) : R := if o is Some w then J (c ++ w) else g.

Lemma climb_pays T : fair_below T -> forall (root : bool) c a p J (g : tree R V -> R) k,
  (root -> a = 1) -> 0 <= a <= 1 -> law p -> harmonic target c J -> (forall t, (1 - a) * g t = k) ->
  E T (fun t => E (climb root c a p t) (value J c (g t))) = a * dot p (fun v => J (rcons c v)) + k.
Proof.
elim {T} => [|q B N lq fB IHB fN IHN|A d P T d1 aP _ IH|T T' e _ IH] root c a p J g k ra a01 lp hJ gk.
- rewrite E_ret /= E_bind (_ : (if root then 1 else a) = a); last by case: root ra => // ->.
  rewrite E_coin clip_id // E_ret /= -(gk (Leaf R V)) E_fmap E_draw; congr (_ * _ + _).
  by apply: eq_dot => v; rewrite /= cats1.
- have [a0 a1] := andP a01.
  set m := missing a p q; set z := total m.
  pose a2 := if 0 < z then back a z else 0; pose p2 := if 0 < z then normalize m else p.
  pose G x b := E (N x b) (fun n => E (climb root c a2 p2 n) (value J c (g (Node x q b n)))).
  have -> : E (x <- draw q ;; b <- B x ;; n <- N x b ;; ret (Node x q b n)) (fun t => E (climb root c a p t) (value J c (g t)))
      = dot q (fun x => E (B x) (fun b => E (climb false (rcons c x) (worth a p q x) (target (rcons c x)) b) (value J (rcons c x) (G x b)))).
    rewrite E_bind E_draw; apply: eq_bigr => x _; have [->|qx] := eqVneq (q x) 0; first by rewrite !mul0r.
    congr (_ * _); rewrite E_bind; apply: eq_E => b; rewrite E_bind; under eq_E do rewrite E_ret /= E_bind.
    rewrite E_swap; apply: eq_E => -[w|] //=; under eq_E do rewrite E_ret /=.
    by rewrite E_const ?cat_rcons //; exact/mass_below/fN.
  have child x k' : q x != 0 -> (forall b, (1 - worth a p q x) * G x b = k') ->
      E (B x) (fun b => E (climb false (rcons c x) (worth a p q x) (target (rcons c x)) b) (value J (rcons c x) (G x b)))
      = worth a p q x * J (rcons c x) + k'.
    move=> qx Gk; rewrite (IHB x qx false _ _ _ J (G x) k') ?worth01 // ?harmonic_here //; exact: harmonic_rcons.
  have sum g2 : (forall x b, q x != 0 -> G x b = g2) ->
      dot q (fun x => E (B x) (fun b => E (climb false (rcons c x) (worth a p q x) (target (rcons c x)) b) (value J (rcons c x) (G x b))))
      = a * dot p (fun v => J (rcons c v)) - dot m (fun v => J (rcons c v)) + (z + (1 - a)) * g2.
    move=> Gg; rewrite -(paid (fun v => J (rcons c v)) g2 a0 lp lq).
    apply: eq_bigr => x _; have [->|qx] := eqVneq (q x) 0; first by rewrite !mul0r.
    by congr (_ * _); apply: child => // b; rewrite Gg.
  have [z0|] := ltP 0 z.
    have s0 : z + (1 - a) != 0 by rewrite gt_eqF // ltr_paddr // subr_ge0.
    rewrite (sum (back a z * dot (normalize m) (fun v => J (rcons c v)) + k / (z + (1 - a)))) => [|x b qx].
      rewrite dot_normalize mulrDr /back !mulrA [(z + _) * z]mulrC mulfK // [z * _]mulrC mulfK ?gt_eqF //.
      by rewrite [(z + _) * k]mulrC mulfK // addrA subrK.
    rewrite /G /a2 /p2 z0; apply: (IHN x b qx) => [/ra e||||n] //.
    + by rewrite /back e subrr addr0 divff // gt_eqF.
    + exact/back01/ltW.
    + by apply: law_normalize => [v|]; [exact: relu_ge0 | rewrite gt_eqF].
    + rewrite -(gk (Node x q b n)) /back mulrAC; congr (_ * _).
      by rewrite -[X in X - _](divff s0) -mulrBl [z + _]addrC addrK.
  rewrite le_eqVlt ltNge missing_ge0 orbF => /eqP z0; have dm := missing0 (fun v => J (rcons c v)) z0.
  have [e|an1] := eqVneq a 1.
    have pq : p =1 q by apply: excess0 => //; rewrite -[RHS]z0 /z /m e; apply: eq_bigr => v _; rewrite /missing mul1r.
    have k0 : k = 0 by rewrite -(gk (Leaf R V)) e subrr mul0r.
    rewrite k0 addr0 e mul1r; apply: eq_bigr => x _; rewrite pq; have [->|qx] := eqVneq (q x) 0; first by rewrite !mul0r.
    have w1 : worth a p q x = 1 by rewrite /worth e mul1r pq divff // minxx.
    by rewrite -e (child x 0) // ?w1 ?mul1r ?addr0 // => b; rewrite subrr mul0r.
  rewrite (sum (k / (1 - a))) => [|x b qx].
    by rewrite dm z0 subr0 add0r [(1 - a) * _]mulrC divfK // subr_eq0 eq_sym.
  have := IHN x b qx root c 0 p J (fun n => g (Node x q b n)) (k / (1 - a)); rewrite mul0r add0r /G /a2 /p2 z0 ltxx; apply=> //.
  + by move/ra => e; rewrite e eqxx in an1.
  + by rewrite lexx ler01.
  + by move=> n; rewrite subr0 mul1r -(gk (Node x q b n)) mulrC mulKf // subr_eq0 eq_sym.
- rewrite E_bind -[RHS](E_const _ d1); apply: E_always; apply: always_impl aP => x Px; exact: IH.
- by rewrite -e; apply: IH.
Qed.

(** T7. *)
Theorem traverse_Law c T : fair_below T -> Law target c (t <- T ;; traverse c t).
Proof.
move=> fT J hJ; rewrite E_bind -(harmonic_here hJ) -[RHS]mul1r -[RHS]addr0.
rewrite -(climb_pays (root := true) (g := fun=> J c) fT _ _ (target_law c) hJ) ?lexx ?ler01 // => [|_]; last by rewrite subrr mul0r.
by apply: eq_E => t; rewrite E_fmap; apply: eq_E => -[w|] //=; rewrite cats0.
Qed.

Lemma traverse_nonempty c t : always (fun w => 0 < size w)%N (traverse c t).
Proof.
apply: always_fmap; move: 1 (target c); elim: t => [|x q below _ next IH] a p /=.
  apply: always_bind; rewrite /coin clip_id ?ler01 ?lexx // subrr; split; last by split=> //; rewrite eqxx.
  by move=> _; apply: always_fmap; apply: always_true.
by apply: always_bind; apply: always_true => -[w|]; [apply: always_ret | apply: IH].
Qed.

(** ** Block verification: one pass down a chain, the last coin that says yes decides

<<
    a = 1.0; n = root; rest = p[root]
    for i in t.nodes:
        if len(t.children[i]) == 0:
            if bernoulli(a):
                n = i; rest = p[i]
        else:
            x = t.children[i][0]; q = t.law[x]
            missing = relu(a * p[i] - q); z = sum(missing)
            if z > 0:
                if bernoulli(z / (z + 1 - a)):
                    n = i; rest = normalize(missing)
            a = min(1, a * p[i][t.token[x]] / q[t.token[x]])
    y ~ rest; accept n; emit y
>>

    [best] is n, as the path to it, and rest. *)
Fixpoint block c (path : text) (a : R) (best : text * row) (t : tree R V) : M (text * row) :=
  let p := target (c ++ path) in
  if t is Node x q below _ then
    let m := missing a p q in let z := total m in
    yes <- (if 0 < z then coin (back a z) else ret false) ;;
    block c (rcons path x) (worth a p q x) (if yes then (path, normalize m) else best) below
  else yes <- coin a ;; ret (if yes then (path, p) else best).

Definition block_rejection c t : M text :=
  o <- block c [::] 1 ([::], target c) t ;; y <- draw o.2 ;; ret (rcons o.1 y).

Lemma block_pays T : fair T -> forall c path a best J, 0 <= a <= 1 -> harmonic target c J ->
  let pay (o : text * row) := dot o.2 (fun v => J (c ++ rcons o.1 v)) in
  E T (fun t => E (block c path a best t) pay) = a * J (c ++ path) + (1 - a) * pay best.
Proof.
elim {T} => [|q K lq _ IH _ _|A d P T d1 aP _ IH|T T' e _ IH] c path a best J a01 hJ pay.
- rewrite E_ret /= E_bind E_coin clip_id // !E_ret /= hJ; congr (_ * _ + _).
  by apply: eq_dot => v; rewrite rcons_cat.
- have [a0 a1] := andP a01; set p := target (c ++ path); have lp : law p by exact: target_law.
  set m := missing a p q; set z := total m.
  pose flip := if 0 < z then coin (back a z) else ret false.
  have flip1 : E flip (fun=> 1) = 1 by rewrite /flip; case: ifP => _; [case: (prob_coin (back a z)) | rewrite E_ret].
  pose best' (yes : bool) := if yes then (path, normalize m) else best.
  have -> : E (x <- draw q ;; t <- K x ;; ret (Node x q t.1 t.2)) (fun t => E (block c path a best t) pay)
      = dot q (fun x => worth a p q x * J (rcons (c ++ path) x) + (1 - worth a p q x) * E flip (fun yes => pay (best' yes))).
    rewrite E_bind E_draw; apply: eq_bigr => x _; have [->|qx] := eqVneq (q x) 0; first by rewrite !mul0r.
    congr (_ * _); rewrite E_bind; under eq_E do rewrite E_ret /= E_bind.
    rewrite E_swap -/p -/m -/z -/flip.
    rewrite -[X in X + _](E_const _ flip1) -E_mull -E_add; apply: eq_E => yes.
    by have /= := IH x qx c (rcons path x) (worth a p q x) (best' yes) J (worth01 x a0 lp lq) hJ; rewrite E_fmap -rcons_cat => <-.
  rewrite (paid _ _ a0 lp lq) -/m -/z hJ -/p -addrA; congr (_ + _).
  rewrite /flip; have [z0|] := ltP 0 z.
    have s0 : z + (1 - a) != 0 by rewrite gt_eqF // ltr_paddr // subr_ge0.
    rewrite E_coin clip_id ?(back01 a1 (ltW z0)) // /best' /=; set D := dot m _.
    have -> : pay (path, normalize m) = D / z.
      by rewrite /pay dot_normalize; congr (_ / _); apply: eq_dot => v; rewrite rcons_cat.
    have e1 : (z + (1 - a)) * (back a z * (D / z)) = D by rewrite mulrA /back [_ * (z / _)]mulrC divfK // mulrC divfK ?gt_eqF.
    have e2 g : (z + (1 - a)) * ((1 - back a z) * g) = (1 - a) * g.
      by rewrite mulrA mulrBr mulr1 /back [_ * (z / _)]mulrC divfK // [z + _]addrC addrK.
    by rewrite mulrDr e1 e2 addKr.
  rewrite le_eqVlt ltNge missing_ge0 orbF => /eqP z0.
  by rewrite E_ret /best' z0 add0r missing0 // oppr0 add0r.
- rewrite E_bind -[RHS](E_const _ d1); apply: E_always; apply: always_impl aP => x Px; exact: IH.
- by rewrite -e; apply: IH.
Qed.

(** T6. *)
Theorem block_Law c T : fair T -> Law target c (t <- T ;; block_rejection c t).
Proof.
move=> fT J hJ; rewrite E_bind.
have := block_pays fT [::] ([::], target c) (a := 1) _ hJ; rewrite lexx ler01 => /(_ isT) /=.
rewrite cats0 mul1r subrr mul0r addr0 => <-; apply: eq_E => t; rewrite E_bind; apply: eq_E => o.
by rewrite E_bind E_draw; apply: eq_dot => y; rewrite E_ret.
Qed.

End Traversal.
