From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Steps Tokens Grow Linear Loops Lossy.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Inductive atom := Owed | Stated | Over of seq (atom * rat).
Definition form := seq (atom * rat).

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
Definition positive (f : form) := all (fun t => 0 < t.2) f.

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

Inductive expr :=
| Target
| Draft
| At (e : expr)
| Divide (e d : expr)
| Add (e d : expr)
| Sub (e d : expr)
| Mul (k : rat) (e : expr)
| Min (e d : expr)
| MinOne (e : expr)
| Relu (e : expr)
| Normalize (e : expr).

Inductive kind := Row | Entry | Ratio | Chance | Rest.

Definition alike (k l : kind) :=
  match k, l with Row, Row | Entry, Entry | Ratio, Ratio => true | _, _ => false end.

Definition linear2 (op : form -> form -> form) (a b : option (kind * form)) :=
  if (a, b) is (Some (k, f), Some (l, g)) then if alike k l then Some (k, op f g) else None else None.

Fixpoint value (e : expr) : option (kind * form) :=
  match e with
  | Target => Some (Row, owed)
  | Draft => Some (Row, stated)
  | At e => if value e is Some (Row, f) then Some (Entry, f) else None
  | Divide e d =>
    if (value e, value d) is (Some (Entry, f), Some (Entry, g)) then if equal g stated then Some (Ratio, f) else None else None
  | Add e d => linear2 plus (value e) (value d)
  | Sub e d => linear2 minus (value e) (value d)
  | Mul k e => if value e is Some (l, f) then if alike l l then Some (l, times k f) else None else None
  | Min e d => if (value e, value d) is (Some (Row, f), Some (Row, g)) then Some (Row, minimum f g) else None
  | MinOne e => if value e is Some (Ratio, f) then if positive f then Some (Chance, minimum f stated) else None else None
  | Relu e => if value e is Some (Row, f) then Some (Row, relu_of f) else None
  | Normalize e => if value e is Some (Row, f) then if positive f then Some (Rest, f) else None else None
  end.

Definition coin_mass (e : expr) : option form :=
  match value e with
  | Some (Ratio, f) => if positive f then Some (minimum f stated) else None
  | Some (Chance, f) => Some f
  | _ => None
  end.

Inductive body := Accept | GoOn (e : expr) | Toss (site : nat) (e : expr) (yes no : body).

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

Definition multiple (r f : form) :=
  if (r, f) is ((_, y) :: _, (_, x) :: _) then (0 < y / x) && equal r (times (y / x) f) else false.

Definition pays_off (b : body) :=
  if ends b stated is Some (a, l) then
    let rest := minus owed a in all (fun o => multiple o.2 rest) l && (nilp rest || ~~ nilp l)
  else false.

Fixpoint sites (b : body) := if b is Toss k _ yes no then k :: sites yes ++ sites no else [::].
Definition accepts (b : body) := uniq (sites b) && pays_off b.

Definition of_rejection :=
  Toss 0 (Divide (At Target) (At Draft)) Accept (GoOn (Normalize (Relu (Sub Target Draft)))).
Definition of_half :=
  Toss 0 (Mul (1 / 2%:R) (Divide (At Target) (At Draft))) Accept (GoOn (Normalize (Sub Target (Min (Mul (1 / 2%:R) Target) Draft)))).
