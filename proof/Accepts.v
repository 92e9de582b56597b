(** What the checker of certificates accepts of a rule of verification, as functions, and that it is right.

    check/certificate/verification.py judges a rule that it reads from the printed IR. Its two tests are functions of terms
    here. [accepts] is the algebra of [rule-lossless] (the class [Lossless]): of one iteration over the children, the rows are
    rational combinations of the row P that is owed, the row Q that the child states, and of relu of such rows.
    [accepted_lossless]: a rule that it accepts has the judgment [lossless] of Rules.v, over every real field and every
    vocabulary. [accepts_cases] are the cases of [rule-matching] (the class [Matching]) with the states that a certificate lists
    for each loop. [rule_matching]: what it accepts commits own tokens down any tree, whatever the number of children is.
    [unpaid_lossy] and [first_child_refused]: both refuse rules that are wrong.

    That a program's rule means the terms here is a matter of reading, which stays trusted. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Tokens Lossy.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** ** [rule-lossless]: the algebra of rows

    A row by its factors; of equal rows the forms are equal mostly, as they are sorted and hold no 0. An atom [Over f] is
    relu(f). *)
Inductive atom := Owed | Stated | Over of seq (atom * rat).
Definition form := seq (atom * rat).

(** For sorting; what it is besides does not matter, but that it is [Eq] of equal atoms alone. *)
Fixpoint order (a b : atom) : comparison :=
  match a, b with
  | Owed, Owed => Eq
  | Owed, _ => Lt
  | _, Owed => Gt
  | Stated, Stated => Eq
  | Stated, _ => Lt
  | _, Stated => Gt
  | Over f, Over g =>
    (fix go (f g : form) : comparison :=
      match f, g with
      | [::], [::] => Eq
      | [::], _ => Lt
      | _, [::] => Gt
      | (a, x) :: f', (b, y) :: g' =>
        match order a b with
        | Eq => if x == y then go f' g' else if x < y then Lt else Gt
        | other => other
        end
      end) f g
  end.

Fixpoint insert a (x : rat) (f : form) : form :=
  if f is (b, y) :: f' then
    match order a b with
    | Lt => (a, x) :: f
    | Eq => if x + y == 0 then f' else (b, x + y) :: f'
    | Gt => (b, y) :: insert a x f'
    end
  else [:: (a, x)].

Definition plus (f g : form) : form := foldr (fun t => insert t.1 t.2) f g.
Definition times (k : rat) (f : form) : form := if k == 0 then [::] else [seq (t.1, k * t.2) | t <- f].
Definition minus f g := plus f (times (-1) g).
Definition equal f g := nilp (minus f g).
(** By its factors: P, Q and relu rows are nowhere negative. *)
Definition positive (f : form) := all (fun t => 0 < t.2) f.

(** Of f and -f the atom is of one of them, since relu(-f) = relu(f) - f; and it does not depend on a factor. *)
Definition relu_of (f : form) : form :=
  if positive f then f
  else if positive (times (-1) f) then [::]
  else if f is (_, x) :: _ then
    if 0 < x then [:: (Over (times x^-1 f), x)]
    else if x < 0 then plus f [:: (Over (times (- x)^-1 (times (-1) f)), - x)]
    else [:: (Over f, 1)]
  else [::].
Definition minimum f g := minus f (relu_of (minus f g)).

Definition owed : form := [:: (Owed, 1)].
Definition stated : form := [:: (Stated, 1)].