Definition of_forgetful := Toss 0 (Divide (At Target) (At Draft)) Accept (GoOn Target).
Time Example a1 : accepts of_rejection. Proof. by vm_compute. Qed.
Time Example a2 : accepts of_half. Proof. by vm_compute. Qed.
Time Example a3 : ~~ accepts of_forgetful. Proof. by vm_compute. Qed.

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
by case: (lerP 0 r) => h; [rewrite relu_neg ?oppr_le0 // relu_pos // subrr | rewrite relu_pos ?oppr_ge0 1?ltW // relu_neg ?ltW // sub0r].
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

Lemma value_means e k f : value e = Some (k, f) -> means k f (sem p q x e).
Proof.
have two (op : form -> form -> form) (h : R -> R -> R) a b r s k' g :
    (forall u f' g', entry (op f' g') u = h (entry f' u) (entry g' u)) -> (forall u w, h u w / q x = h (u / q x) (w / q x)) ->
    (forall l g', a = Some (l, g') -> means l g' r) -> (forall l g', b = Some (l, g') -> means l g' s) ->
    linear2 op a b = Some (k', g) -> means k' g (fun v => h (r v) (s v)).
  move=> hop hdiv; case: a => [[l f']|//] ha; case: b => [[l' g']|] hb; last by case: l {ha}.
  have {}ha := ha _ _ erefl; have {}hb := hb _ _ erefl; rewrite /linear2.
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
rewrite /coin_mass; case e1: (value e) => [[[] f]|] //; have := value_means e1.
  case: ifP => // f0 /= h [<-]; rewrite h /entry ev_minimum // ev_stated.
  rewrite /clip min_chance ?qx_gt0 // max_r.
    by rewrite mulrC divfK.
  by rewrite divr_ge0 // le_minr q0 ev_ge0.
by case=> /andP[m0 m1] h [<-]; rewrite h clip_id ?(divr_ge0, ler_pdivr_mulr) ?mul1r ?qx_gt0 ?m0 // mulrC divfK.
Qed.

End One.

Lemma coin_bounds e m (p q : R) : coin_mass e = Some m -> 0 <= p -> 0 <= q -> 0 <= ev p q m <= q.
Proof.
have low f : positive f -> 0 <= p -> 0 <= q -> 0 <= ev p q (minimum f stated) <= q.
  by move=> f0 p0 q0; rewrite ev_minimum // ev_stated le_minl lexx orbT le_minr q0 ev_ge0.
have two op a b f : linear2 op a b = Some (Chance, f) -> False.
  by case: a => [[[] ?]|//]; case: b => [[[] ?]|].
rewrite /coin_mass; case e1: (value e) => [[[] f]|] //; first by case: ifP => // f0 [<-]; exact: low.
case=> <-; case: e e1 => //= [e|e d|e d|e d|k e|e d|e|e|e].
- by case: (value e) => [[[] ?]|].
- by case: (value e) => [[[] ?]|] //; case: (value d) => [[[] ?]|] //; case: ifP.
- by move/two.
- by move/two.
- by case: (value e) => [[[] ?]|].
- by case: (value e) => [[[] ?]|] //; case: (value d) => [[[] ?]|].
- by case: (value e) => [[[] g]|] //; case: ifP => // g0 [<-]; exact: low.
- by case: (value e) => [[[] ?]|].
- by case: (value e) => [[[] ?]|] //; case: ifP.
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
- case e1: (value e) => [[[] r]|] // [_ <-] /=; rewrite andbT; case: e e1 => //= [e|e d|e d|e d|c e|e d|e|e|e].
  + by case: (value e) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|] //; case: (value d) => [[[] ?]|] //; case: ifP.
  + by case: (value e) => [[[] ?]|//]; case: (value d) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|//]; case: (value d) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|] //; case: (value d) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|] //; case: ifP.
  + by case: (value e) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|] //; case: ifP => // h [<-].
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
  by case: (value_means p0 q0 qx e1) => _ h; rewrite (eq_row_dot _ h).
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
  by case: (value_means p0 q0 qx e1).
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
End Sound.

(** ** Noise *)
Section Noise.
Variables (R : realFieldType) (K : eqType) (N : Type) (n0 : N).
Notation M := (M R).
Variable noise : K -> M N.
Hypothesis noise_prob : forall k, prob (noise k).

Inductive reads (A : Type) := Ret (a : A) | Ask (k : K) (h : N -> reads A).

Fixpoint rbind A B (r : reads A) (g : A -> reads B) : reads B :=
  match r with Ret a => g a | Ask k h => Ask k (fun n => rbind (h n) g) end.

(** With a table of all noise it is a function; with noise of its own, a distribution. *)
Fixpoint told A (w : K -> N) (r : reads A) : A := match r with Ret a => a | Ask k h => told w (h (w k)) end.
Fixpoint play A (r : reads A) : M A := match r with Ret a => ret a | Ask k h => n <- noise k ;; play (h n) end.

(** What it asks is of these noises; and it asks none twice, nor one that was asked before. *)
Fixpoint asks A (mine : pred K) (r : reads A) : Prop :=
  match r with Ret _ => True | Ask k h => mine k /\ forall n, asks mine (h n) end.

Fixpoint asks_once A (seen : seq K) (r : reads A) : Prop :=
  match r with Ret _ => True | Ask k h => k \notin seen /\ forall n, asks_once (k :: seen) (h n) end.

Lemma told_bind A B (r : reads A) (g : A -> reads B) w : told w (rbind r g) = told w (g (told w r)).
Proof. by elim: r => //= k h IH; exact: IH. Qed.

Lemma play_bind A B (r : reads A) (g : A -> reads B) : play (rbind r g) ~ (a <- play r ;; play (g a)).
Proof.
move=> f; elim: r => [a|k h IH] /=; first by rewrite E_bind E_ret.
by rewrite !E_bind; apply: eq_E => n; rewrite IH E_bind.
Qed.

Lemma prob_play A (r : reads A) : prob (play r).
Proof. by elim: r => [a|k h IH] /=; [exact: prob_ret | apply: prob_bind => //; exact: always_true]. Qed.

Lemma asks_sub A (mine mine' : pred K) (r : reads A) : (forall k, mine k -> mine' k) -> asks mine r -> asks mine' r.
Proof. by move=> sub; elim: r => //= k h IH [/sub i f]; split=> // n; exact: IH. Qed.

Lemma asks_bind A B (mine : pred K) (r : reads A) (g : A -> reads B) :
  asks mine r -> (forall a, asks mine (g a)) -> asks mine (rbind r g).
Proof. by elim: r => //= k h IH [i f] ag; split=> // n; exact: IH. Qed.

Lemma once_seen A s s' (r : reads A) : {subset s' <= s} -> asks_once s r -> asks_once s' r.
Proof.
elim: r s s' => //= k h IH s s' sub [n f]; split=> [|b]; first by apply: contra n; exact: sub.
by apply: IH (f b) => j; rewrite !inE => /orP[->//|/sub ->]; rewrite orbT.
Qed.

Lemma once_bind A B (dk s : seq K) (r : reads A) (g : A -> reads B) :
  asks_once s r -> asks [mem dk] r -> (forall a, asks_once (dk ++ s) (g a)) -> asks_once s (rbind r g).
Proof.
elim: r s => [a|k h IH] s /=.
  by move=> _ _ og; apply: once_seen (og a) => j; rewrite mem_cat orbC => ->.
case=> n f [i ah] og; split=> // b; apply: IH => // a.
by apply: once_seen (og a) => j; rewrite !mem_cat inE => /orP[->//|/orP[/eqP ->|->]]; rewrite ?i ?orbT.
Qed.

Lemma once_map A B (h : A -> B) (r : reads A) s : asks_once s r -> asks_once s (rbind r (fun a => Ret (h a))).
Proof. by elim: r s => //= k g IH s [n f]; split=> // b; exact: IH. Qed.

(** What is asked on the way to each result. *)
Fixpoint leads A (P : seq K -> A -> Prop) (l : seq K) (r : reads A) : Prop :=
  match r with Ret a => P l a | Ask k h => forall n, leads P (k :: l) (h n) end.

Lemma leads_impl A (P Q : seq K -> A -> Prop) l r : (forall l a, P l a -> Q l a) -> leads P l r -> leads Q l r.
Proof. by move=> h; elim: r l => [a|k g IH] l /=; [exact: h | move=> f n; exact: IH]. Qed.

Lemma leads_some A (P : seq K -> A -> Prop) l r : leads P l r -> exists l' a, P l' a /\ {subset l <= l'}.
Proof.
elim: r l => [a|k g IH] l /=; first by move=> Pa; exists l, a; split=> // j.
by move=> /(_ n0) /IH[l' [a [Pa sub]]]; exists l', a; split=> // j jl; apply: sub; rewrite inE jl orbT.
Qed.

Lemma asks_leads A (mine : pred K) l (r : reads A) : asks mine r -> (forall k, k \in l -> mine k) ->
  leads (fun l' _ => forall k, k \in l' -> mine k) l r.
Proof.
elim: r l => //= k h IH l [ik f] lk n; apply: IH => // j; rewrite inE => /orP[/eqP -> //|]; exact: lk.
Qed.

Lemma once_leads A B (r : reads A) (g : A -> reads B) l seen : asks_once l r ->
  leads (fun l' a => (forall k, k \in l' -> k \notin seen) /\ asks_once (l' ++ seen) (g a)) l r -> asks_once (l ++ seen) (rbind r g).
Proof.
elim: r l => [a|k h IH] l /=; first by move=> _ [].
case=> kl oh f; split=> [|n]; last by rewrite -cat_cons; apply: IH.
have [l' [a [[out _] sub]]] := leads_some (f n0); rewrite mem_cat negb_or kl out //.
by apply: sub; rewrite inE eqxx.
Qed.

Lemma told_unseen A (r : reads A) s w w' : asks_once s r -> (forall k, k \notin s -> w k = w' k) -> told w r = told w' r.
Proof.
elim: r s => //= k h IH s [n f] e; rewrite -e //; apply: (IH _ (k :: s)) => // j; rewrite inE => /norP[_]; exact: e.
Qed.

(** A program that asks no noise twice does with one table what it would do with noise of its own for each question. *)
Theorem told_play A (r : reads A) (ks : seq K) : uniq ks -> asks [mem ks] r -> asks_once [::] r ->
  fmap (fun w => told w r) (table n0 noise ks) ~ play r.
Proof.
move=> uks; move: [::]; elim: r => [a|k h IH] s /=.
  by move=> _ _ f; rewrite E_fmap E_ret E_const //; exact: mass_table.
case=> i ah [n oh] f; rewrite E_fmap E_bind.
rewrite (table_split n0 noise_prob (F := fun b w => f (told w (h b))) uks i) => [|b w w' e].
  by apply: eq_E => b; rewrite -(IH b (k :: s) (ah b) (oh b)) E_fmap.
by rewrite (told_unseen (oh b) (w' := w')) // => j; rewrite inE => /norP[jk _]; exact: e.
Qed.

Lemma always_bind_inv A B (P : B -> Prop) (d : M A) (h : A -> M B) :
  always P (bind d h) -> always (fun a => always P (h a)) d.
Proof.
elim: d => //= -[w a] d IH; rewrite -[bind _ _]/(scale w (h a) ++ bind d h) => /always_cat[s /IH ?]; split=> // w0.
elim: (h a) s => //= -[u b] d' IH' [ub /IH' ?]; split=> // u0; apply: ub; exact: mulf_neq0.
Qed.

Lemma always_play A B (P : B -> Prop) (r : reads A) (g : A -> reads B) :
  always (fun a => always P (play (g a))) (play r) -> always P (play (rbind r g)).
Proof.
elim: r => [a|k h IH] /=; first by case=> h _; apply: h; exact: oner_neq0.
by move/always_bind_inv => f; apply: always_bind; apply: always_impl f => n; exact: IH.
Qed.

(** A drafting program of Linear.v as one that asks. *)
Section Drafting.
Variables (V : finType) (x0 : V) (pick : row R V -> N -> V).

Fixpoint drafts A (p : linear R V K N A) (l : seq (V * row R V)) (t : tree R V) : reads (tree R V * A * seq (V * row R V)) :=
  match p with
  | End a => Ret (t, a, l)
  | Read k h => Ask k (fun n => drafts (h n) l t)
  | Sample k q h => Ask k (fun n => drafts h (rcons l (pick q n, q)) t)
  | Put i place h => let o := nth (absent R x0) l i in drafts (h o.1) (others i l) (grow place o.1 o.2 t)
  | See i h => drafts (h (nth (absent R x0) l i).1) (others i l) t
  end.

Lemma told_drafts A (p : linear R V K N A) l t w : told w (drafts p l t) = exec x0 pick w p l t.
Proof. by elim: p l t => //= *. Qed.

Lemma once_drafts A (p : linear R V K N A) ks s l t : fresh noise pick ks s p -> asks [mem ks] (drafts p l t) /\ asks_once s (drafts p l t).
Proof.
elim: p s l t => [a|k h IH|k q h IH|i place h IH|i h IH] s l t //=.
- by case=> i n f; split; split=> // b; case: (IH b _ l t (f b)).
- by case=> i n _ _ f; split; split=> // b; case: (IH _ (rcons l (pick q b, q)) t f).
- by move=> f; exact: IH.
- by move=> f; exact: IH.
Qed.

Lemma never A (P : pred A) (d : M A) : all (fun o => 0 <= o.1) d -> E d (fun a => (~~ P a)%:R) = 0 -> always P d.
Proof.
elim: d => //= -[w a] d IH /= /andP[w0 d0]; rewrite E_cons => /eqP.
rewrite paddr_eq0 ?mulr_ge0 ?ler0n //; last first.
  by elim: d d0 {IH} => [|o d IH] /=; rewrite ?E_nil // /E big_cons => /andP[? /IH]; apply: addr_ge0; rewrite mulr_ge0 ?ler0n.
case/andP=> wa /eqP /(IH d0) ad; split=> // wn; move: wa; rewrite mulf_eq0 (negPf wn) pnatr_eq0 /=.
by case: (P a).
Qed.

Lemma faithful_mass k q : law q -> fmap (pick q) (noise k) ~ draw q -> always (fun n => q (pick q n) != 0) (noise k).
Proof.
move=> lq e; apply: (never (P := fun n => q (pick q n) != 0)); first by case: (noise_prob k).
have := e (fun v => (~~ (q v != 0))%:R); rewrite E_fmap E_draw => ->.
by rewrite /dot big1 // => v _; case: eqP => [->|_]; rewrite ?mul0r ?mulr0.
Qed.

Let good (o : V * row R V) := law o.2 /\ o.2 o.1 != 0.

Lemma good_others i l : List.Forall good l -> List.Forall good (others i l).
Proof.
move=> g; have sub n : List.Forall good (take n l) /\ List.Forall good (drop n l).
  elim: n l g => [|n IH] [|o l] g //=; split=> //; inversion_clear g; case: (IH l) => // t d.
  by constructor.
by rewrite /others; apply/List.Forall_app; split; [case: (sub i) | case: (sub i.+1)].
Qed.

Lemma good_nth i l : List.Forall good l -> good (nth (absent R x0) l i).
Proof.
move=> g; elim: g i => [|o l' go _ IH] [|i] //=; split; rewrite /= ?nth_nil /onehot ?eqxx ?oner_eq0 //; exact: law_onehot.
Qed.

(** Every draft can have been drawn. *)
Lemma drafts_drawn A (p : linear R V K N A) ks s l t : fresh noise pick ks s p -> List.Forall good l -> drawn t ->
  always (fun o => drawn o.1.1) (play (drafts p l t)).
Proof.
elim: p s l t => [a|k h IH|k q h IH|i place h IH|i h IH] s l t /=.
- by move=> _ _ dt; apply: always_ret.
- by case=> _ _ f gl dt; apply: always_bind; apply: always_true => n; exact: IH.
- case=> _ _ lq e f gl dt; apply: always_bind; apply: always_impl (faithful_mass lq e) => n qn.
  apply: IH f _ dt; rewrite -cats1; apply/List.Forall_app; split=> //; by constructor.
- move=> f gl dt; have [lq qx] := good_nth i gl; apply: IH (f _) (good_others i gl) _; exact: drawn_grow.
- by move=> f gl dt; apply: IH (f _) (good_others i gl) dt.
Qed.
End Drafting.
End Noise.

(** ** The theorem of [rule-lossless], with the noises of the rule *)
Section Verified.
Variables (R : realFieldType) (V : finType) (K : eqType) (N : Type) (n0 : N) (x0 : V).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Notation reads := (reads K N).
Variable noise : K -> M N.
Hypothesis noise_prob : forall k, prob (noise k).
Variables (pick : row -> N -> V) (toss : R -> N -> bool).

(** The noises of a rule go by the depth of the node and the child (none for what is drawn after the children), and by their site. *)
Variable key : nat -> option (nat * nat) -> K.
Hypothesis key_inj : forall d o d' o', key d o = key d' o' -> d = d' /\ o = o'.
Hypothesis tosses : forall d o r, fmap (toss r) (noise (key d (Some o))) ~ coin r.
Hypothesis picks : forall d p, law p -> fmap (pick p) (noise (key d None)) ~ draw p.

Variables (target : text -> row) (b : body).
Hypothesis target_law : forall c, law (target c).

Fixpoint ask_body d j (p q : row) x (b : body) : reads (option row) :=
  match b with
  | Accept => Ret _ _ None
  | GoOn e => Ret _ _ (Some (sem p q x e))
  | Toss s e yes no =>
    Ask (key d (Some (j, s))) (fun n => if toss (sem p q x e x) n then ask_body d j p q x yes else ask_body d j p q x no)
  end.

Fixpoint ask_walk c d j (t : tree R V) (p : row) : reads text :=
  if t is Node x q below next then
    rbind (ask_body d j p q x b) (fun o =>
      if o is Some p' then ask_walk c d j.+1 next p'
      else rbind (ask_walk (rcons c x) d.+1 0%N below (target (rcons c x))) (fun w => Ret _ _ (x :: w)))
  else Ask (key d None) (fun n => Ret _ _ [:: pick p n]).

Lemma play_body d j p q x b' : play noise (ask_body d j p q x b') ~ perform p q x b'.
Proof.
elim: b' => [|e|s e yes IHy no IHn] //= f; rewrite !E_bind -(tosses d (j, s)) E_fmap.
by apply: eq_E => n; case: (toss _ n); rewrite ?IHy ?IHn.
Qed.

Hypothesis good : accepts b.
Let L : @lossless R V (rule_of R V b) (@law R V) id := pays_off_lossless R V (proj2 (andP good)).

Lemma play_walk t c d j p : drawn t -> law p -> play noise (ask_walk c d j t p) ~ descend target c t (p : carried (rule_of R V b)).
Proof.
elim: t c d j p => [|x q below IHb next IHn] c d j p /=.
  by move=> _ lp f; rewrite !E_bind -(picks d lp) E_fmap.
case=> lq qx db dn lp f; rewrite play_bind !E_bind play_body.
apply: E_always; apply: always_impl (look_valid L lp lq qx) => -[p' lp'|_]; first exact: IHn.
rewrite play_bind !E_bind E_ret; rewrite (IHb (rcons c x) d.+1 0%N _ db (target_law _)) E_fmap.
by apply: eq_E => w; rewrite E_ret.
Qed.

Definition later d j d' (o : option (nat * nat)) : bool :=
  (d < d')%N || (d' == d) && (if o is Some (j', _) then j <= j' else true)%N.

Lemma once_body d j p q x b' s : uniq (sites b') -> (forall k, k \in sites b' -> key d (Some (j, k)) \notin s) ->
  asks_once s (ask_body d j p q x b') /\ asks [mem [seq key d (Some (j, k)) | k <- sites b']] (ask_body d j p q x b').
Proof.
elim: b' s => [|e|k e yes IHy no IHn] s //=; rewrite mem_cat cat_uniq => /andP[/norP[ky kn] /and3P[uy _ un]] out.
have part b2 : (forall s, uniq (sites b2) -> (forall k, k \in sites b2 -> key d (Some (j, k)) \notin s) ->
    asks_once s (ask_body d j p q x b2) /\ asks [mem [seq key d (Some (j, k)) | k <- sites b2]] (ask_body d j p q x b2)) ->
    uniq (sites b2) -> k \notin sites b2 -> {subset sites b2 <= sites yes ++ sites no} ->
    asks_once (key d (Some (j, k)) :: s) (ask_body d j p q x b2) /\
    asks [mem [seq key d (Some (j, k)) | k <- k :: sites yes ++ sites no]] (ask_body d j p q x b2).
  move=> IH u nk sub; case: (IH (key d (Some (j, k)) :: s) u) => [k' ik'|o a].
    rewrite inE negb_or out ?inE ?sub ?orbT // andbT; apply: contraNneq nk => /key_inj[_ [e2]]; by rewrite -e2.
  split=> //; apply: asks_sub a => u' /mapP[k' ik' ->]; apply: map_f; by rewrite inE sub // orbT.
have suby : {subset sites yes <= sites yes ++ sites no} by move=> u i; rewrite mem_cat i.
have subn : {subset sites no <= sites yes ++ sites no} by move=> u i; rewrite mem_cat i orbT.
have [oy ay] := part yes IHy uy ky suby; have [on an] := part no IHn un kn subn.
split; split=> [|n]; rewrite ?out ?inE ?eqxx //; by case: (toss _ n).
Qed.

Lemma later_next d j d' o : later d j.+1 d' o -> later d j d' o.
Proof. by case/orP=> [h|/andP[e h]]; rewrite /later ?h // e; case: o h => [[j' k] /ltnW ->|]; rewrite orbT. Qed.

Lemma later_below d j d' o : later d.+1 0 d' o -> later d j d' o.
Proof. by case/orP=> [/ltnW h|/andP[/eqP -> _]]; rewrite /later ?h ?ltnSn. Qed.

Lemma once_walk t c d j p (s : seq K) : (forall d' o, later d j d' o -> key d' o \notin s) -> asks_once s (ask_walk c d j t p).
Proof.
have [us _] := andP good; elim: t c d j p s => [|x q below IHb next IHn] c d j p s out /=.
  by split=> //; apply: out; rewrite /later eqxx orbT.
have [|ob ab] := @once_body d j p q x b s us; first by move=> k _; apply: out; rewrite /later eqxx leqnn orbT.
apply: once_bind ob ab _ => -[p'|]; [apply: IHn|apply/once_map/IHb] => d' o l; rewrite mem_cat negb_or.
  rewrite (out _ _ (later_next l)) andbT; apply/mapP => -[k _ /key_inj[e1 e2]].
  by move: l; rewrite e1 e2 /later !ltnn eqxx.
rewrite (out _ _ (later_below j l)) andbT; apply/mapP => -[k _ /key_inj[e1 e2]].
by move: l; rewrite e1 /later ltnNge leqnSn /= ltn_eqF.
Qed.

Lemma asks_walk (mine : pred K) t c d j p : (forall d o, mine (key d o)) -> asks mine (ask_walk c d j t p).
Proof.
move=> all; elim: t c d j p => [|x q below IHb next IHn] c d j p /=; first by split.
apply: asks_bind => [|[p'|]]; [|exact: IHn|exact: asks_bind (IHb _ _ _ _) _].
by elim: b {IHb IHn} => //= k e yes IHy no IHn'; split=> // n; case: (toss _ n).
Qed.

Lemma walk_some t c d j p : always (fun w => 0 < size w)%N (play noise (ask_walk c d j t p)).
Proof.
elim: t c d j p => [|x q below IHb next IHn] c d j p /=.
  by apply: always_bind; apply: always_true => n; apply: always_ret.
apply: always_play; apply: always_true => -[p'|]; first exact: IHn.
by apply: always_play; apply: always_true => w; apply: always_ret.
Qed.

Section Path.
Variables (A : Type) (p : linear R V K N A) (dk : seq K).
Hypotheses (udk : uniq dk) (fp : fresh noise pick dk [::] p) (own : forall d o, key d o \notin dk).

(** Drafting, then verification: what a step commits of it, as a program that asks for noise. *)
Definition verification c : reads text :=
  rbind (drafts x0 pick p [::] (Leaf R V)) (fun o => ask_walk c 0%N 0%N o.1.1 (target c)).

Lemma verification_once c : asks_once [::] (verification c).
Proof.
have [ad od] := once_drafts x0 [::] (Leaf R V) fp; apply: once_bind od ad _ => o.
by apply: once_walk => d' o' _; rewrite cats0.
Qed.

Lemma verification_Law c : Law target c (play noise (verification c)).
Proof.
have [ad od] := once_drafts x0 [::] (Leaf R V) fp.
move=> J hJ; rewrite play_bind E_bind -[RHS](linear_Law n0 x0 noise_prob target_law udk fp L hJ) E_bind.
have d0 := @drafts_drawn R K N noise noise_prob V x0 pick _ p dk [::] [::] (Leaf R V) fp (List.Forall_nil _) I.
rewrite (E_always (g := fun o => E (walk target (rule_of R V b) c o.1.1) (fun w => J (c ++ w)))); last first.
  apply: always_impl d0 => o dt; rewrite play_walk //; by rewrite /walk E_bind E_ret.
rewrite -(told_play n0 noise_prob udk ad od) E_fmap; apply: eq_E => w; by rewrite told_drafts.
Qed.

Lemma verification_asks (mine : pred K) c : (forall k, k \in dk -> mine k) -> (forall d o, mine (key d o)) -> asks mine (verification c).
Proof.
move=> sub all; have [ad _] := once_drafts x0 [::] (Leaf R V) fp.
by apply: asks_bind (asks_sub sub ad) _ => o; exact: asks_walk.
Qed.

Lemma verification_some c : always (fun w => 0 < size w)%N (play noise (verification c)).
Proof. by apply: always_play; apply: always_true => o; exact: walk_some. Qed.

(** [rule-lossless]: path(M, v, drawn, N + K). *)
Theorem rule_lossless c (ks : seq K) : uniq ks -> asks [mem ks] (verification c) ->
  Law target c (fmap (fun w => told w (verification c)) (table n0 noise ks)).
Proof.
move=> uks aks J hJ; rewrite -(verification_Law hJ).
exact: (told_play n0 noise_prob uks aks (verification_once c)).
Qed.

End Path.
End Verified.

(** ** [rule-matching]: rules by cases *)

(** What is known of a value of a rule: nothing; a truth value; a token, with whether it is the evidence's own and whether it is a
    child's. *)
Definition fact := option (bool + bool * bool).
Definition Token own child : fact := Some (inr (own, child)).
Definition Flag b : fact := Some (inl b).

(** Ops append a value to the registers. A condition is a register, an equality of two, or anything ([Unknown]); so may a token be. *)
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

Inductive value_ := Nought | Bool (b : bool) | Tok (x : V) (child : option nat).

(** The evidence's own token after each text; other draws, and conditions on anything else, may be anything. *)
Variables (own : text -> V) (guess : text -> nat -> seq value_ -> V) (chance : text -> nat -> seq value_ -> bool).

Definition do_op c (env : seq value_) (o : op) : value_ :=
  match o with
  | Own => Tok (own c) None
  | Any k => Tok (guess c k env) None
  | Copy r => nth Nought env r
  | Truth b => Bool b
  end.

Fixpoint do_test c (env : seq value_) (t : test) : bool :=
  match t with
  | Is r => if nth Nought env r is Bool b then b else false
  | Equal r s => if (nth Nought env r, nth Nought env s) is (Tok x _, Tok y _) then x == y else false
  | Not t => ~~ do_test c env t
  | Unknown k => chance c k env
  end.

Fixpoint iterate (body : seq value_ -> seq value_) i (xs : seq V) (s : seq value_) : seq value_ :=
  if xs is x :: xs' then
    let y := body (rcons s (Tok x (Some i))) in
    if nth Nought y 0 is Bool true then behead y else iterate body i.+1 xs' (behead y)
  else s.

Fixpoint do_block c (xs : seq V) (b : block) (env : seq value_) : seq value_ :=
  match b with
  | Yield rs => [seq nth Nought env r | r <- rs]
  | Let o k => do_block c xs k (rcons env (do_op c env o))
  | If t yes no => if do_test c env t then do_block c xs yes env else do_block c xs no env
  | Children _ carried body k =>
    do_block c xs k (env ++ iterate (fun s => do_block c xs body (env ++ s)) 0 xs [seq nth Nought env r | r <- carried])
  end.

(** What a rule yields: whether it accepts a child, and which; whether it emits a token, and which. *)
Definition verdict (y : seq value_) : option (nat + V) :=
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

Definition true_of (a : fact) (v : value_) : Prop :=
  match a with
  | None => True
  | Some (inl b) => v = Bool b
  | Some (inr (o, ch)) => exists x w, [/\ v = Tok x w, o -> x = own c & ch -> exists2 i, w = Some i & List.nth_error xs i = Some x]
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
Lemma iterate_ends (l : seq (bool * seq fact)) (a : seq fact) body_paths (do : seq value_ -> seq value_) :
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
- case kt: (known_test a t) => [b'|]; first by move=> py h; rewrite (known_test_true h kt); by case: b' {kt} py => py; [exact: (IHy _ _ _ py h) | exact: (IHn _ _ _ py h)].
  move=> py h; have ev := @every_in _ [:: paths states yes (learn a t true); paths states no (learn a t false)] ys py.
  case dt: (do_test c e t).
    have [x ex sub] := ev _ (or_introl erefl); have [y iy ay] := IHy _ _ _ ex (learn_true h dt).
    by exists y => //; exact: sub.
  have [x ex sub] := ev _ (or_intror (or_introl erefl)); have [y iy ay] := IHn _ _ _ ex (learn_true h dt).
  by exists y => //; exact: sub.
- set l := nth [::] states n; case: ifP => // /andP[begins cl] pk h; have ev := every_in pk.
  have [|s' sl as'] := @iterate_ends l a (paths states body) (fun s => do_block c xs body (e ++ s)) _ xs [::] _ _ erefl begins (agree_nths carried h).
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
End Followed.

(** ** The induction over steps *)
Section Loop.
Variables (R : realFieldType) (V : finType) (K : eqType) (N : Type) (n0 : N) (S : Type).
Notation M := (M R).
Notation text := (seq V).
Notation reads := (reads K N).
Variable noise : K -> M N.
Hypothesis noise_prob : forall k, prob (noise k).
Variables (target : text -> row R V) (ended : text -> bool).
Hypothesis target_law : forall c, law (target c).

(** An iteration, as the certificate reads it. [Look]: a noise decides something, from here on it is in the control. [Commit v P]: what
    P makes of version v of the context; the versions of an iteration are numbered from its head. [Done]: the values at the end. *)
Inductive iteration :=
| Done (s : S)
| Look (k : K) (h : N -> iteration)
| Commit (v : nat) (path : text -> reads text) (h : text -> iteration).

(** What it does, given all versions of the context. *)
Fixpoint body_of (p : iteration) (cs : seq text) : reads (text * S) :=
  match p with
  | Done s => Ret _ _ ([::], s)
  | Look k h => Ask k (fun n => body_of (h n) cs)
  | Commit v path h =>
    rbind (path (nth [::] cs v)) (fun w =>
      rbind (body_of (h w) (rcons cs (last [::] cs ++ w))) (fun o => Ret _ _ (w ++ o.1, o.2)))
  end.

(** What the checker tests of it: what is committed is of the version that is current there, and [good]; every way to the end commits;
    at the end the invariant holds again. *)
Section Shown.
Variables (good : text -> reads text -> Prop) (I : text -> S -> Prop).

Fixpoint shown (p : iteration) v c (made : bool) : Prop :=
  match p with
  | Done s => made /\ I c s
  | Look k h => forall n, shown (h n) v c made
  | Commit v' path h => [/\ v' = v, good c (path c) & forall w, (0 < size w)%N -> shown (h w) v.+1 (c ++ w) true]
  end.
End Shown.

Variables (step : nat -> text -> S -> iteration) (I : text -> S -> Prop).
Definition once_through i c s := body_of (step i c s) [:: c].

(** The first n tokens of [while not done], with iterations that are numbered from i on. *)
Fixpoint whole k n i c s : reads text :=
  if k is k'.+1 then
    if (n == 0)%N || ended c then Ret _ _ [::]
    else rbind (once_through i c s) (fun o =>
      let w := cut ended c o.1 in
      if (n <= size w)%N then Ret _ _ (take n w)
      else rbind (whole k' (n - size w)%N i.+1 (c ++ w) o.2) (fun u => Ret _ _ (w ++ u)))
  else Ret _ _ [::].

(** *** Mode own: with a table of all noise, the output stream's among it *)
Section OwnMode.
Variables (w : K -> N) (own : text -> V).
Definition good_own c (r : reads text) : Prop := owned own c (told w r) /\ (0 < size (told w r))%N.

Lemma told_own p v c cs made : shown good_own I p v c made -> size cs = v.+1 -> last [::] cs = c ->
  [/\ owned own c (told w (body_of p cs)).1, made || (0 < size (told w (body_of p cs)).1)%N
    & I (c ++ (told w (body_of p cs)).1) (told w (body_of p cs)).2].
Proof.
elim: p v c cs made => [s|k h IH|v' path h IH] v c cs made /=.
- by case=> -> Is _ _; rewrite cats0.
- by move=> sh; apply: IH.
- case=> -> [ow s0] sh sz lc; have nc : nth [::] cs v = c by rewrite -lc (last_nth [::]) sz -nth_behead; case: (cs) sz.
  rewrite told_bind nc told_bind /=; have [||ow' _ Is] := IH _ _ _ (rcons cs (c ++ told w (path c))) _ (sh _ s0).
  + by rewrite size_rcons sz.
  + by rewrite last_rcons.
  rewrite lc owned_cat ow ow' catA; split=> //; by rewrite size_cat addn_gt0 s0 orbT.
Qed.

(** The premises: every iteration, from where the invariant holds and the request is not done, is as it should be. *)
Theorem steps_own : (forall i c s, I c s -> ~~ ended c -> shown good_own I (step i c s) 0 c false) ->
  forall n i c s, I c s -> told w (whole n n i c s) = own_text own ended n c.
Proof.
move=> sh n i c s Is; suff h k : forall n i c s, (n <= k)%N -> I c s \/ ended c -> told w (whole k n i c s) = own_text own ended n c.
  by apply: h => //; left.
elim: k {n i c s Is} => [|k IH] n i c s nk ok /=; first by case: n nk.
case: n nk => [|n] nk //=; have [e //|go] := boolP (ended c); case: ok => [{}Is|e]; last by rewrite e in go.
have [ow s0 Io] := told_own (sh i c s Is go) (erefl : size [:: c] = 1%N) erefl.
rewrite told_bind -/(once_through i c s) in ow s0 Io *; move: (told w (once_through i c s)) ow s0 Io => o ow s0 Io.
have := owned_first n.+1 go ow; rewrite /= (negPf go) => ->.
have [full|less] := leqP n.+1 _; rewrite //= told_bind /= IH //.
  by case: (o.1) s0 => //= x u _; rewrite (negPf go) subSS (leq_trans (leq_subr _ _)).
by case: (cut_stops ended c o.1) => [->|]; [left | right].
Qed.
End OwnMode.

(** *** Mode drawn: the noises of what is committed were not asked before, so nothing that decides tells of them *)
Section DrawnMode.
Definition good_drawn c (r : reads text) : Prop :=
  Law target c (play noise r) /\ always (fun w => 0 < size w)%N (play noise r).

Lemma play_drawn p v c cs made : shown good_drawn I p v c made -> size cs = v.+1 -> last [::] cs = c ->
  Law target c (fmap fst (play noise (body_of p cs))) /\
  always (fun o => (made || (0 < size o.1)%N) /\ I (c ++ o.1) o.2) (play noise (body_of p cs)).
Proof.
elim: p v c cs made => [s|k h IH|v' path h IH] v c cs made /=.
- case=> -> Is _ _; split; last by split; rewrite ?cats0.
  by move=> J hJ; rewrite E_fmap E_ret cats0.
- move=> sh sz lc; split; last by apply: always_bind; apply: always_true => n; case: (IH n _ _ _ _ (sh n) sz lc).
  move=> J hJ; rewrite E_fmap E_bind -[RHS](E_const _ (noise_prob k).2); apply: eq_E => n.
  by have [L _] := IH n _ _ _ _ (sh n) sz lc; have := L J hJ; rewrite E_fmap.
- case=> -> [L s0] sh sz lc; have nc : nth [::] cs v = c by rewrite -lc (last_nth [::]) sz -nth_behead; case: (cs) sz.
  rewrite nc lc; have sz' w : size (rcons cs (c ++ w)) = v.+2 by rewrite size_rcons sz.
  split=> [J hJ|].
    rewrite E_fmap play_bind E_bind -[RHS](L J hJ); apply: E_always; apply: always_impl s0 => w w0.
    have [L' _] := IH w _ _ _ _ (sh w w0) (sz' w) (last_rcons _ _ _).
    rewrite -(L' J (harmonic_cat w hJ)) E_fmap play_bind E_bind.
    by apply: eq_E => o; rewrite E_ret /= catA.
  apply: always_play; apply: always_impl s0 => w w0.
  have [_ a] := IH w _ _ _ _ (sh w w0) (sz' w) (last_rcons _ _ _).
  apply: always_play; apply: always_impl a => o [_ Io]; apply: always_ret; split; last by rewrite /= catA.
  by rewrite size_cat addn_gt0 w0 orbT.
Qed.

Definition path_of c (x : nat * S) : M (text * (nat * S)) :=
  fmap (fun o => (o.1, (x.1.+1, o.2))) (play noise (once_through x.1 c x.2)).

Lemma play_whole k n i c s : play noise (whole k n i c s) ~ run ended (commit ended path_of) k n c (i, s).
Proof.
elim: k n i c s => [|k IH] n i c s f //=; case: ifP => // _.
rewrite play_bind !E_bind; apply: eq_E => o; rewrite !E_ret /= /first; case: ifP => // _.
by rewrite play_bind E_bind IH E_fmap; apply: eq_E => u; rewrite E_ret.
Qed.

(** Which noises are of earlier iterations, or of earlier positions: those of an iteration are not, and are in the next. *)
Variable past : nat -> text -> K -> bool.

Record aged : Prop := Aged {
  aged_once : forall i c s, asks_once [::] (once_through i c s);
  aged_now : forall i c s, leads (fun l o => forall k, k \in l -> ~~ past i c k && past i.+1 (c ++ cut ended c o.1) k)
    [::] (once_through i c s);
  aged_later : forall i c w k, past i c k -> past i.+1 (c ++ w) k
}.

Lemma once_whole : aged -> forall k n i c s seen, (forall j, j \in seen -> past i c j) -> asks_once seen (whole k n i c s).
Proof.
move=> ag; elim=> [|k IH] n i c s seen old //=; case: ifP => // _; rewrite -[seen]cat0s.
apply: (once_leads n0 (aged_once ag i c s)); apply: (leads_impl _ (aged_now ag i c s)) => l o now; split.
  by move=> j /now /andP[nj _]; apply: contra nj; exact: old.
case: ifP => // _; apply: once_map; apply: IH => j; rewrite mem_cat => /orP[/now /andP[]//|/old].
exact: aged_later.
Qed.

Theorem steps_drawn : aged -> (forall i c s, I c s -> ~~ ended c -> shown good_drawn I (step i c s) 0 c false) ->
  forall (ks : seq K) n i c s, uniq ks -> asks [mem ks] (whole n n i c s) -> I c s ->
  fmap (fun w => told w (whole n n i c s)) (table n0 noise ks) ~ spec target ended n c.
Proof.
move=> ag sh ks n i c s uks aks Is f.
rewrite (told_play n0 noise_prob uks aks) ?play_whole; last exact: once_whole.
have one j c1 s1 : I c1 s1 -> ~~ ended c1 -> _ := fun Is go => play_drawn (sh j c1 s1 Is go) (erefl : size [:: c1] = 1%N) erefl.
apply: (run_drawn (I := fun c x => I c x.2) target_law) => [c1 [j s1] Is1 go||//].
  by apply: always_fmap; apply: always_impl (one j c1 s1 Is1 go).2 => o [].
split=> c1 [j s1] [Is1 go].
- by apply: prob_bind; [exact: prob_play | apply: always_true => o; exact: prob_ret].
- by move=> J hJ; have := (one j c1 s1 Is1 go).1 J hJ; rewrite !E_fmap.
- by apply: always_fmap; apply: always_impl (one j c1 s1 Is1 go).2 => o [].
Qed.
End DrawnMode.
End Loop.

(** ** Algorithms that draft, verify by an accepted rule and commit, from one table of noise *)
Section Certified.
Variables (R : realFieldType) (V : finType) (K : eqType) (N : Type) (n0 : N) (x0 : V) (S A : Type).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Variable noise : K -> M N.
Hypothesis noise_prob : forall k, prob (noise k).
Variables (pick : row -> N -> V) (toss : R -> N -> bool) (target : text -> row) (ended : text -> bool).
Hypothesis target_law : forall c, law (target c).

(** Noises are keyed by the iteration; those of the drafts are others than those of the rule. *)
Variables (lap : K -> nat) (drafted : nat -> seq K) (key : nat -> nat -> option (nat * nat) -> K).
Hypothesis key_inj : forall i d o d' o', key i d o = key i d' o' -> d = d' /\ o = o'.
Hypothesis tosses : forall i d o r, fmap (toss r) (noise (key i d (Some o))) ~ coin r.
Hypothesis picks : forall i d p, law p -> fmap (pick p) (noise (key i d None)) ~ draw p.
Hypotheses (key_lap : forall i d o, lap (key i d o) = i) (drafted_lap : forall i k, k \in drafted i -> lap k = i).
Hypotheses (drafted_uniq : forall i, uniq (drafted i)) (apart : forall i d o, key i d o \notin drafted i).

Variables (program : nat -> text -> S -> linear R V K N A) (next : nat -> text -> S -> text -> S) (b : body).
Hypothesis program_fresh : forall i c s, fresh noise pick (drafted i) [::] (program i c s).

Definition one_step i c s : iteration V K N S :=
  Commit 0 (verification x0 pick toss (key i) target b (program i c s)) (fun w => Done _ _ _ (next i c s w)).

Theorem accepted_steps : accepts b -> forall (ks : seq K) n i c s, uniq ks -> asks [mem ks] (whole ended one_step n n i c s) ->
  fmap (fun w => told w (whole ended one_step n n i c s)) (table n0 noise ks) ~ spec target ended n c.
Proof.
move=> good ks n i c s uks aks.
apply: (steps_drawn n0 noise_prob target_law (I := fun _ _ => True) (past := fun i _ k => (lap k < i)%N)) => //.
  split=> [j c1 s1|j c1 s1|j _ _ k lk]; last exact: ltnW.
  - apply: (once_map (fun w => (w ++ [::], next j c1 s1 w))).
    exact (@verification_once R V K N x0 noise pick toss (key j) (@key_inj j) target b good A _ _ (@program_fresh j c1 s1) (@apart j) c1).
  - have asked : asks [pred k | lap k == j] (once_through one_step j c1 s1).
      apply: asks_bind => [|w //]; apply: (verification_asks x0 toss target b (@program_fresh j c1 s1)) => [k /drafted_lap e|d o] /=.
        by rewrite e.
      by rewrite key_lap.
    apply: (leads_impl _ (asks_leads (l := [::]) asked _)) => // l o all k /all /eqP ->.
    by rewrite ltnn ltnSn.
move=> j c1 s1 _ _; split=> //; split; last exact: verification_some.
exact (@verification_Law R V K N n0 x0 noise noise_prob pick toss (key j) (@tosses j) (@picks j) target b target_law good A _ _
  (@drafted_uniq j) (@program_fresh j c1 s1) c1).
Qed.
End Certified.