(** What a rule computes in an iteration: from the row that is owed, and the row that the child was drawn from. *)
Inductive expr :=
| Target
| Draft
| At (e : expr)                   (* the entry at the child's token *)
| Divide (e d : expr)
| Add (e d : expr)
| Sub (e d : expr)
| Mul (k : rat) (e : expr)
| Min (e d : expr)
| MinOne (e : expr)               (* min(1, e) *)
| Relu (e : expr)
| Normalize (e : expr).

(** A row; its entry at the child; that divided by Q's; the same between 0 and 1; a row over its sum. *)
Inductive kind := Row | Entry | Ratio | Chance | Rest.

Definition alike (k l : kind) :=
  match k, l with Row, Row | Entry, Entry | Ratio, Ratio => true | _, _ => false end.

Definition linearly (op : form -> form -> form) (a b : option (kind * form)) :=
  if (a, b) is (Some (k, f), Some (l, g)) then if alike k l then Some (k, op f g) else None else None.

Fixpoint value (e : expr) : option (kind * form) :=
  match e with
  | Target => Some (Row, owed)
  | Draft => Some (Row, stated)
  | At e => if value e is Some (Row, f) then Some (Entry, f) else None
  | Divide e d =>
    if (value e, value d) is (Some (Entry, f), Some (Entry, g)) then if equal g stated then Some (Ratio, f) else None else None
  | Add e d => linearly plus (value e) (value d)
  | Sub e d => linearly minus (value e) (value d)
  | Mul k e => if value e is Some (l, f) then if alike l l then Some (l, times k f) else None else None
  | Min e d => if (value e, value d) is (Some (Row, f), Some (Row, g)) then Some (Row, minimum f g) else None
  | MinOne e => if value e is Some (Ratio, f) then if positive f then Some (Chance, minimum f stated) else None else None
  | Relu e => if value e is Some (Row, f) then Some (Row, relu_of f) else None
  | Normalize e => if value e is Some (Row, f) then if positive f then Some (Rest, f) else None else None
  end.

(** The mass with which a coin falls so: q * min(1, n / q) = min(n, q) for n >= 0. *)
Definition coin_mass (e : expr) : option form :=
  match value e with
  | Some (Ratio, f) => if positive f then Some (minimum f stated) else None
  | Some (Chance, f) => Some f
  | _ => None
  end.

(** An iteration: the child is accepted, or another row is owed, or a coin falls, with noise of a site. *)
Inductive body := Accept | GoOn (e : expr) | Toss (site : nat) (e : expr) (yes no : body).

(** Of all that come with a mass: the mass that is accepted, and of each who goes on the mass and the row that is owed. A coin
    is about this child, and there is one: its mass is Q. *)
Fixpoint ends (b : body) (mass : form) : option (form * seq (form * form)) :=
  match b with
  | Accept => Some (mass, [::])
  | GoOn e => if value e is Some (Rest, r) then Some ([::], [:: (mass, r)]) else None
  | Toss _ e yes no =>
    if equal mass stated then
      if coin_mass e is Some m then
        if (ends yes m, ends no (minus mass m)) is (Some (a, l), Some (a', l')) then Some (plus a a', l ++ l') else None
      else None
    else None
  end.

(** k * f, with k > 0. *)
Definition multiple (r f : form) :=
  if (r, f) is ((_, y) :: _, (_, x) :: _) then (0 < y / x) && equal r (times (y / x) f) else false.

(** All who go on owe P - A but for a factor; if none does, A = P. *)
Definition pays_off (b : body) :=
  if ends b stated is Some (a, l) then
    let rest := minus owed a in all (fun o => multiple o.2 rest) l && (nilp rest || ~~ nilp l)
  else false.

Fixpoint sites (b : body) := if b is Toss k _ yes no then k :: sites yes ++ sites no else [::].

(** And each site of noise stands once in it. *)
Definition accepts (b : body) := uniq (sites b) && pays_off b.

(** The rule [rejection]; and one with coins of half the chance. *)
Definition of_rejection :=
  Toss 0 (Divide (At Target) (At Draft)) Accept (GoOn (Normalize (Relu (Sub Target Draft)))).
Lemma rejection_accepted : accepts of_rejection. Proof. by vm_compute. Qed.

Definition of_half :=
  Toss 0 (Mul (1 / 2%:R) (Divide (At Target) (At Draft))) Accept
    (GoOn (Normalize (Sub Target (Min (Mul (1 / 2%:R) Target) Draft)))).
Lemma half_accepted : accepts of_half. Proof. by vm_compute. Qed.

Lemma order_eq : forall a b, order a b = Eq -> a = b.
Proof.
fix IH 1; case=> [||f] [||g] //= e; congr Over; move: f g e.
fix go 1; case=> [|[a x] f] [|[b y] g] //=; case e: (order a b) => //.
by case: eqP => [->|_]; [move/go->; rewrite (IH _ _ e) | case: ifP].
Qed.

Section Sound.
Variables (R : realFieldType) (V : finType).
Notation row := (row R V).
Notation M := (M R).
Implicit Types (p q : R) (f g : form).

Fixpoint at_atom p q (a : atom) : R :=
  match a with
  | Owed => p
  | Stated => q
  | Over f => relu (foldr (fun t r => ratr t.2 * at_atom p q t.1 + r) 0 f)
  end.

Definition ev p q f : R := foldr (fun t r => ratr t.2 * at_atom p q t.1 + r) 0 f.

Lemma ev_cons p q a x f : ev p q ((a, x) :: f) = ratr x * at_atom p q a + ev p q f. Proof. by []. Qed.
Lemma ev_nil p q : ev p q [::] = 0. Proof. by []. Qed.
Arguments ev : simpl never.

Lemma ev_one p q a x : ev p q [:: (a, x)] = ratr x * at_atom p q a. Proof. by rewrite ev_cons ev_nil addr0. Qed.

Lemma ev_insert p q a x f : ev p q (insert a x f) = ratr x * at_atom p q a + ev p q f.
Proof.
elim: f => [|[b y] f IH] //=; case e: (order a b) => //; last by rewrite !ev_cons IH addrCA.
rewrite (order_eq e) ev_cons addrA -mulrDl -rmorphD /=; case: eqP => [->|_] //.
by rewrite raddf0 mul0r add0r.
Qed.

Lemma ev_plus p q f g : ev p q (plus f g) = ev p q f + ev p q g.
Proof. 
elim: g => [|[a x] g IH]; first by rewrite ev_nil addr0.
by rewrite [plus _ _]/(insert a x (plus f g)) ev_insert IH ev_cons addrCA. Qed.

Lemma ev_times p q k f : ev p q (times k f) = ratr k * ev p q f.
Proof.
rewrite /times; case: eqP => [->|_]; first by rewrite raddf0 mul0r.
by elim: f => [|[a x] f IH]; rewrite ?ev_nil ?mulr0 //= !ev_cons IH rmorphM mulrDr mulrA.
Qed.

Lemma ev_minus p q f g : ev p q (minus f g) = ev p q f - ev p q g.
Proof. by rewrite ev_plus ev_times rmorphN rmorph1 mulN1r. Qed.

Lemma ev_equal p q f g : equal f g -> ev p q f = ev p q g.
Proof. by move/nilP => e; apply/eqP; rewrite -subr_eq0 -ev_minus e. Qed.

Lemma ev_owed p q : ev p q owed = p. Proof. by rewrite ev_one rmorph1 mul1r. Qed.
Lemma ev_stated p q : ev p q stated = q. Proof. by rewrite ev_one rmorph1 mul1r. Qed.

Lemma at_ge0 p q : 0 <= p -> 0 <= q -> forall a, 0 <= at_atom p q a.
Proof. by move=> p0 q0 [||f] //; exact: relu_ge0. Qed.

Lemma ev_ge0 p q f : 0 <= p -> 0 <= q -> positive f -> 0 <= ev p q f.
Proof.
move=> p0 q0; elim: f => //= -[a x] f IH /= /andP[x0 /IH h].
by rewrite ev_cons addr_ge0 // mulr_ge0 ?at_ge0 // ler0q ltW.
Qed.

Lemma relu_pos (r : R) : 0 <= r -> relu r = r. Proof. by move=> h; rewrite /relu max_l. Qed.
Lemma relu_neg (r : R) : r <= 0 -> relu r = 0. Proof. by move=> h; rewrite /relu max_r. Qed.
Lemma relu_scale (k r : R) : 0 <= k -> relu (k * r) = k * relu r.
Proof. by move=> k0; rewrite /relu maxr_pmulr // mulr0. Qed.
Lemma relu_opp (r : R) : relu (- r) = relu r - r.
Proof.
case: (lerP 0 r) => h; first by rewrite relu_neg ?oppr_le0 // relu_pos // subrr.
by rewrite relu_pos ?oppr_ge0 1?ltW // relu_neg ?ltW // sub0r.
Qed.

Lemma ev_over p q f : ev p q [:: (Over f, 1)] = relu (ev p q f).
Proof. by rewrite ev_one rmorph1 mul1r. Qed.

Lemma ev_relu p q f : 0 <= p -> 0 <= q -> ev p q (relu_of f) = relu (ev p q f).
Proof.
move=> p0 q0; rewrite /relu_of; case: ifP => [h|_]; first by rewrite relu_pos ?ev_ge0.
case: ifP => [h|_].
  have := ev_ge0 p0 q0 h; rewrite ev_times rmorphN rmorph1 mulN1r oppr_ge0 => le; by rewrite relu_neg.
case: f => [|[a x] f]; first by rewrite /= relu_pos.
set g := (a, x) :: f; have scaled k h : 0 < k -> ev p q [:: (Over (times k^-1 h), k)] = relu (ev p q h).
  move=> k0; rewrite ev_one /= -/(ev p q (times k^-1 h)) -relu_scale; last by rewrite ler0q ltW.
  by rewrite ev_times mulrA -rmorphM mulfV ?gt_eqF // rmorph1 mul1r.
case: ifP => [x0|_]; first exact: scaled.
case: ifP => [x0|_]; last by rewrite ev_one rmorph1 mul1r.
by rewrite ev_plus scaled ?oppr_gt0 // ev_times rmorphN rmorph1 mulN1r relu_opp addrCA subrr addr0.
Qed.

Lemma ev_minimum p q f g : 0 <= p -> 0 <= q -> ev p q (minimum f g) = Num.min (ev p q f) (ev p q g).
Proof.
move=> p0 q0; rewrite ev_minus ev_relu // ev_minus /relu.
case: (lerP (ev p q f) (ev p q g)) => h; first by rewrite max_r ?subr_le0 // subr0.
by rewrite max_l ?subr_ge0 1?ltW // opprB addrCA subrr addr0.
Qed.

(** What the ops of a rule mean: of a row it is the row, of a number the row that is this number at every token. *)
Fixpoint sem (p q : row) (x : V) (e : expr) : row :=
  match e with
  | Target => p
  | Draft => q
  | At e => fun=> sem p q x e x
  | Divide e d => fun v => sem p q x e v / sem p q x d v
  | Add e d => fun v => sem p q x e v + sem p q x d v
  | Sub e d => fun v => sem p q x e v - sem p q x d v
  | Mul k e => fun v => ratr k * sem p q x e v
  | Min e d => fun v => Num.min (sem p q x e v) (sem p q x d v)
  | MinOne e => fun v => Num.min 1 (sem p q x e v)
  | Relu e => fun v => relu (sem p q x e v)
  | Normalize e => normalize (sem p q x e)
  end.

Section One.
Variables (p q : row) (x : V).
Hypotheses (p0 : forall v, 0 <= p v) (q0 : forall v, 0 <= q v) (qx : q x != 0).

Definition entry f : row := fun v => ev (p v) (q v) f.

Definition means (k : kind) f (r : row) : Prop :=
  match k with
  | Row => r =1 entry f
  | Entry => forall v, r v = entry f x
  | Ratio => forall v, r v = entry f x / q x
  | Chance => 0 <= entry f x <= q x /\ forall v, r v = entry f x / q x
  | Rest => positive f /\ r =1 normalize (entry f)
  end.

Lemma min_chance (a b : R) : 0 < b -> Num.min 1 (a / b) = Num.min a b / b.
Proof.
move=> b0; case: (lerP a b) => h; first by rewrite min_r // ler_pdivr_mulr ?mul1r.
by rewrite min_l ?divff ?gt_eqF // ler_pdivl_mulr ?mul1r 1?ltW.
Qed.

Lemma qx_gt0 : 0 < q x. Proof. by rewrite lt_neqAle eq_sym qx q0. Qed.

Lemma minimum_stated f : positive f -> 0 <= entry (minimum f stated) x <= q x.
Proof.
by move=> f0; rewrite /entry ev_minimum // ev_stated le_minl lexx orbT le_minr q0 ev_ge0.
Qed.

Lemma datummeans e k f : value e = Some (k, f) -> means k f (sem p q x e).
Proof.
have two (op : form -> form -> form) (h : R -> R -> R) a b r s k' g :
    (forall u f' g', entry (op f' g') u = h (entry f' u) (entry g' u)) -> (forall u w, h u w / q x = h (u / q x) (w / q x)) ->
    (forall l g', a = Some (l, g') -> means l g' r) -> (forall l g', b = Some (l, g') -> means l g' s) ->
    linearly op a b = Some (k', g) -> means k' g (fun v => h (r v) (s v)).
  move=> hop hdiv; case: a => [[l f']|//] ha; case: b => [[l' g']|] hb; last by case: l {ha}.
  have {}ha := ha _ _ erefl; have {}hb := hb _ _ erefl; rewrite /linearly.
  case: l ha; case: l' hb => //= hs hr [<- <-] /= v; by rewrite ?hr ?hs ?hop ?hdiv.
elim: e k f => [||e IH|e IHe d IHd|e IHe d IHd|e IHe d IHd|c e IH|e IHe d IHd|e IH|e IH|e IH] k f /=.
- by case=> <- <- v; rewrite /entry ev_owed.
- by case=> <- <- v; rewrite /entry ev_stated.
- by case e1: (value e) => [[[] g]|] // [<- <-] v; rewrite (IH _ _ e1).
- case e1: (value e) => [[[] g]|] //; case e2: (value d) => [[[] h]|] //; case: ifP => // eq [<- <-] v.
  by rewrite (IHe _ _ e1) (IHd _ _ e2) {2}/entry (ev_equal _ _ eq) ev_stated.
- apply: two => // [u f' g'|u w]; [exact: ev_plus | exact: mulrDl].
- by apply: (two minus (fun a b => a - b)) => // [u f' g'|u w]; [exact: ev_minus | exact: mulrBl].
- case e1: (value e) => [[l g]|] //; have := IH _ _ e1; case: l {e1} => //= hr [<- <-] v; by rewrite hr /entry ev_times ?mulrA.
- case e1: (value e) => [[[] g]|] //; case e2: (value d) => [[[] h]|] // [<- <-] v.
  by rewrite (IHe _ _ e1) (IHd _ _ e2) /entry ev_minimum.
- case e1: (value e) => [[[] g]|] //; case: ifP => // g0 [<- <-]; split=> [|v]; first exact: minimum_stated.
  by rewrite (IH _ _ e1) min_chance ?qx_gt0 // /entry ev_minimum // ev_stated.
- by case e1: (value e) => [[[] g]|] // [<- <-] v; rewrite (IH _ _ e1) /entry ev_relu.
- case e1: (value e) => [[[] g]|] //; case: ifP => // g0 [<- <-]; split=> // v.
  by rewrite /normalize (IH _ _ e1) /total (eq_bigr _ (fun u _ => IH _ _ e1 u)).
Qed.

(** A coin falls with the mass that the certificate says. *)
Lemma coin_means e m : coin_mass e = Some m -> q x * clip (sem p q x e x) = entry m x.
Proof.
rewrite /coin_mass; case e1: (value e) => [[[] f]|] //; have := datummeans e1.
  case: ifP => // f0 /= h [<-]; rewrite h /entry ev_minimum // ev_stated.
  rewrite /clip min_chance ?qx_gt0 // max_r.
    by rewrite mulrC divfK.
  by rewrite divr_ge0 // le_minr q0 ev_ge0.
by case=> /andP[m0 m1] h [<-]; rewrite h clip_id ?(divr_ge0, ler_pdivr_mulr) ?mul1r ?qx_gt0 ?m0 // mulrC divfK.
Qed.

End One.

Lemma value_kind e k f : value e = Some (k, f) ->
  match k with Chance => exists2 g, positive g & f = minimum g stated | Rest => positive f | _ => True end.
Proof.
have two op a b : linearly op a b = Some (k, f) -> if k is Chance then False else if k is Rest then False else True.
  by case: a => [[[] ?]|//]; case: b => [[[] ?]|] //= [<-].
case: e => [||e|e d|e d|e d|c e|e d|e|e|e] /=.
- by case=> <-.
- by case=> <-.
- by case: (value e) => [[[] ?]|] // [<-].
- by case: (value e) => [[[] ?]|] //; case: (value d) => [[[] ?]|] //; case: ifP => // _ [<-].
- by move/two; case: (k).
- by move/two; case: (k).
- by case: (value e) => [[[] ?]|] //= [<-].
- by case: (value e) => [[[] ?]|] //; case: (value d) => [[[] ?]|] // [<-].
- by case: (value e) => [[[] g]|] //; case: ifP => // g0 [<- <-]; exists g.
- by case: (value e) => [[[] ?]|] // [<-].
- by case: (value e) => [[[] g]|] //; case: ifP => // g0 [<- <-].
Qed.

Lemma coin_bounds e m (p q : R) : coin_mass e = Some m -> 0 <= p -> 0 <= q -> 0 <= ev p q m <= q.
Proof.
have low f : positive f -> 0 <= p -> 0 <= q -> 0 <= ev p q (minimum f stated) <= q.
  by move=> f0 p0 q0; rewrite ev_minimum // ev_stated le_minl lexx orbT le_minr q0 ev_ge0.
rewrite /coin_mass; case e1: (value e) => [[[] f]|] //; first by case: ifP => // f0 [<-]; exact: low.
by case=> <-; case: (value_kind e1) => g g0 ->; exact: low.
Qed.

(** Everything that comes out has a share of the mass, and the shares add up. *)
Lemma ends_mass b m a l (p q : R) : ends b m = Some (a, l) -> ev p q a + \sum_(o <- l) ev p q o.1 = ev p q m.
Proof.
elim: b m a l => [|e|k e yes IHy no IHn] m a l /=.
- by case=> <- <-; rewrite big_nil addr0.
- by case: (value e) => [[[] r]|] // [<- <-]; rewrite big_cons big_nil addr0 add0r.
- case: ifP => // _; case: (coin_mass e) => // c; case ey: (ends yes c) => [[a1 l1]|] //.
  case en: (ends no (minus m c)) => [[a2 l2]|] // [<- <-].
  by rewrite big_cat ev_plus addrACA (IHy _ _ _ ey) (IHn _ _ _ en) ev_minus addrCA subrr addr0.
Qed.

Lemma ends_ge0 b m a l (p q : R) : ends b m = Some (a, l) -> 0 <= p -> 0 <= q -> 0 <= ev p q m ->
  0 <= ev p q a /\ all (fun o => 0 <= ev p q o.1) l.
Proof.
move=> + p0 q0; elim: b m a l => [|e|k e yes IHy no IHn] m a l /=.
- by case=> <- <-.
- by case: (value e) => [[[] r]|] // [<- <-] /= ->; rewrite ev_nil.
- case: ifP => // ms; case ec: (coin_mass e) => [c|] //; case ey: (ends yes c) => [[a1 l1]|] //.
  case en: (ends no (minus m c)) => [[a2 l2]|] // [<- <-] _; case/andP: (coin_bounds ec p0 q0) => c0 c1.
  case: (IHy _ _ _ ey c0) => a10 l10; case: (IHn _ _ _ en) => [|a20 l20].
    by rewrite ev_minus (ev_equal _ _ ms) ev_stated subr_ge0.
  by rewrite ev_plus addr_ge0 // all_cat l10.
Qed.

Lemma ends_positive b m a l : ends b m = Some (a, l) -> all (fun o => positive o.2) l.
Proof.
elim: b m a l => [|e|k e yes IHy no IHn] m a l /=; first by case=> _ <-.
- by case e1: (value e) => [[[] r]|] // [_ <-] /=; rewrite andbT; exact: value_kind e1.
- case: ifP => // _; case: (coin_mass e) => // c; case ey: (ends yes c) => [[a1 l1]|] //.
  case en: (ends no (minus m c)) => [[a2 l2]|] // [_ <-].
  by rewrite all_cat (IHy _ _ _ ey) (IHn _ _ _ en).
Qed.

(** One iteration: a coin of the language falls, the child is accepted ([None]), or another row is owed. *)
Fixpoint perform (p q : row) x (b : body) : M (option row) :=
  match b with
  | Accept => ret None
  | GoOn e => ret (Some (sem p q x e))
  | Toss _ e yes no => c <- coin (sem p q x e x) ;; if c then perform p q x yes else perform p q x no
  end.

(** The rule that a certificate describes: what is owed is at first the target's row, and a draw of it is emitted in the end. *)
Definition rule_of (b : body) : rule R V := {|
  carried := row;
  start (p : row) := ret p;
  look (p : row) x (q : row) := perform p q x b;
  stop (p : row) := draw p
|}.

Section Two.
Variables (p q : row).
Hypotheses (p0 : forall v, 0 <= p v) (q0 : forall v, 0 <= q v).
Notation entry := (entry p q).

Lemma eq_row_dot (r s : row) (f : V -> R) : r =1 s -> dot r f = dot s f.
Proof. by move=> e; apply: eq_bigr => v _; rewrite e. Qed.

Lemma ends_owe b m a l x (f : V -> R) : ends b m = Some (a, l) -> q x != 0 ->
  entry m x * E (perform p q x b) (pays id f x) = entry a x * f x + \sum_(o <- l) entry o.1 x * dot (normalize (entry o.2)) f.
Proof.
move=> + qx; elim: b m a l => [|e|k e yes IHy no IHn] m a l /=.
- by case=> <- <-; rewrite E_ret big_nil addr0.
- case e1: (value e) => [[[] r]|] // [<- <-]; have z : entry [::] x = 0 by rewrite /entry ev_nil.
  rewrite E_ret big_seq1 z mul0r add0r /=.
  by case: (datummeans p0 q0 qx e1) => _ h; rewrite (eq_row_dot _ h).
- case: ifP => // ms; case ec: (coin_mass e) => [c|] //; case ey: (ends yes c) => [[a1 l1]|] //.
  case en: (ends no (minus m c)) => [[a2 l2]|] // [<- <-]; rewrite E_bind E_coin big_cat /=.
  have mq : entry m x = q x by rewrite /entry (ev_equal _ _ ms) ev_stated.
  rewrite {1}mq mulrDr !mulrA mulrBr mulr1 (coin_means p0 q0 qx ec) (IHy _ _ _ ey).
  have -> : q x - entry c x = entry (minus m c) x by rewrite /entry ev_minus -/(entry m x) mq.
  have -> : entry (plus a1 a2) x = entry a1 x + entry a2 x by rewrite /entry ev_plus.
  by rewrite (IHn _ _ _ en) mulrDl addrACA.
Qed.

Lemma ends_reached b m a l x : ends b m = Some (a, l) -> q x != 0 -> entry m x != 0 ->
  always (fun o => if o is Some s then exists2 o', List.In o' l & entry o'.1 x != 0 /\ s =1 normalize (entry o'.2) else True)
    (perform p q x b).
Proof.
move=> + qx; elim: b m a l => [|e|k e yes IHy no IHn] m a l /=.
- by split.
- case e1: (value e) => [[[] r]|] // [_ <-] mx; split=> // _; exists (m, r); first by left.
  by case: (datummeans p0 q0 qx e1).
- case: ifP => // ms; case ec: (coin_mass e) => [c|] //; case ey: (ends yes c) => [[a1 l1]|] //.
  case en: (ends no (minus m c)) => [[a2 l2]|] // [_ <-] mx; apply: always_bind.
  have cx := coin_means p0 q0 qx ec; split=> [w|].
    apply: always_impl (IHy _ _ _ ey _) => [[s|] // [o i h]|]; last by rewrite -cx mulf_neq0.
    by exists o => //; apply/List.in_or_app; left.
  split=> // w; apply: always_impl (IHn _ _ _ en _) => [[s|] // [o i h]|].
    by exists o => //; apply/List.in_or_app; right.
  by rewrite /entry ev_minus (ev_equal _ _ ms) ev_stated -/(entry c x) -cx -[X in X - _]mulr1 -mulrBr mulf_neq0.
Qed.

End Two.

Lemma all_In T (P : pred T) (l : seq T) o : all P l -> List.In o l -> P o.
Proof. by elim: l => //= u l IH /andP[Pu /IH h] [<-|]. Qed.

Lemma big_In T (F G : T -> R) (l : seq T) : (forall o, List.In o l -> F o = G o) -> \sum_(o <- l) F o = \sum_(o <- l) G o.
Proof.
elim: l => [|o l IH] h; rewrite ?big_nil // !big_cons h ?IH //=; last by left.
by move=> u i; apply: h; right.
Qed.

Lemma ev_multiple r f : multiple r f -> exists2 k : R, 0 < k & forall p q, ev p q r = k * ev p q f.
Proof.
case: r => [|[b y] r]; case: f => [|[c z] f] //= /andP[k0 e]; exists (ratr (y / z)); first by rewrite ltr0q.
by move=> p q; rewrite (ev_equal _ _ e) ev_times.
Qed.

Lemma normalize_scale (k : R) (r s : row) : k != 0 -> (forall v, r v = k * s v) -> normalize r =1 normalize s.
Proof.
by move=> k0 h v; rewrite /normalize /total (eq_bigr _ (fun u _ => h u)) -mulr_sumr h -mulf_div divff // mul1r.
Qed.

Theorem pays_off_lossless b : pays_off b -> @lossless R V (rule_of b) (@law R V) id.
Proof.
rewrite /pays_off; case eb: (ends b stated) => [[a l]|] //; set rest := minus owed a => /andP[mult some].
have shared (p q : row) (f : V -> R) o : List.In o l -> dot (normalize (entry p q o.2)) f = dot (normalize (entry p q rest)) f.
  move=> i; have [k k0 h] := ev_multiple (all_In mult i).
  by apply/eq_row_dot/(normalize_scale (lt0r_neq0 k0)) => v; exact: h.
have rest0 (p q : row) v : (forall v, 0 <= p v) -> (forall v, 0 <= q v) -> 0 <= entry p q rest v.
  move=> p0 q0; case: l eb mult some {shared} => [|o l] eb /=; first by rewrite orbF => _ /nilP ->; rewrite /entry ev_nil.
  case/andP=> /ev_multiple[k k0 h] _ _; rewrite -(pmulr_rge0 _ k0) -h ev_ge0 //.
  by have /= /andP[] := ends_positive eb.
have sum_rest (p q : row) : law p -> law q -> \sum_x (q x - entry p q a x) = total (entry p q rest).
  move=> [_ p1] [_ q1]; have -> : total (entry p q rest) = \sum_v (p v - entry p q a v).
    by apply: eq_bigr => v _; rewrite /entry ev_minus ev_owed.
  by rewrite !sumrB p1 q1.
have left_over (p q : row) x : q x - entry p q a x = \sum_(o <- l) entry p q o.1 x.
  by rewrite -[q x](ev_stated (p x)) -(ends_mass _ _ eb) addrC addKr.
have mass0 (p q : row) x : law p -> law q -> 0 <= entry p q a x /\ all (fun o => 0 <= entry p q o.1 x) l.
  by move=> [p0 _] [q0 _]; apply: ends_ge0 eb _ _ _ => //; rewrite ev_stated.
have others0 (p q : row) x : law p -> law q -> 0 <= \sum_(o <- l) entry p q o.1 x.
  move=> lp lq; case: (mass0 p q x lp lq) => _; elim: (l) => [|o l' IH] /=; rewrite ?big_nil // big_cons.
  by case/andP=> o0 /IH; exact: addr_ge0.
split=> /= [p lp f|p lp|p q lp lq f|p q x lp lq qx|p lp f]; first by rewrite E_ret.
- exact: always_ret.
- have [p0 p1] := lp; have [q0 q1] := lq; pose D := dot (normalize (entry p q rest)) f.
  have step x : q x * E (perform p q x b) (pays id f x) = entry p q a x * f x + (q x - entry p q a x) * D.
    have [qx|qx] := eqVneq (q x) 0.
      have := left_over p q x; have := others0 p q x lp lq; case: (mass0 p q x lp lq) => a0 _ o0 e.
      rewrite -e qx sub0r oppr_ge0 in o0; have {}a0 : entry p q a x = 0 by apply/eqP; rewrite eq_le a0 o0.
      by rewrite qx a0 !mul0r subr0 mul0r addr0.
    rewrite -[X in X * E _ _](ev_stated (p x)) (ends_owe p0 q0 f eb qx); congr (_ + _).
    by rewrite left_over mulr_suml; apply: big_In => o i; rewrite shared.
  rewrite {1}/dot (eq_bigr _ (fun x _ => step x)) big_split -mulr_suml sum_rest //= -/(dot _ f) /D dot_normalize.
  have dots : dot p f = dot (entry p q a) f + dot (entry p q rest) f.
    rewrite /dot -big_split; apply: eq_bigr => v _ /=.
    by rewrite -mulrDl /entry ev_minus ev_owed addrCA subrr addr0.
  rewrite dots; congr (_ + _); have [t0|t0] := eqVneq (total (entry p q rest)) 0; last by rewrite mulrC divfK.
  rewrite t0 mul0r /dot big1 // => v _; move/eqP: t0; rewrite /total psumr_eq0 => [/allP z|u _]; last exact: rest0.
  by have /eqP -> := z v (mem_index_enum v); rewrite mul0r.
- have [p0 p1] := lp; have [q0 q1] := lq.
  apply: always_impl (ends_reached p0 q0 eb qx _) => [[s|] // [o i [ox e]]|]; last by rewrite /entry ev_stated.
  have [k k0 h] := ev_multiple (all_In mult i).
  have l1 : law (normalize (entry p q o.2)).
    apply: law_normalize => [v|]; first by rewrite /entry ev_ge0 //; apply: all_In (ends_positive eb) i.
    rewrite /total (eq_bigr _ (fun v _ => h (p v) (q v))) -mulr_sumr mulf_neq0 ?(gt_eqF k0) //.
    apply: contraNneq ox => t0; have := sum_rest p q lp lq; rewrite /total /entry t0 => /eqP.
    rewrite psumr_eq0 => [/allP z|v _]; last by rewrite left_over others0.
    have /eqP := z x (mem_index_enum x); rewrite left_over; case: (mass0 p q x lp lq) => _.
    elim: (l) i {z} => //= u l' IH i /andP[u0 l0]; rewrite big_cons => /eqP.
    rewrite paddr_eq0 // => [/andP[/eqP uz /eqP lz]|]; last first.
      by elim: (l') l0 {IH i} => [|o' l2 IH2] /=; rewrite ?big_nil // big_cons => /andP[? /IH2]; exact: addr_ge0.
    by case: i => [<-|i]; [apply/eqP | exact: IH].
  case: l1 => l0 l1; split=> [v|]; first by rewrite e.
  by rewrite (eq_bigr _ (fun v _ => e v)).
- by rewrite E_draw.
Qed.

(** The algebra of [rule-lossless] is right. *)
Theorem accepted_lossless b : accepts b -> @lossless R V (rule_of b) (@law R V) id.
Proof. by case/andP=> _; exact: pays_off_lossless. Qed.

End Sound.

(** ** [rule-matching]: rules by cases *)

(** What is known of a value of a rule: nothing; a truth value; a token, with whether it is the evidence's own and whether it is
    a child's. *)
Definition fact := option (bool + bool * bool).
Definition Token own child : fact := Some (inr (own, child)).
Definition Flag b : fact := Some (inl b).

(** Ops append a value to the registers. A condition is a register, an equality of two, or anything ([Unknown]); so may a token
    be. *)
Inductive op := Own | Any (k : nat) | Copy (r : nat) | Truth (b : bool).
Inductive test := Is (r : nat) | Equal (r s : nat) | Not (t : test) | Unknown (k : nat).

(** A rule as its paths: the rest of the rule stands in each arm of a branch. A loop goes over the children, and is left where
    what its body yields first is true; the registers of its body are those before it, the carried ones, and the child. *)
Inductive block :=
| Yield (rs : seq nat)
| Let (o : op) (k : block)
| If (t : test) (yes no : block)
| Children (n : nat) (carried : seq nat) (body k : block).

Section Cases.
(** What the certificate lists: for each loop the states in which an iteration begins or ends. *)
Variable states : seq (seq (bool * seq fact)).

Definition known_op (env : seq fact) (o : op) : fact :=
  match o with Own => Token true false | Any _ => Token false false | Copy r => nth None env r | Truth b => Flag b end.

Fixpoint known_test (env : seq fact) (t : test) : option bool :=
  match t with
  | Is r => if nth None env r is Some (inl b) then Some b else None
  | Not t => omap negb (known_test env t)
  | _ => None
  end.

(** Of two tokens that are equal what is known of either. *)
Fixpoint learn (env : seq fact) (t : test) (true_ : bool) : seq fact :=
  match t with
  | Not t => learn env t (~~ true_)
  | Equal r s =>
    if (true_, nth None env r, nth None env s) is (true, Some (inr (a, x)), Some (inr (b, y)))
    then set_nth None (set_nth None env r (Token (a || b) x)) s (Token (a || b) (if s == r then x else y)) else env
  | _ => env
  end.

Definition every T (l : seq (option (seq T))) : option (seq T) :=
  foldr (fun a b => if (a, b) is (Some x, Some y) then Some (x ++ y) else None) (Some [::]) l.

Definition closed (l : seq (bool * seq fact)) (ys : seq (seq fact)) : bool :=
  all (fun y => if y is Some (inl b) :: now then (b, now) \in l else ((true, behead y) \in l) && ((false, behead y) \in l)) ys.

(** What is known of what a rule yields, on each of its paths. *)
Fixpoint paths (b : block) (env : seq fact) : option (seq (seq fact)) :=
  match b with
  | Yield rs => Some [:: [seq nth None env r | r <- rs]]
  | Let o k => paths k (rcons env (known_op env o))
  | If t yes no =>
    match known_test env t with
    | Some b => if b then paths yes env else paths no env
    | None => every [:: paths yes (learn env t true); paths no (learn env t false)]
    end
  | Children n carried body k =>
    let l := nth [::] states n in
    if ((false, [seq nth None env r | r <- carried]) \in l)
      && all (fun s => s.1 || (if paths body (env ++ rcons s.2 (Token false true)) is Some ys then closed l ys else false)) l
    then every [seq paths k (env ++ s.2) | s <- l] else None
  end.

(** Exactly one of both: it accepts a child, or emits a token, which is the evidence's own. *)
Definition own_end (y : seq fact) : bool :=
  match y with
  | [:: Some (inl true); Some (inr (true, true)); Some (inl false); _] => true
  | [:: Some (inl false); _; Some (inl true); Some (inr (true, _))] => true
  | _ => false
  end.

Definition accepts_cases (b : block) : bool := if paths b [::] is Some ys then all own_end ys else false.
End Cases.

(**
<<
rule match(p: dist, children: draws):
    y ~ p as output
    for x in children:
        if x == y:
            accept x
    emit y
>> *)
Definition of_match : block :=
  Let Own (Let (Truth false) (Let (Any 0) (Let (Truth true) (Children 0 [:: 1; 2; 3]
    (If (Equal 7 0) (Let (Truth true) (Let (Truth false) (Yield [:: 8; 8; 7; 9]))) (Let (Truth false) (Yield [:: 8; 4; 5; 6])))
    (Yield [:: 4; 5; 6; 0])))))%N.
Definition of_match_states : seq (seq (bool * seq fact)) :=
  [:: [:: (false, [:: Flag false; Token false false; Flag true]); (true, [:: Flag true; Token true true; Flag false])]].

Lemma match_accepted : accepts_cases of_match_states of_match. Proof. by vm_compute. Qed.

Section Followed.
Variables (R : realFieldType) (V : finType).
Notation text := (seq V).

Inductive datum := Nought | Bool (b : bool) | Tok (x : V) (child : option nat).

(** The evidence's own token after each text; other draws, and conditions on anything else, may be anything. *)
Variables (own : text -> V) (guess : text -> nat -> seq datum -> V) (chance : text -> nat -> seq datum -> bool).

Definition do_op c (env : seq datum) (o : op) : datum :=
  match o with
  | Own => Tok (own c) None
  | Any k => Tok (guess c k env) None
  | Copy r => nth Nought env r
  | Truth b => Bool b
  end.

Fixpoint do_test c (env : seq datum) (t : test) : bool :=
  match t with
  | Is r => if nth Nought env r is Bool b then b else false
  | Equal r s => if (nth Nought env r, nth Nought env s) is (Tok x _, Tok y _) then x == y else false
  | Not t => ~~ do_test c env t
  | Unknown k => chance c k env
  end.

Fixpoint iterate (body : seq datum -> seq datum) i (xs : seq V) (s : seq datum) : seq datum :=
  if xs is x :: xs' then
    let y := body (rcons s (Tok x (Some i))) in
    if nth Nought y 0 is Bool true then behead y else iterate body i.+1 xs' (behead y)
  else s.

Fixpoint do_block c (xs : seq V) (b : block) (env : seq datum) : seq datum :=
  match b with
  | Yield rs => [seq nth Nought env r | r <- rs]
  | Let o k => do_block c xs k (rcons env (do_op c env o))
  | If t yes no => if do_test c env t then do_block c xs yes env else do_block c xs no env
  | Children _ carried body k =>
    do_block c xs k (env ++ iterate (fun s => do_block c xs body (env ++ s)) 0 xs [seq nth Nought env r | r <- carried])
  end.

(** What a rule yields: whether it accepts a child, and which; whether it emits a token, and which. *)
Definition verdict (y : seq datum) : option (nat + V) :=
  match y with
  | [:: Bool true; Tok _ (Some i); Bool false; _] => Some (inl i)
  | [:: Bool false; _; Bool true; Tok x _] => Some (inr x)
  | _ => None
  end.

Fixpoint children (t : tree R V) : seq (V * tree R V) :=
  if t is Node x _ below next then (x, below) :: children next else [::].

(** A walk goes on below what is accepted if there is evidence at it; to n nodes at most. *)
Fixpoint steered (evidence : text -> bool) b n c (t : tree R V) : text :=
  if n is n'.+1 then
    match verdict (do_block c (map fst (children t)) b [::]) with
    | Some (inl i) =>
      if List.nth_error (children t) i is Some (x, below) then
        x :: (if evidence (rcons c x) then steered evidence b n' (rcons c x) below else [::])
      else [::]
    | Some (inr y) => [:: y]
    | None => [::]
    end
  else [::].

Section Node.
Variables (c : text) (xs : seq V).

Definition true_of (a : fact) (v : datum) : Prop :=
  match a with
  | None => True
  | Some (inl b) => v = Bool b
  | Some (inr (o, ch)) =>
    exists x w, [/\ v = Tok x w, o -> x = own c & ch -> exists2 i, w = Some i & List.nth_error xs i = Some x]
  end.
Notation agree := (List.Forall2 true_of).

Lemma agree_nth a e r : agree a e -> true_of (nth None a r) (nth Nought e r).
Proof. by move=> h; elim: h r => [|k v a' e' kv _ IH] [|r] //=. Qed.

Lemma agree_cat a e a' e' : agree a e -> agree a' e' -> agree (a ++ a') (e ++ e').
Proof. by move=> h; elim: h => //= k v l l' kv _ IH /IH; constructor. Qed.

Lemma agree_rcons a e k v : agree a e -> true_of k v -> agree (rcons a k) (rcons e v).
Proof. by rewrite -!cats1 => h kv; apply: agree_cat => //; do 2?constructor. Qed.

Lemma agree_nths a e rs : agree a e -> agree [seq nth None a r | r <- rs] [seq nth Nought e r | r <- rs].
Proof. by move=> h; elim: rs => //= r rs IH; constructor => //; exact: agree_nth. Qed.

Lemma agree_set a e r k : agree a e -> (r < size a)%N -> true_of k (nth Nought e r) -> agree (set_nth None a r k) e.
Proof. by move=> h; elim: h r => [|k' v a' e' kv h IH] [|r] //= ra kr; constructor => //; exact: IH. Qed.

Lemma agree_behead a e : agree a e -> agree (behead a) (behead e).
Proof. by case=> [|k v a' e' _ h] /=; [constructor|]. Qed.

Lemma known_test_true a e t b : agree a e -> known_test a t = Some b -> do_test c e t = b.
Proof.
move=> h; elim: t b => [r|r s|t IH|k] b //=; last by case: known_test IH => //= b' /(_ _ erefl) -> [<-].
by have := agree_nth r h; case: (nth None a r) => [[b'|[]]|] //= -> [<-].
Qed.

Lemma nth_some (a : seq fact) r k : nth None a r = Some k -> (r < size a)%N.
Proof. by case: ltnP => // h; rewrite nth_default. Qed.

Lemma learn_true a e t b : agree a e -> do_test c e t = b -> agree (learn a t b) e.
Proof.
move=> h; elim: t b => [r|r s|t IH|k] b //=; last by move=> d; apply: IH; rewrite -d negbK.
case: b => //; case ar: (nth None a r) => [[|[o x]]|] //; case as_: (nth None a s) => [[|[o' y]]|] //.
have := agree_nth r h; have := agree_nth s h; rewrite ar as_ /= => -[v [w [e2 ov wv]]] [u [z [e1 ou zu]]].
rewrite e1 e2 => /eqP uv; have own_u : o || o' -> u = own c by case: (o) ou => [ou _|_ h2]; [exact: ou | rewrite uv; exact: ov].
have agree_r : agree (set_nth None a r (Token (o || o') x)) e.
  by apply: agree_set => //; [exact: nth_some ar | rewrite e1; exists u, z].
apply: agree_set => //; first by rewrite size_set_nth (leq_trans (nth_some as_)) // leq_maxr.
rewrite e2 -uv; exists u, w; split=> //; case: (s =P r) => [sr|_]; last by rewrite uv.
by move: ar; rewrite -sr as_ => -[_ <-]; rewrite uv.
Qed.

Lemma every_in T (l : seq (option (seq T))) ys : every l = Some ys ->
  forall a, List.In a l -> exists2 x, a = Some x & forall y, List.In y x -> List.In y ys.
Proof.
elim: l ys => [|[x|] l IH] ys //=; case e: (every l) => [zs|] // [<-] a [<-|/(IH _ e)[x' -> sub]].
  by exists x => // y i; apply/List.in_or_app; left.
by exists x' => // y /sub i; apply/List.in_or_app; right.
Qed.

Variable states : seq (seq (bool * seq fact)).

(** The states of a loop are closed under its body, so whatever the number of children, it ends in one of them. *)
Lemma iterate_ends (l : seq (bool * seq fact)) (a : seq fact) body_paths (do : seq datum -> seq datum) :
  (forall s e, (false, s) \in l -> agree s e -> forall x i, List.nth_error xs i = Some x ->
    exists2 ys, body_paths (a ++ rcons s (Token false true)) = Some ys & exists2 y, List.In y ys &
      closed l ys /\ agree y (do (rcons e (Tok x (Some i))))) ->
  forall rest before s e, xs = before ++ rest -> (false, s) \in l -> agree s e ->
    exists2 s', s' \in l & agree s'.2 (iterate do (size before) rest e).
Proof.
move=> step; elim=> [|x rest IH] before s e ex sl h /=; first by exists (false, s).
have at_x : List.nth_error xs (size before) = Some x by rewrite ex; elim: before {ex} => //=.
have [ys _ [y iy [cl ay]]] := step s e sl h x _ at_x.
have ex' : xs = rcons before x ++ rest by rewrite cat_rcons.
have on now o : (false, now) \in l -> agree now o -> exists2 s', s' \in l & agree s'.2 (iterate do (size before).+1 rest o).
  by rewrite -(size_rcons before x); exact: IH.
have := all_In cl iy; move: (do _) ay => o ay; case: ay => [|k v y' o' kv ay] /=.
  by case/andP=> _ no; exact: on _ _ no (List.Forall2_nil _).
case: k kv => [[b'|p]|] /=; first by move=> -> i; case: b' i => i; [exists (true, y') | exact: on _ _ i ay].
  by move=> _ /andP[yes no]; case: v => [|[]|u w]; do ?[exact: on _ _ no ay]; exists (true, y').
by move=> _ /andP[yes no]; case: v => [|[]|u w]; do ?[exact: on _ _ no ay]; exists (true, y').
Qed.

Lemma paths_agree b a e ys : paths states b a = Some ys -> agree a e ->
  exists2 y, List.In y ys & agree y (do_block c xs b e).
Proof.
elim: b a e ys => [rs|o k IH|t yes IHy no IHn|n carried body IHb k IHk] a e ys /=.
- by case=> <- h; exists [seq nth None a r | r <- rs]; [left | exact: agree_nths].
- move=> pk h; apply: IH pk _; apply: (agree_rcons h); case: o => [|j|r|b'].
  + by exists (own c), None.
  + by exists (guess c j e), None.
  + exact: (agree_nth r h).
  + by [].
- case kt: (known_test a t) => [b'|].
    by move=> py h; rewrite (known_test_true h kt); case: b' {kt} py => py; [exact: (IHy _ _ _ py h) | exact: (IHn _ _ _ py h)].
  move=> py h; have ev := @every_in _ [:: paths states yes (learn a t true); paths states no (learn a t false)] ys py.
  case dt: (do_test c e t).
    have [x ex sub] := ev _ (or_introl erefl); have [y iy ay] := IHy _ _ _ ex (learn_true h dt).
    by exists y => //; exact: sub.
  have [x ex sub] := ev _ (or_intror (or_introl erefl)); have [y iy ay] := IHn _ _ _ ex (learn_true h dt).
  by exists y => //; exact: sub.
- set l := nth [::] states n; case: ifP => // /andP[begins cl] pk h; have ev := every_in pk.
  pose do s := do_block c xs body (e ++ s).
  have [|s' sl as'] := @iterate_ends l a (paths states body) do _ xs [::] _ _ erefl begins (agree_nths carried h).
    move=> s e' sl ae x i ix; have := allP cl _ sl => /=; case py: (paths _ _ _) => [zs|] // clz.
    exists zs => //; have [|y iy ay] := IHb _ (e ++ rcons e' (Tok x (Some i))) _ py.
      by apply: (agree_cat h); apply: (agree_rcons ae); exists x, (Some i); split=> // _; exists i.
    by exists y.
  have ink : List.In (paths states k (a ++ s'.2)) [seq paths states k (a ++ s.2) | s <- l].
    by elim: (l) sl {begins cl ev} => //= u l' IHl; rewrite inE => /orP[/eqP ->|/IHl i]; [left | right].
  have [zs pk' sub] := ev _ ink; have [y iy ay] := IHk _ _ _ pk' (agree_cat h as').
  by exists y => //; exact: sub.
Qed.

End Node.

Lemma own_endP y : own_end y -> (exists z, y = [:: Flag true; Token true true; Flag false; z])
  \/ exists w ch, y = [:: Flag false; w; Flag true; Token true ch].
Proof.
case: y => [|[[[]|[[] []]]|] [|k1 [|k2 [|k3 [|k4 y]]]]] //=; try by case: k1 => [[?|[[] []]]|].
all: try by case: k1 => [[?|[[] []]]|]; case: k2 => [[[]|?]|].
all: try by case: k2 => [[[]|?]|] //; case: k3 => [[?|[[] ?]]|].
- by case: k1 => [[?|[[] []]]|] //; case: k2 => [[[]|?]|] // _; left; exists k3.
- by case: k2 => [[[]|?]|] //; case: k3 => [[?|[[] ch]]|] // _; right; exists k1, ch.
Qed.

(** [rule-matching]: path(M, v, own, {}). It commits a token at least. *)
Theorem rule_matching states b evidence : accepts_cases states b -> forall n c t,
  owned own c (steered evidence b n c t) && ((0 < n) ==> (0 < size (steered evidence b n c t)))%N.
Proof.
rewrite /accepts_cases; case pb: (paths states b [::]) => [ys|] // ends; elim=> [|n IH] c t //=.
set xs := map fst (children t).
have [y iy ay] := paths_agree (c := c) (xs := xs) pb (List.Forall2_nil _).
have := all_In ends iy; move: (do_block _ _ _ _) ay => o ay.
have at_child x i : List.nth_error xs i = Some x -> exists below, List.nth_error (children t) i = Some (x, below).
  by rewrite /xs; elim: (children t) i => [|[x' b'] l IHl] [|i] //= => [[->]|/IHl //]; exists b'.
case/own_endP=> [[z e]|[w [ch e]]]; move: ay; rewrite e => ay; inversion_clear ay as [|? v0 ? ? m0 ay0].
  inversion_clear ay0 as [|? v1 ? ? m1 ay1]; case: m1 => x [w [e1 /(_ isT) ox /(_ isT) [i ei ix]]].
  inversion_clear ay1 as [|? v2 ? ? m2 ay2]; inversion_clear ay2 as [|? v3 ? ? m3 ay3]; inversion_clear ay3.
  have [below] := at_child _ _ ix; rewrite m0 e1 ei m2 /= => ->; rewrite /= ox eqxx.
  by rewrite andbT; case: (evidence _) => //; have /andP[] := IH (rcons c (own c)) below.
inversion_clear ay0 as [|? v1 ? ? m1 ay1]; inversion_clear ay1 as [|? v2 ? ? m2 ay2].
inversion_clear ay2 as [|? v3 ? ? m3 ay3]; inversion_clear ay3; case: m3 => x [w' [e3 /(_ isT) ox _]].
by rewrite m0 m2 e3 /= ox eqxx.
Qed.

(** *** Rules of a whole tree

    The way to a node is good if each token on it meets conditions, of which one is that it is the draw at the node above (here
    [None]; anything else is a number). Any of the nodes with a good way is accepted, with the draw there. *)
Variable other : text -> nat -> V -> bool.

Fixpoint ways (t : tree R V) : seq text :=
  if t is Node x _ below next then [:: x] :: map (cons x) (ways below) ++ ways next else [::].

Fixpoint good_way (asked : seq (option nat)) c (w : text) : bool :=
  if w is x :: w' then
    all (fun k => if k is Some k then other c k x else x == own c) asked && good_way asked (rcons c x) w'
  else true.

Definition accepts_ways (asked : seq (option nat)) : bool := None \in asked.

Definition farthest (choose : seq text -> text) asked c (t : tree R V) : text :=
  let w := choose [seq w <- [::] :: ways t | good_way asked c w] in rcons w (own (c ++ w)).

(** [rule-matching] of such a rule. *)
Theorem rule_matching_tree asked choose : accepts_ways asked -> (forall l, l != [::] -> choose l \in l) ->
  forall c t, owned own c (farthest choose asked c t).
Proof.
move=> asks_own chosen c t; set l := [seq w <- [::] :: ways t | good_way asked c w].
have : choose l \in l by apply: chosen.
rewrite mem_filter => /andP[gw _]; rewrite /farthest -/l; move: (choose l) gw => w gw.
rewrite -cats1 owned_cat /= eqxx !andbT; elim: w c gw {l} => //= x w IH c /andP[/allP m /IH ->].
by rewrite andbT; exact: (m None).
Qed.
End Followed.

(** ** What the checker refuses, and has to *)
Section Refused.
Variables (R : realFieldType) (V : finType) (a b : V).
Hypothesis ab : a != b.
Notation halves := (halves R a b).

(** [rejection] that goes on with the same row: the algebra refuses it, and no invariant makes it lossless. *)
Definition unpaid := Toss 0 (Divide (At Target) (At Draft)) Accept (GoOn (Normalize Target)).

Theorem unpaid_lossy : ~~ accepts unpaid /\ forall valid owed, ~ @lossless R V (rule_of R V unpaid) valid owed.
Proof.
split=> [|valid owed L]; first by vm_compute.
have ls : laws (Sib (onehot R a) (fun=> Nomore R V)) by split=> // ; exact: law_onehot.
have := siblings_lossless L ls (halves_law R a b) (onehot R a); rewrite E_draw.
have -> : E (l <- sample (Sib (onehot R a) (fun=> Nomore R V)) ;; apply (rule_of R V unpaid) halves l) (onehot R a)
    = 3%:R / 4%:R.
  have one : total halves = 1 by case: (halves_law R a b).
  rewrite -(forgetful_mass R ab) /= !E_bind !E_draw !dot_onehot /= !E_bind !E_ret /apply !E_bind !E_ret /=.
  by rewrite !E_bind !E_coin !E_ret /= ?E_ret !E_draw dot_normalize one divr1.
rewrite dot_halves /onehot eqxx (eq_sym b a) (negPf ab) addr0.
have four : 4%:R != 0 :> R by rewrite pnatr_eq0.
have -> : 1 / 2%:R = 2%:R / 4%:R :> R by rewrite (natrM R 2 2) invfM mulrA mulfV ?pnatr_eq0.
by move/(mulIf (invr_neq0 four))/eqP; rewrite eqr_nat.
Qed.

(** So is one that accepts every child: what is drafted is emitted. *)
Theorem accepting_lossy : ~~ accepts Accept /\ forall valid owed, ~ @lossless R V (rule_of R V Accept) valid owed.
Proof.
split=> [|valid owed L]; first by vm_compute.
have ls : laws (Sib (onehot R a) (fun=> Nomore R V)) by split=> // ; exact: law_onehot.
have := siblings_lossless L ls (halves_law R a b) (onehot R a); rewrite E_draw /= !E_bind !E_draw !dot_onehot /= !E_bind !E_ret.
rewrite /apply !E_bind !E_ret /= !E_bind !E_ret dot_halves /onehot eqxx (eq_sym b a) (negPf ab) addr0 => h.
by have := half_one R; rewrite -[X in X != _]mul1r -h eqxx.
Qed.

(** A rule that accepts the first child, whatever it is: no listing of states makes the checker accept it, and it commits what
    is not own. *)
Definition first_child : block :=
  Let (Truth false) (Let (Any 0) (Let (Truth true) (Children 0 [:: 0; 1; 2]
    (Let (Truth true) (Let (Truth false) (Yield [:: 7; 7; 6; 8])))
    (Let Own (Yield [:: 3; 4; 5; 6])))))%N.

(** A walk by it: the target's own token is always a, and the tree has one node, with b. *)
Definition walked := steered (fun=> a) (fun _ _ _ => a) (fun _ _ _ => true) (fun=> false) first_child 1 [::]
  (Node b (onehot R b) (Leaf R V) (Leaf R V)).

Theorem first_child_refused states : ~~ accepts_cases states first_child /\ ~~ owned (fun=> a) [::] walked.
Proof.
have no : ~~ owned (fun=> a) [::] walked by rewrite /= andbT eq_sym.
split=> //; apply: contra no => ok.
by have /andP[] := rule_matching (fun=> a) (fun _ _ _ => a) (fun _ _ _ => true) (fun=> false) ok 1 [::]
  (Node b (onehot R b) (Leaf R V) (Leaf R V)).
Qed.
End Refused.
